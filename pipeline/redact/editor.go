package redact

import (
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
)

// Editor is one goroutine's scratch and the pipeline.Editor of its Redactor. It keeps no payload bytes between records.
type Editor struct {
	r       *Redactor
	hits    []hit
	norm    []byte
	pos     []int32
	read    reading
	chain   chain
	covered int // signs of the text up to here are in a hit of the pass that is running
	out     []byte
	num     [40]byte
	digits  [24]byte
	path    []byte
	tmp     []byte
	doc     []byte // a JSON document, to look at its names
	depth   [maxNested]level
	fail    *failure
	last    failure

	pair      pair // the last leaf that was a name
	namesOnly bool // a document is walked for its member names
	nameHit   bool // a member name on the way to a leaf holds a card number
}

// pair is the name half of a name with a value beside it.
type pair struct {
	m      meaning
	parent []byte
}

// failure is why a record cannot be redacted.
type failure struct {
	code pipeline.Code
	text string
	path string
}

// NewEditor makes an editor; one for each pooled batch or goroutine.
func (r *Redactor) NewEditor() *Editor { return &Editor{r: r} }

func (e *Editor) begin() {
	e.hits, e.path, e.fail, e.nameHit = e.hits[:0], e.path[:0], nil, false
	e.pair.m = means
}

func (e *Editor) refuse(code pipeline.Code, path, text string) {
	if e.fail == nil {
		e.last = failure{code: code, text: text, path: path}
		e.fail = &e.last
	}
}

func (e *Editor) failed() error {
	if e.fail == nil {
		return &pipeline.Error{Code: pipeline.CodeRedactFailed, Text: "the value could not be redacted"}
	}
	return &pipeline.Error{Code: e.fail.code, Place: e.fail.path, Text: e.fail.text}
}

// A rule is a meaning, from 1, in its lowest four bits, then whether the path itself holds a secret, then a field's number.
const (
	ruleMeaning = 15
	rulePath    = 16
	ruleField   = 5 // bits to shift
)

// Plan says what is to be done at a place. Times, booleans and enums have nothing to hide unless the file names them.
func (e *Editor) Plan(path, name string, kind pipeline.ValueKind, tags []string) pipeline.Rule {
	rule := pipeline.Rule(e.r.field(path, name, tags)) << ruleField
	if len(path) >= minDigits && e.r.pan && e.secretPath(path) {
		rule |= rulePath
	}
	m := nameMeaning(name, false)
	switch {
	case strings.HasSuffix(path, "/*/*"): // ["Authorization", "..."]: the leaf's own path says which of the two
		if m == means {
			m = meansPairName
		}
	case pairName(name):
		m = meansPairName
	case pairValue(name):
		m = meansPairValue
	}
	switch kind {
	case pipeline.KindNull:
		return 0
	case pipeline.KindBool, pipeline.KindTimestamp, pipeline.KindEnum:
		if rule == 0 {
			return 0
		}
	default:
		if rule == 0 && e.r.kept(path) { // names on the way are looked at all the same
			return 0
		}
	}
	return rule | pipeline.Rule(m+1)
}

// secretPath says that a member name on the way holds a card number.
func (e *Editor) secretPath(path string) bool {
	if _, _, run := e.r.look([]byte(path)); !run {
		return false
	}
	for _, seg := range splitPath(path) {
		from := len(e.hits)
		e.scan([]byte(seg), means)
		found := len(e.hits) > from
		e.hits = e.hits[:from]
		if found {
			return true
		}
	}
	return false
}

// Edit answers for one leaf. It allocates nothing unless something is found.
func (e *Editor) Edit(rule pipeline.Rule, leaf pipeline.Leaf) pipeline.Edit {
	e.hits = e.hits[:0]
	m := meaning(rule&ruleMeaning) - 1
	field := uint16(rule >> ruleField)
	if rule&rulePath != 0 {
		e.nameHit = true
	}
	if field != 0 && e.r.exact(field, leaf.Path) {
		return e.fieldEdit(field, leaf)
	}
	if m == meansPairName || m == meansPairValue {
		m = e.pairMeaning(m, &leaf)
	}
	var s []byte
	same := false
	switch v := &leaf.Value; v.Kind {
	case pipeline.KindString:
		if len(v.Bytes) < 3 {
			return pipeline.Edit{}
		}
		s = v.Bytes
		e.value(s, m, leaf.Path, 0, false)
	case pipeline.KindBytes:
		s, same = v.Bytes, true
		e.binary(s, m)
	case pipeline.KindNumber, pipeline.KindInt, pipeline.KindFloat, pipeline.KindDecimal:
		s = e.numberText(*v)
		e.number(s, m)
	}
	if len(e.hits) == 0 {
		return pipeline.Edit{}
	}
	e.refuseIdentity(leaf.Path)
	if h := &e.hits[0]; len(e.hits) == 1 && h.from == 0 && h.to == len(s) && e.r.action(h) == actDrop {
		return pipeline.Edit{Kind: pipeline.Drop}
	}
	e.out = e.render(e.out[:0], s, e.hits, same)
	return pipeline.Edit{Kind: pipeline.Replace, Text: e.out}
}

