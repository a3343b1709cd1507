package codec

import (
	"fmt"
	"math/big"
	"strconv"

	"github.com/hamba/avro/v2"
)

// op is what an Avro type looks like on the wire.
type op uint8

const (
	opNull op = iota
	opBool
	opInt
	opLong
	opFloat
	opDouble
	opBytes
	opString
	opFixed
	opEnum
	opDecimal      // bytes with a decimal inside
	opDecimalFixed // fixed with a decimal inside
	opOptional     // union of null and one other type
	opUnion
	opArray
	opMap
	opRecord
)

var opNames = [...]string{"null", "boolean", "int", "long", "float", "double", "bytes", "string", "fixed", "enum", "decimal", "decimal",
	"union", "union", "array", "map", "record"}

type logical uint8

const (
	logicalNone logical = iota
	logicalUUID
	logicalDate
	logicalTimeMillis
	logicalTimeMicros
	logicalTimestamp      // Scale units per second
	logicalLocalTimestamp // the same without a zone
	logicalDuration
)

// typ is one Avro type, compiled. It is immutable after compile. Named types are shared (they may be recursive), all others
// belong to one place.
type typ struct {
	op      op
	logical logical
	name    string // full name of a named type
	place   string // schema place where it was first met: "/lines/*/amount"
	size    int    // of a fixed
	min     int64  // fewest bytes of a value; saturates at unending
	cost    int64  // JSON text beside the value's own bytes, as far as it is known from the schema
	code    []ins  // what validates one value
	slots   []slot // of a record: where its fields stand in code
	nest    int    // of a record: how many records deep its own code goes

	fields   []field
	names    []string // of the fields
	index    map[string]int
	item     *typ // array items, map values, the other branch of opOptional
	null     int  // branch number of null in opOptional; -1 is none in opUnion
	branches []*typ
	symbols  []string
	enumDef  int // reader side: symbol to use for unknown ones; -1 is none
	aliases  []string
	tags     []string

	precision int
	scale     int // of a decimal
	units     int64
	limit     *big.Int // 10^precision
}

type field struct {
	name    string
	t       *typ
	aliases []string
	tags    []string
	def     *string // default as JSON text
}

// unending is the size of a type that has no finite value.
const unending = int64(1) << 40

// maxPrecision is where a decimal is read as plain bytes: nobody's number has so many digits.
const maxPrecision = 4096

func addSat(a, b int64) int64 { return min(a+b, unending) }

type avroCompiler struct {
	named    map[string]*typ
	all      []*typ
	defaults map[string]map[string]string
	warnings []string
}

// compileAvro turns a parsed schema into types with code. text is the schema's source: the library reads numbers through
// float64, defaults must not be.
func compileAvro(s avro.Schema, texts ...string) (t *typ, warnings []string, err error) {
	defer func() {
		if p := recover(); p != nil { // a schema is outside data and the library is not ours
			err = fmt.Errorf("schema cannot be compiled: %v", p)
		}
	}()
	c := &avroCompiler{named: map[string]*typ{}, defaults: map[string]map[string]string{}}
	for _, text := range texts {
		collectDefaults(text, c.defaults)
	}
	t, err = c.build(s, "", 0)
	if err != nil {
		return nil, nil, err
	}
	if err := c.sizes(); err != nil {
		return nil, nil, err
	}
	for _, x := range c.all {
		x.flatten()
	}
	return t, c.warnings, nil
}

func (c *avroCompiler) add(t *typ) *typ {
	c.all = append(c.all, t)
	return t
}

