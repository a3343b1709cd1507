package deadletter

import (
	"strconv"
	"strings"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// writer appends headers of ours; their values share one buffer.
type writer struct {
	hs  []pipeline.Header
	buf []byte
}

// raw closes the value that was appended to buf since start.
func (w *writer) raw(name string, start int) {
	w.hs = append(w.hs, pipeline.Header{Name: name, Value: w.buf[start:len(w.buf):len(w.buf)]})
}

// text writes a header unless v is empty: absent is unknown.
func (w *writer) text(name, v string) {
	if v != "" {
		w.always(name, v)
	}
}

func (w *writer) always(name, v string) {
	start := len(w.buf)
	w.buf = append(w.buf, cleanText(v)...)
	w.raw(name, start)
}

func (w *writer) number(name string, v int64) {
	start := len(w.buf)
	w.buf = strconv.AppendInt(w.buf, v, 10)
	w.raw(name, start)
}

// position writes a whole position; one that is known in part is not one that can be read back.
func (w *writer) position(name string, p pipeline.Position) {
	if p.Topic == "" || p.Partition < 0 || p.Offset < 0 || strings.IndexByte(p.Topic, '/') >= 0 {
		return
	}
	start := len(w.buf)
	w.buf = appendPosition(w.buf, p)
	w.raw(name, start)
}

func (w *writer) time(name string, ms int64) {
	start := len(w.buf)
	w.buf = appendTime(w.buf, ms)
	w.raw(name, start)
}

// MaxIdentity is the longest identity text, in bytes, that a header carries. A longer one is nobody's id but somebody's way to
// make letters that no topic takes: its digest stands for it. It is never cut (INV-IDENTITY); the quarantine id is made
// from all of it.
const MaxIdentity = 1024

// identity writes who the record says it is.
func (w *writer) identity(id *pipeline.Identity) {
	for _, f := range [...]struct{ name, text string }{{headerEventID, id.EventID}, {headerTenant, id.Tenant}, {headerEntity, id.Entity},
		{headerVersion, id.Version}, {headerBusinessID, id.BusinessID}, {headerToken, id.Token}, {headerConsumer, id.Consumer}, {headerRelease, id.Release}} {
		if len(f.text) > MaxIdentity {
			f.text = seal.SHA256([]byte(f.text))
		}
		w.text(f.name, f.text)
	}
}

// attempts writes the last MaxAttempts as JSON: [{"n":1,"at":"...","code":"..."}].
func (w *writer) attempts(as []pipeline.Attempt) {
	if len(as) == 0 {
		return
	}
	if n := len(as); n > MaxAttempts {
		as = as[n-MaxAttempts:]
	}
	start := len(w.buf)
	b := append(w.buf, '[')
	for i, a := range as {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, `{"n":`...)
		b = strconv.AppendInt(b, int64(a.N), 10)
		b = append(b, `,"at":"`...)
		b = appendTime(b, a.At.UnixMilli())
		b = append(b, `","code":"`...)
		b = appendCode(b, a.Code)
		b = append(b, `"}`...)
	}
	w.buf = append(b, ']')
	w.raw(headerAttempts, start)
}

// original writes the time that the record first had, and whose clock it was. Without a time there is no header: never 1970.
func (w *writer) original(ms int64, t pipeline.TimeType) {
	if t == pipeline.TimeNone {
		return
	}
	w.time(headerTime, ms)
	w.text(headerTimeType, t.String())
}

// appendCode appends what a code may consist of; anything else becomes '_', so that it always fits into JSON text.
func appendCode(b []byte, c pipeline.Code) []byte {
	for i := 0; i < len(c); i++ {
		switch ch := c[i]; {
		case ch >= 'A' && ch <= 'Z', ch >= '0' && ch <= '9', ch == '_', ch >= 'a' && ch <= 'z', ch == '.', ch == '-':
			b = append(b, ch)
		default:
			b = append(b, '_')
		}
	}
	return b
}

func appendPosition(b []byte, p pipeline.Position) []byte {
	b = append(append(b, p.Topic...), '/')
	b = append(strconv.AppendInt(b, int64(p.Partition), 10), '/')
	return strconv.AppendInt(b, p.Offset, 10)
}

// The first and the last instant that RFC 3339 can write, in Unix ms.
const (
	firstMS = -62135596800000 // 0001-01-01T00:00:00.000Z
	lastMS  = 253402300799999 // 9999-12-31T23:59:59.999Z
)

// appendTime writes Unix ms as RFC 3339, UTC, three decimals, "Z". What a producer wrote outside its years stays exact as a
// decimal number of ms.
func appendTime(b []byte, ms int64) []byte {
	if ms < firstMS || ms > lastMS {
		return strconv.AppendInt(b, ms, 10)
	}
	return time.UnixMilli(ms).UTC().AppendFormat(b, timeLayout)
}

const timeLayout = "2006-01-02T15:04:05.000Z"
