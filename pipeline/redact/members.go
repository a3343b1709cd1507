package redact

import (
	"bytes"

	"reprieve.dev/pipeline"
)

// memberNames masks card numbers in the member names of a JSON value, framing before it included. ok false: it could not be
// read, which is for e.fail.
func (e *Editor) memberNames(value []byte) (out []byte, hit, ok bool) {
	if !e.nameHit && !bare(value) {
		return nil, false, true
	}
	head := frame(value)
	e.begin()
	if _, _, run := e.r.look(value); !run {
		return nil, false, true
	}
	e.namesOnly = true
	ok = e.document(value[head:], 0)
	e.namesOnly = false
	if !ok {
		e.refuse(pipeline.CodeRedactFailed, "", "the document cannot be read to look at its member names")
		return nil, false, false
	}
	if len(e.hits) == 0 {
		return nil, false, true
	}
	e.shift(0, head)
	return e.render(nil, value, e.hits, true), true, true
}

// frame is the length of a schema id before a value.
func frame(b []byte) int {
	switch {
	case len(b) > 5 && b[0] == 0:
		return 5
	case len(b) > 17 && b[0] == 1:
		return 17
	}
	return 0
}

// bare says that a document has members which no leaf shows: null, {} and []. Their names are looked at in the document.
func bare(b []byte) bool {
	if bytes.Contains(b, []byte("ull")) /* of null; n is more frequent */ {
		return true
	}
	for _, closing := range [...]byte{'}', ']'} {
		for i := 0; ; i++ {
			n := bytes.IndexByte(b[i:], closing)
			if n < 0 {
				break
			}
			i += n
			k := i - 1
			for k >= 0 && (b[k] == ' ' || b[k] == '\n' || b[k] == '\t' || b[k] == '\r') {
				k--
			}
			if k >= 0 && b[k] == closing-2 { // in ASCII the opening sign stands two before
				return true
			}
		}
	}
	return false
}
