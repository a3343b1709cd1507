package pipeline

import (
	"strconv"
	"strings"
)

// Path is a compiled JSON pointer (RFC 6901) into a record: "/customer/email", "/lines/0/amount". Compile once, compare by
// address: a codec may keep what it found for a *Path.
type Path struct {
	Segs []string
	Text string
}

// NewPath compiles a pointer. An empty text is the whole record; anything else must start with "/".
func NewPath(text string) (*Path, error) {
	if text == "" {
		return &Path{}, nil
	}
	if text[0] != '/' {
		return nil, Errorf(CodePathInvalid, text, "a path starts with '/'")
	}
	segs := strings.Split(text[1:], "/")
	for i, s := range segs {
		segs[i] = strings.ReplaceAll(strings.ReplaceAll(s, "~1", "/"), "~0", "~")
	}
	return &Path{Segs: segs, Text: text}, nil
}

// Child is the path one member deeper.
func (p *Path) Child(seg string) *Path {
	esc := strings.ReplaceAll(strings.ReplaceAll(seg, "~", "~0"), "/", "~1")
	return &Path{Segs: append(append(make([]string, 0, len(p.Segs)+1), p.Segs...), seg), Text: p.Text + "/" + esc}
}

// String is the pointer.
func (p *Path) String() string { return p.Text }

// ValueKind is the type of a Value.
type ValueKind uint8

// The kinds. Number is a JSON number whose exact text stands in Bytes; Enum has its symbol in Bytes.
const (
	KindNull ValueKind = iota
	KindBool
	KindInt
	KindFloat
	KindString
	KindBytes
	KindNumber
	KindEnum
	KindDecimal   // unscaled two's complement in Bytes, scale in Int
	KindTimestamp // Int in units of Scale per second
	KindArray
	KindMap
	KindRecord
)

// Value is one field of a decoded record. Bytes are borrowed from it.
type Value struct {
	Kind  ValueKind
	Int   int64 // Bool 0 or 1, Int, Timestamp, the scale of a Decimal, the length of an Array or Map
	Float float64
	Bytes []byte // String, Bytes, Number, Enum, Decimal
	Scale int64  // of a Timestamp: units per second
}

// AppendText appends the value as text: a string as it is, numbers exactly, null and composites as nothing.
func (v Value) AppendText(dst []byte) []byte {
	switch v.Kind {
	case KindBool:
		return strconv.AppendBool(dst, v.Int != 0)
	case KindInt, KindTimestamp:
		return strconv.AppendInt(dst, v.Int, 10)
	case KindFloat:
		return strconv.AppendFloat(dst, v.Float, 'g', -1, 64)
	case KindString, KindBytes, KindNumber, KindEnum:
		return append(dst, v.Bytes...)
	}
	return dst
}

// SchemaRef names the writer schema of a record.
type SchemaRef struct {
	Format string // avro, json, jsonschema, protobuf, raw
	ID     int32  // 0 is none
	GUID   string
}

// String is "avro:7", "guid:...", or the bare format.
func (s SchemaRef) String() string {
	switch {
	case s.GUID != "":
		return "guid:" + s.GUID
	case s.ID != 0:
		return s.Format + ":" + strconv.Itoa(int(s.ID))
	}
	return s.Format
}

// View is a decoded record, read by path without copying. codec implements it; expr and redact read it. It borrows from
// the batch and belongs to one goroutine.
type View interface {
	// Get finds a value. False: no such member, or null on the way.
	Get(*Path) (Value, bool)
	// Keys are the member names of the record or map at p, in document order.
	Keys(*Path) []string
	// AppendJSON appends the whole record as JSON: exact numbers, strings byte for byte.
	AppendJSON(dst []byte) ([]byte, error)
	// Schema is the writer schema.
	Schema() SchemaRef
	// Edit appends the record's value bytes (framing included) with the leaves that e replaces. Nothing replaced: dst as it
	// was and changed false. Everything not replaced stays byte for byte.
	Edit(dst []byte, e Editor) (out []byte, changed bool, err error)
	// Rebind makes the view read other bytes of the same schema: what Edit wrote.
	Rebind(value []byte) error
}

// Rule is an Editor's own number for a kind of leaf; 0 is never visited.
type Rule uint16

// Leaf is one scalar of a record.
type Leaf struct {
	Path  string // JSON pointer, array items as their index; only valid during the call
	Name  string // the nearest member name, "" at the top
	Value Value
}

// EditKind is what happens to a leaf.
type EditKind uint8

// Keep leaves it; Replace writes Edit.Text (a string, or the text of a number where the schema has a number: what does not
// fit becomes 0); Null writes null where the schema allows it, else an empty value; Drop removes the JSON member, and is Null
// elsewhere.
const (
	Keep EditKind = iota
	Replace
	Null
	Drop
)

// Edit is the answer of an Editor for one leaf. Text may be the editor's own scratch: it is copied at once.
type Edit struct {
	Kind EditKind
	Text []byte
}

// Editor decides which leaves are rewritten. Plan is pure and may be kept by the codec for each place of a schema; Edit is
// called for each leaf whose rule is not 0.
type Editor interface {
	Plan(path, name string, kind ValueKind, tags []string) Rule
	Edit(rule Rule, leaf Leaf) Edit
}

// Indifferent is an Editor that says of most leaves that it keeps them, without looking closely. A codec then need not ask
// about them, and may look for the others while it validates a record. All methods are pure, like Plan.
type Indifferent interface {
	// Least is for a rule: strings and texts of numbers shorter than it, and integers and floats nearer to zero, are kept
	// whatever they are.
	Least(rule Rule, kind ValueKind) int64
	// Dull are the signs, marked with 1, all of them ASCII, that mean nothing: a text of fewer bytes and nothing else is kept, under
	// each rule whose Least is more than 0.
	Dull() (signs *[256]uint8, fewer int)
	// Keeps tells of any string that it is certainly kept, under each rule whose Least is more than 0; false says nothing.
	// ascii tells that no byte of it is 0x80 or more.
	Keeps(text []byte) (kept, ascii bool)
	// Sift looks at all bytes of src at once, whatever they are: Keeps is true of every text in it that is Plain to into, with fewer
	// digits than Dull says. False: src is too long, or this machine has no quick way, and into means nothing.
	Sift(src []byte, into *Sieve) bool
}
