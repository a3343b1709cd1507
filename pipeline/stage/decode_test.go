package stage_test

import (
	"encoding/binary"
	"strings"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/pipeline/stage"
)

const (
	orderSchema  = `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}`
	readerSchema = `{"type":"record","name":"Order","fields":[{"name":"order_id","aliases":["id"],"type":"string"},{"name":"amount","type":"long"},{"name":"currency","type":"string","default":"EUR"}]}`
	keySchema    = `{"type":"record","name":"K","fields":[{"name":"account","type":"string"},{"name":"line","type":"int"}]}`
)

// decoding builds a decode stage over files, without a registry.
func decoding(t *testing.T, set *stage.DecodeSettings) (pipeline.Stage, *pipeline.Pool) {
	t.Helper()
	files := map[string]string{"order.avsc": orderSchema, "reader.avsc": readerSchema, "key.avsc": keySchema}
	layout := &pipeline.Layout{}
	for _, k := range stage.Kinds() {
		if k.Name != "decode" {
			continue
		}
		s, _, err := k.Build(set, pipeline.Env{Name: "decode", Layout: layout, Resource: func(kind, name string) (any, error) {
			if text, ok := files[name]; ok && kind == stage.ResourceFile {
				return []byte(text), nil
			}
			return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "there is no %s", kind)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return s, pipeline.NewPool(layout)
	}
	t.Fatal("no kind decode")
	return nil, nil
}

func avroText(b []byte, s string) []byte {
	return append(binary.AppendVarint(b, int64(len(s))), s...)
}

func order(id string, amount int64) []byte { return binary.AppendVarint(avroText(nil, id), amount) }

func account(name string, line int64) []byte {
	return binary.AppendVarint(avroText(nil, name), line)
}

func holds(t *testing.T, src string, b *pipeline.Batch, i int) bool {
	t.Helper()
	c, err := expr.Condition(src)
	if err != nil {
		t.Fatal(err)
	}
	ok, err := c.Eval(b, i)
	if err != nil {
		t.Errorf("%s: %v", src, err)
	}
	return ok
}

func TestKeysAreDecodedWhenAskedFor(t *testing.T) {
	s, pool := decoding(t, &stage.DecodeSettings{Format: "avro", Framing: codec.FramingNone, Schema: "order.avsc", Limits: limits(),
		Key: &stage.DecodeKey{Format: "avro", Framing: codec.FramingNone, Schema: "key.avsc"}})
	for round := range 2 { // the second batch is the first one again
		b := pool.Get()
		b.TP.Topic = "orders"
		b.Recs = append(b.Recs, pipeline.Record{Key: account("A-1", 7), Value: order("o1", 5)}, pipeline.Record{Value: order("o2", 6)},
			pipeline.Record{Key: account("A-3", 1)[:2], Value: order("o3", 7)}, pipeline.Record{Key: account("A-4", 2)}, pipeline.Record{Key: []byte{}, Value: order("o5", 1)})
		b.Begin(nil)
		if err := s.Process(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		if !holds(t, `key.account == "A-1" && key.line == 7 && view.id == "o1"`, b, 0) || !holds(t, `has(key.account) && !has(key.none)`, b, 0) {
			t.Error("the fields of a key cannot be read")
		}
		if !holds(t, `key == null`, b, 1) || !holds(t, `key.account.startsWith("A-")`, b, 3) {
			t.Error("a null key, or the key of a delete marker")
		}
		for i, want := range map[int]pipeline.Code{2: pipeline.CodeDecodeTruncated, 4: pipeline.CodeDecodeEmpty} {
			f := b.Failure(i)
			if f == nil || f.Code != want || f.Stage != "decode" || !strings.Contains(f.Reason(), "part=key") {
				t.Errorf("round %d: record %d: %+v", round, i, f)
			}
		}
		v, err := expr.ValueOf("key.account")
		if err != nil {
			t.Fatal(err)
		}
		if text, ok, err := v.Append(nil, b, 0); string(text) != "A-1" || !ok || err != nil {
			t.Errorf("as a header: %q %v %v", text, ok, err)
		}
		b.Release()
	}
	plain, pool := decoding(t, &stage.DecodeSettings{Format: "avro", Framing: codec.FramingNone, Schema: "order.avsc", Limits: limits()})
	b := pool.Get()
	b.Recs = append(b.Recs, pipeline.Record{Key: []byte("A-1"), Value: order("o1", 5)})
	b.Begin(nil)
	if err := plain.Process(t.Context(), b); err != nil || !holds(t, `key == "A-1"`, b, 0) {
		t.Errorf("a key that nobody asked for is its bytes: %v", err)
	}
}

func TestAKeyOfOneValueIsThatValue(t *testing.T) {
	s, pool := decoding(t, &stage.DecodeSettings{Format: "json", Limits: limits(), Key: &stage.DecodeKey{Format: "json"}})
	b := pool.Get()
	b.Recs = append(b.Recs, pipeline.Record{Key: []byte(`"A-1"`), Value: []byte(`{}`)}, pipeline.Record{Key: []byte(`17`), Value: []byte(`{}`)},
		pipeline.Record{Key: []byte(`{"a":1,"a":2}`), Value: []byte(`{}`)})
	b.Begin(nil)
	if err := s.Process(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if !holds(t, `key == "A-1"`, b, 0) || !holds(t, `key == 17 && key > 16`, b, 1) {
		t.Error("the value of a key")
	}
	if f := b.Failure(2); f == nil || f.Code != pipeline.CodeDecodeDuplicate {
		t.Errorf("a key with a member twice: %+v", f)
	}
	for i, want := range []string{"A-1", "17"} {
		v, err := expr.ValueOf("key")
		if err != nil {
			t.Fatal(err)
		}
		if text, ok, err := v.Append(nil, b, i); string(text) != want || !ok || err != nil {
			t.Errorf("as a header: %q %v %v", text, ok, err)
		}
	}
}

func TestAReaderSchemaFromAFileReshapesTheView(t *testing.T) {
	s, pool := decoding(t, &stage.DecodeSettings{Format: "avro", Framing: codec.FramingNone, Schema: "order.avsc", Reader: "reader.avsc", Limits: limits()})
	b := pool.Get()
	b.Recs = append(b.Recs, pipeline.Record{Value: order("o1", 5)})
	b.Begin(nil)
	if err := s.Process(t.Context(), b); err != nil || b.Failure(0) != nil {
		t.Fatal(err, b.Failure(0))
	}
	if !holds(t, `view.order_id == "o1" && view.amount == 5 && view.currency == "EUR"`, b, 0) {
		t.Error("alias, promotion or default")
	}
}

func TestASingleObjectIsReadByASchemaFile(t *testing.T) {
	s, pool := decoding(t, &stage.DecodeSettings{Format: "avro", Framing: codec.FramingSingle, Schema: "order.avsc", Limits: limits()})
	schema, f := codec.ParseSchema(pipeline.SchemaRef{Format: codec.FormatAvro}, orderSchema)
	if f != nil {
		t.Fatal(f.Cause)
	}
	frame := binary.LittleEndian.AppendUint64([]byte{0xc3, 1}, schema.Fingerprint())
	b := pool.Get()
	b.Recs = append(b.Recs, pipeline.Record{Value: append(frame, order("o1", 5)...)}, pipeline.Record{Value: append([]byte{0xc3, 1, 1, 2, 3, 4, 5, 6, 7, 8}, order("o1", 5)...)})
	b.Begin(nil)
	if err := s.Process(t.Context(), b); err != nil || !holds(t, `view.id == "o1"`, b, 0) {
		t.Error(err)
	}
	if f := b.Failure(1); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Errorf("another fingerprint: %+v", f)
	}
}

func limits() stage.DecodeLimits {
	return stage.DecodeLimits{Bytes: 1 << 20, Depth: 100, Items: 1_000_000, Expansion: 8 << 20}
}

func TestDecodeSettingsThatDoNotFitTogetherAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"{format: avro}":                                                "registry: avro needs a schema registry",
		"{format: json}":                                                "",
		"{format: avro, framing: none}":                                 "schema: framing none needs the writer's schema",
		"{format: avro, framing: none, schema: a.avsc}":                 "",
		"{format: avro, framing: single_object, schema: a.avsc}":        "",
		"{format: avro, registry: main, schema: a.avsc}":                "schema: a schema file is for values that do not name",
		"{format: json, schema: a.avsc}":                                "schema: json has no schema",
		"{format: json, reader: a.avsc}":                                "reader: only avro has reader schemas",
		"{format: avro, registry: main, message: a.B}":                  "message: message is for protobuf",
		"{format: protobuf, framing: none, schema: a.proto}":            "",
		"{format: json, key: {format: avro}}":                           "key.registry: avro needs a schema registry",
		"{format: json, key: {format: raw}}":                            "key.format",
		"{format: json, key: {format: avro, framing: none, schema: k}}": "",
	} {
		doc, ps := config.Parse("p.yaml", []byte(text), config.Options{})
		if len(ps) > 0 {
			t.Fatal(ps)
		}
		var set stage.DecodeSettings
		got := doc.Decode(&set)
		if want == "" && len(got) > 0 || want != "" && (len(got) != 1 || !strings.Contains(got[0].String(), want)) {
			t.Errorf("%s: %v, want %q", text, got, want)
		}
	}
}
