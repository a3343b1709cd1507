package expr

import (
	"strconv"

	"reprieve.dev/pipeline"
)

// tree is a record for tests: an ordered map of names.
type tree struct {
	names []string
	kids  map[string]any // tree, []any, pipeline.Value
}

func rec(pairs ...any) *tree {
	t := &tree{kids: map[string]any{}}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		t.names = append(t.names, name)
		t.kids[name] = pairs[i+1]
	}
	return t
}

func str(s string) pipeline.Value {
	return pipeline.Value{Kind: pipeline.KindString, Bytes: []byte(s)}
}
func num(s string) pipeline.Value {
	return pipeline.Value{Kind: pipeline.KindNumber, Bytes: []byte(s)}
}
func integral(n int64) pipeline.Value { return pipeline.Value{Kind: pipeline.KindInt, Int: n} }
func float(f float64) pipeline.Value  { return pipeline.Value{Kind: pipeline.KindFloat, Float: f} }
func null() pipeline.Value            { return pipeline.Value{} }
func raw(b []byte) pipeline.Value     { return pipeline.Value{Kind: pipeline.KindBytes, Bytes: b} }
func millis(ms int64) pipeline.Value {
	return pipeline.Value{Kind: pipeline.KindTimestamp, Int: ms, Scale: 1000}
}
func enum(s string) pipeline.Value { return pipeline.Value{Kind: pipeline.KindEnum, Bytes: []byte(s)} }
func dec(b []byte, scale int64) pipeline.Value {
	return pipeline.Value{Kind: pipeline.KindDecimal, Bytes: b, Int: scale}
}
func boolVal(b bool) pipeline.Value {
	if b {
		return pipeline.Value{Kind: pipeline.KindBool, Int: 1}
	}
	return pipeline.Value{Kind: pipeline.KindBool}
}

// treeView reads a tree by path, as a codec does.
type treeView struct{ top any }

func (v treeView) find(p *pipeline.Path) (any, bool) {
	at := v.top
	for _, s := range p.Segs {
		switch x := at.(type) {
		case *tree:
			k, ok := x.kids[s]
			if !ok {
				return nil, false
			}
			at = k
		case []any:
			i, err := strconv.Atoi(s)
			if err != nil || i < 0 || i >= len(x) || strconv.Itoa(i) != s {
				return nil, false
			}
			at = x[i]
		default:
			return nil, false
		}
	}
	return at, true
}

func (v treeView) Get(p *pipeline.Path) (pipeline.Value, bool) {
	at, ok := v.find(p)
	if !ok {
		return pipeline.Value{}, false
	}
	switch x := at.(type) {
	case *tree:
		return pipeline.Value{Kind: pipeline.KindRecord, Int: int64(len(x.names))}, true
	case []any:
		return pipeline.Value{Kind: pipeline.KindArray, Int: int64(len(x))}, true
	}
	return at.(pipeline.Value), true
}

func (v treeView) Keys(p *pipeline.Path) []string {
	at, _ := v.find(p)
	if t, ok := at.(*tree); ok {
		return t.names
	}
	return nil
}

func (v treeView) AppendJSON(dst []byte) ([]byte, error) { return dst, nil }
func (v treeView) Schema() pipeline.SchemaRef            { return pipeline.SchemaRef{Format: "json"} }
func (v treeView) Edit(dst []byte, _ pipeline.Editor) ([]byte, bool, error) {
	return dst, false, nil
}
func (v treeView) Rebind([]byte) error { return nil }

// batchOf makes a batch of one record with the view.
func batchOf(top any) *pipeline.Batch {
	b := &pipeline.Batch{TP: pipeline.TP{Topic: "billing.invoices.v1", Partition: 3}}
	b.Recs = []pipeline.Record{{
		Offset: 42, TimeMS: 1_790_000_000_123, TimeType: pipeline.TimeCreate, Key: []byte("acct-7"),
		Headers: []pipeline.Header{
			{Name: "region", Value: []byte("us")}, {Name: "empty", Value: []byte{}}, {Name: "null"},
			{Name: "region", Value: []byte("eu")}, {Name: "content-type", Value: []byte("application/json")},
		},
	}}
	b.Begin(nil)
	if top != nil {
		b.Views[0] = treeView{top}
	}
	return b
}