func (c *avroCompiler) build(s avro.Schema, place string, depth int) (*typ, error) {
	if depth > maxSchemaDepth || len(c.all) > 100_000 {
		return nil, fmt.Errorf("schema is too large")
	}
	if r, ok := s.(*avro.RefSchema); ok {
		s = r.Schema()
	}
	if n, ok := s.(avro.NamedSchema); ok {
		if t := c.named[n.FullName()]; t != nil {
			return t, nil
		}
	}
	t := &typ{place: place, null: -1, enumDef: -1}
	if p, ok := s.(avro.PropertySchema); ok {
		t.tags = schemaTags(p)
	}
	switch x := s.(type) {
	case *avro.NullSchema:
		t.op = opNull
	case *avro.PrimitiveSchema:
		c.primitive(t, x)
	case *avro.FixedSchema:
		t.op, t.size, t.name, t.aliases = opFixed, x.Size(), x.FullName(), x.Aliases()
		c.named[t.name] = t
		if t.size < 0 {
			return nil, fmt.Errorf("fixed %s has a negative size", t.name)
		}
		switch l := x.Logical().(type) {
		case *avro.DecimalLogicalSchema:
			if t.decimal(l) {
				t.op = opDecimalFixed
			}
		case *avro.PrimitiveLogicalSchema:
			if l.Type() == avro.Duration {
				t.logical = logicalDuration
			}
		case nil:
			if x.Prop("logicalType") == "uuid" && t.size == 16 {
				t.logical = logicalUUID
			}
		}
	case *avro.EnumSchema:
		t.op, t.symbols, t.name, t.aliases = opEnum, x.Symbols(), x.FullName(), x.Aliases()
		c.named[t.name] = t
		if x.HasDefault() {
			for i, sym := range t.symbols {
				if sym == x.Default() {
					t.enumDef = i
				}
			}
		}
	case *avro.ArraySchema:
		t.op = opArray
		return c.container(t, x.Items(), place, depth)
	case *avro.MapSchema:
		t.op = opMap
		return c.container(t, x.Values(), place, depth)
	case *avro.UnionSchema:
		return c.union(t, x, place, depth)
	case *avro.RecordSchema:
		return c.record(t, x, place, depth)
	default:
		return nil, fmt.Errorf("unknown kind of schema %T", s)
	}
	if p, ok := s.(avro.PropertySchema); ok && t.logical == logicalNone && t.limit == nil {
		if lt, _ := p.Prop("logicalType").(string); lt != "" && len(c.warnings) < 100 {
			c.warnings = append(c.warnings, fmt.Sprintf("%s: logical type %q is not one for this %s and is ignored", place, lt, opNames[t.op]))
		}
	}
	return c.add(t), nil
}

func (c *avroCompiler) container(t *typ, s avro.Schema, place string, depth int) (*typ, error) {
	var err error
	t.item, err = c.build(s, place+"/*", depth+1)
	return c.add(t), err
}

func (c *avroCompiler) union(t *typ, x *avro.UnionSchema, place string, depth int) (*typ, error) {
	t.op = opUnion
	for i, s := range x.Types() {
		b, err := c.build(s, place, depth+1)
		if err != nil {
			return nil, err
		}
		if b.op == opNull {
			t.null = i
		}
		t.branches = append(t.branches, b)
	}
	if len(t.branches) == 2 && t.null >= 0 {
		t.op, t.item = opOptional, t.branches[1-t.null]
	}
	return c.add(t), nil
}

func (c *avroCompiler) record(t *typ, x *avro.RecordSchema, place string, depth int) (*typ, error) {
	t.op, t.name, t.aliases = opRecord, x.FullName(), x.Aliases()
	c.named[t.name] = t
	c.add(t)
	t.index = make(map[string]int, len(x.Fields()))
	for i, f := range x.Fields() {
		ft, err := c.build(f.Type(), place+"/"+f.Name(), depth+1)
		if err != nil {
			return nil, err
		}
		g := field{name: f.Name(), t: ft, aliases: f.Aliases(), tags: append(schemaTags(f), ft.tags...)}
		if f.HasDefault() {
			text, ok := c.defaults[t.name][g.name]
			if !ok {
				return nil, fmt.Errorf("default of %s.%s is not found", t.name, g.name)
			}
			g.def = &text
		}
		t.fields = append(t.fields, g)
		t.names = append(t.names, g.name)
		t.index[g.name] = i
	}
	return t, nil
}