// pairMeaning remembers a leaf that is a name, and tells what it says about the value beside it.
func (e *Editor) pairMeaning(m meaning, leaf *pipeline.Leaf) meaning {
	if m == meansPairValue && e.pair.m == means {
		return means
	}
	at := strings.LastIndexByte(leaf.Path, '/')
	if at < 0 {
		return means
	}
	if last := leaf.Path[at+1:]; m == meansPairName && itemNumber(last) {
		if last != "0" {
			m = meansPairValue
		}
	}
	if m == meansPairValue {
		if e.pair.m != means && leaf.Path[:at] == text(e.pair.parent) {
			return e.pair.m
		}
		return means
	}
	e.pair.m = means
	if leaf.Value.Kind == pipeline.KindString {
		if e.pair.m = named(leaf.Value.Bytes); e.pair.m != means {
			e.pair.parent = append(e.pair.parent[:0], leaf.Path[:at]...)
		}
	}
	return means
}

func (e *Editor) refuseIdentity(path string) {
	if id := e.r.identity(path); id != "" {
		e.refuse(pipeline.CodeRedactIdentity, id, "a secret stands in the identity field "+id)
	}
}

// fieldEdit replaces a whole leaf that the file names.
func (e *Editor) fieldEdit(field uint16, leaf pipeline.Leaf) pipeline.Edit {
	h := hit{kind: kindField, rule: field}
	e.refuseIdentity(leaf.Path)
	a := e.r.action(&h)
	if a == actDrop {
		return pipeline.Edit{Kind: pipeline.Drop}
	}
	v := leaf.Value
	switch v.Kind {
	case pipeline.KindString, pipeline.KindEnum, pipeline.KindBytes:
		if len(v.Bytes) == 0 || a == actMask && string(v.Bytes) == hiddenText {
			return pipeline.Edit{}
		}
		if v.Kind == pipeline.KindBytes {
			e.out = e.out[:0]
			for range v.Bytes {
				e.out = append(e.out, '*')
			}
			return pipeline.Edit{Kind: pipeline.Replace, Text: e.out}
		}
		e.out = e.appendHit(e.out[:0], v.Bytes, &h)
		return pipeline.Edit{Kind: pipeline.Replace, Text: e.out}
	case pipeline.KindNumber, pipeline.KindInt, pipeline.KindFloat, pipeline.KindDecimal, pipeline.KindTimestamp:
		h.literal = true
		e.out = e.appendHit(e.out[:0], e.numberText(v), &h)
		return pipeline.Edit{Kind: pipeline.Replace, Text: e.out}
	}
	return pipeline.Edit{Kind: pipeline.Null}
}

// numberText is the digits of a number, in e's scratch or borrowed from v.
func (e *Editor) numberText(v pipeline.Value) []byte {
	switch v.Kind {
	case pipeline.KindNumber:
		return v.Bytes
	case pipeline.KindInt, pipeline.KindTimestamp:
		return strconv.AppendInt(e.num[:0], v.Int, 10)
	case pipeline.KindFloat:
		if v.Float < 1e11 || v.Float >= 1e19 { // no card number
			return e.num[:0]
		}
		return strconv.AppendFloat(e.num[:0], v.Float, 'f', -1, 64)
	case pipeline.KindDecimal:
		return decimalText(e.num[:0], v.Bytes, v.Int)
	}
	return nil
}

// decimalText is the whole number of a decimal that may be a card: at most nine bytes, nothing behind the point.
func decimalText(dst, b []byte, scale int64) []byte {
	for len(b) > 8 && b[0] == 0 {
		b = b[1:]
	}
	if len(b) == 0 || len(b) > 8 || b[0] >= 0x80 && len(b) < 8 {
		return dst
	}
	var n uint64
	for _, c := range b {
		n = n<<8 | uint64(c)
	}
	for ; scale > 0; scale-- {
		if n%10 != 0 {
			return dst
		}
		n /= 10
	}
	return strconv.AppendUint(dst, n, 10)
}