func (c *avroCompiler) primitive(t *typ, x *avro.PrimitiveSchema) {
	switch x.Type() {
	case avro.Boolean:
		t.op = opBool
	case avro.Int:
		t.op = opInt
	case avro.Long:
		t.op = opLong
	case avro.Float:
		t.op = opFloat
	case avro.Double:
		t.op = opDouble
	case avro.Bytes:
		t.op = opBytes
	default:
		t.op = opString
	}
	lt := ""
	switch l := x.Logical().(type) {
	case *avro.DecimalLogicalSchema:
		if t.decimal(l) {
			t.op = opDecimal
		}
		return
	case *avro.PrimitiveLogicalSchema:
		lt = string(l.Type())
	default:
		lt, _ = x.Prop("logicalType").(string) // newer than the library, or not for this type
	}
	// A logical type that does not fit is ignored: the underlying type counts (specification, logical types).
	switch {
	case t.op == opString && lt == "uuid":
		t.logical = logicalUUID
	case t.op == opInt && lt == "date":
		t.logical, t.units = logicalDate, 1
	case t.op == opInt && lt == "time-millis":
		t.logical, t.units = logicalTimeMillis, 1e3
	case t.op == opLong && lt == "time-micros":
		t.logical, t.units = logicalTimeMicros, 1e6
	case t.op == opLong && lt == "timestamp-millis":
		t.logical, t.units = logicalTimestamp, 1e3
	case t.op == opLong && lt == "timestamp-micros":
		t.logical, t.units = logicalTimestamp, 1e6
	case t.op == opLong && lt == "timestamp-nanos":
		t.logical, t.units = logicalTimestamp, 1e9
	case t.op == opLong && lt == "local-timestamp-millis":
		t.logical, t.units = logicalLocalTimestamp, 1e3
	case t.op == opLong && lt == "local-timestamp-micros":
		t.logical, t.units = logicalLocalTimestamp, 1e6
	case t.op == opLong && lt == "local-timestamp-nanos":
		t.logical, t.units = logicalLocalTimestamp, 1e9
	}
}

func (t *typ) decimal(l *avro.DecimalLogicalSchema) bool {
	if l.Precision() > maxPrecision {
		return false
	}
	t.precision, t.scale = l.Precision(), l.Scale()
	t.limit = new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.precision)), nil)
	return true
}

func schemaTags(p avro.PropertySchema) (tags []string) {
	for _, name := range [...]string{"confluent:tags", "tags"} {
		switch v := p.Prop(name).(type) {
		case []any:
			for _, x := range v {
				if s, ok := x.(string); ok {
					tags = append(tags, s)
				}
			}
		case string:
			tags = append(tags, v)
		}
	}
	return tags
}

// sizes finds the fewest bytes of each type: the least fixed point, so that a record which only contains itself stays
// unending and is refused when it is loaded.
func (c *avroCompiler) sizes() error {
	for _, t := range c.all {
		t.min = unending
	}
	for changed := true; changed; {
		changed = false
		for _, t := range c.all {
			if m := t.least(); m < t.min {
				t.min, changed = m, true
			}
		}
	}
	for _, t := range c.all {
		if t.min >= unending {
			return fmt.Errorf("type %s has no finite value", strconv.Quote(t.name))
		}
	}
	return nil
}

func (t *typ) least() int64 {
	switch t.op {
	case opNull:
		return 0
	case opFloat:
		return 4
	case opDouble:
		return 8
	case opFixed, opDecimalFixed:
		return int64(t.size)
	case opOptional, opUnion:
		m := unending
		for _, b := range t.branches {
			m = min(m, b.min)
		}
		return addSat(m, 1)
	case opRecord:
		var m int64
		for i := range t.fields {
			m = addSat(m, t.fields[i].t.min)
		}
		return m
	}
	return 1
}
