package worker

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// SuiteRecord is a record of a test: the record form, with what a person would rather write.
type SuiteRecord struct {
	From      string                 `yaml:"from" doc:"Name of a record of the suite that this one is a copy of."`
	Topic     string                 `yaml:"topic" doc:"Topic; the pipeline's first source topic if not said."`
	Partition int32                  `yaml:"partition" doc:"Partition."`
	Offset    string                 `yaml:"offset" doc:"Offset; counted from 0 if not said."`
	Timestamp string                 `yaml:"timestamp" doc:"RFC 3339; now if not said."`
	Key       *SuiteBytes            `yaml:"key" doc:"Key."`
	Value     *SuiteBytes            `yaml:"value" doc:"Value; null is a delete marker."`
	Headers   []config.Node          `yaml:"headers" doc:"[name, bytes] each."`
	Set       map[string]config.Node `yaml:"set" doc:"JSON pointer into the copied value to what stands there instead."`
	Remove    []string               `yaml:"remove" doc:"JSON pointers into the copied value that are taken out."`
	Cut       int                    `yaml:"cut" doc:"Bytes taken from the end of the encoded value."`
	Append    string                 `yaml:"append" doc:"Bytes put behind the encoded value, in hex."`
}

// SuiteBytes are bytes as a file writes them: null, a text, {text}, {hex}, {base64}, {file}, or {json, avro: ID}: JSON, encoded
// in an Avro schema and framed if avro names one.
type SuiteBytes struct {
	bytes  []byte
	file   string
	json   any
	isJSON bool
	avro   int32
}

type suiteBytesForm struct {
	Text   *string     `yaml:"text" doc:"UTF-8 text."`
	Hex    *string     `yaml:"hex" doc:"Hexadecimal digits."`
	Base64 *string     `yaml:"base64" doc:"Base64."`
	File   *string     `yaml:"file" doc:"File that holds the bytes."`
	JSON   config.Node `yaml:"json" doc:"A JSON value."`
	Avro   int32       `yaml:"avro" doc:"Id of the Avro schema that json is encoded in."`
}

// UnmarshalConfig reads one of the forms.
func (b *SuiteBytes) UnmarshalConfig(n config.Node) config.Problems {
	if text, ok := n.Text(); ok {
		b.bytes = []byte(text)
		return nil
	}
	if n.IsNull() {
		return nil
	}
	var f suiteBytesForm
	ps := n.Decode(&f)
	forms := 0
	var err error
	if f.Text != nil {
		forms, b.bytes = forms+1, append([]byte{}, *f.Text...)
	}
	if f.Hex != nil {
		forms++
		b.bytes, err = hex.DecodeString(strings.ReplaceAll(*f.Hex, " ", ""))
		b.bytes = append([]byte{}, b.bytes...)
	}
	if f.Base64 != nil {
		forms++
		b.bytes, err = base64.StdEncoding.DecodeString(*f.Base64)
		b.bytes = append([]byte{}, b.bytes...)
	}
	if f.File != nil {
		forms, b.file = forms+1, *f.File
	}
	if n.Key("json").Exists() {
		forms++
		b.json, b.isJSON, b.avro = f.JSON.Value(), true, f.Avro
	}
	switch {
	case err != nil:
		ps = append(ps, n.Problem("", config.CodeValue, err.Error(), ""))
	case forms != 1 && len(ps) == 0:
		ps = append(ps, n.Problem("", config.CodeValue, "bytes are exactly one of text, hex, base64, file and json", "write {text: ...}"))
	}
	return ps
}

// maker makes the bytes of a suite's records.
type maker struct {
	suite    *Suite
	topic    string
	now      time.Time
	registry codec.Registry
	read     func(string) ([]byte, error)
}

func (m *maker) bad(format string, args ...any) error {
	return pipeline.Errorf(pipeline.CodeInputInvalid, m.suite.File, format, args...)
}

// records are those of one test, with their topics.
func (m *maker) records(ctx context.Context, t *SuiteTest) (tps []pipeline.TP, recs []pipeline.Record, err error) {
	given := t.Records
	if t.Record != nil {
		given = []SuiteRecord{*t.Record}
	}
	for i := range given {
		tp, r, err := m.record(ctx, given[i], int64(i))
		if err != nil {
			return nil, nil, err
		}
		tps, recs = append(tps, tp), append(recs, r)
	}
	if t.File == "" {
		return tps, recs, nil
	}
	data, err := m.read(m.suite.at(t.File))
	if err != nil {
		return nil, nil, m.bad("%w", err)
	}
	for n, line := range bytes.Split(data, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		tp, r, err := pipeline.ParseForm(line)
		if err != nil {
			return nil, nil, m.bad("%s, line %d: %w", t.File, n+1, err)
		}
		if tp.Topic == "" {
			tp.Topic = m.topic
		}
		if r.TimeType == pipeline.TimeNone {
			r.TimeMS, r.TimeType = m.now.UnixMilli(), pipeline.TimeCreate
		}
		tps, recs = append(tps, tp), append(recs, r)
	}
	if len(recs) == 0 {
		return nil, nil, m.bad("%s has no record", t.File)
	}
	return tps, recs, nil
}

func (m *maker) record(ctx context.Context, s SuiteRecord, offset int64) (pipeline.TP, pipeline.Record, error) {
	fail := func(err error) (pipeline.TP, pipeline.Record, error) { return pipeline.TP{}, pipeline.Record{}, err }
	if s.From != "" {
		base, ok := m.suite.Records[s.From]
		if !ok {
			known := slices.Sorted(maps.Keys(m.suite.Records))
			if len(known) == 0 {
				return fail(m.bad("there is no record %q: the suite has no section records", s.From))
			}
			return fail(m.bad("there is no record %q; records has %s", s.From, strings.Join(known, ", ")))
		}
		if base.From != "" {
			return fail(m.bad("the record %q is a copy itself", s.From))
		}
		s = base.with(s)
	}
	tp := pipeline.TP{Topic: s.Topic, Partition: s.Partition}
	if tp.Topic == "" {
		tp.Topic = m.topic
	}
	r := pipeline.Record{Offset: offset, TimeMS: m.now.UnixMilli(), TimeType: pipeline.TimeCreate}
	var err error
	if s.Offset != "" {
		if r.Offset, err = strconv.ParseInt(s.Offset, 10, 64); err != nil || r.Offset < 0 {
			return fail(m.bad("offset %q is not a whole number of 0 or more", s.Offset))
		}
	}
	if s.Timestamp != "" {
		at, err := time.Parse(time.RFC3339, s.Timestamp)
		if err != nil {
			return fail(m.bad("timestamp %q is not RFC 3339", s.Timestamp))
		}
		r.TimeMS = at.UnixMilli()
	}
	if r.Key, err = m.bytes(ctx, s.Key, nil, nil); err != nil {
		return fail(err)
	}
	if r.Value, err = m.bytes(ctx, s.Value, s.Set, s.Remove); err != nil {
		return fail(err)
	}
	if s.Cut < 0 || s.Cut > len(r.Value) {
		return fail(m.bad("%d bytes cannot be cut from a value of %d", s.Cut, len(r.Value)))
	}
	r.Value = r.Value[:len(r.Value)-s.Cut]
	more, err := hex.DecodeString(strings.ReplaceAll(s.Append, " ", ""))
	if err != nil {
		return fail(m.bad("append %q is not hex", s.Append))
	}
	r.Value = append(r.Value, more...)
	for _, h := range s.Headers {
		pair := h.Items()
		var b SuiteBytes
		if len(pair) != 2 {
			return fail(m.bad("%s is not [name, bytes]", h.Path()))
		}
		name, ok := pair[0].Text()
		if ps := b.UnmarshalConfig(pair[1]); !ok || len(ps) > 0 {
			return fail(m.bad("%s is not [name, bytes]", h.Path()))
		}
		value, err := m.bytes(ctx, &b, nil, nil)
		if err != nil {
			return fail(err)
		}
		r.Headers = append(r.Headers, pipeline.Header{Name: name, Value: value})
	}
	return tp, r, nil
}

// with is a copy of b in which what s says counts.
func (b SuiteRecord) with(s SuiteRecord) SuiteRecord {
	out := b
	for _, f := range []struct {
		to   *string
		from string
	}{{&out.Topic, s.Topic}, {&out.Offset, s.Offset}, {&out.Timestamp, s.Timestamp}, {&out.Append, s.Append}} {
		if f.from != "" {
			*f.to = f.from
		}
	}
	if s.Partition != 0 {
		out.Partition = s.Partition
	}
	if s.Key != nil {
		out.Key = s.Key
	}
	if s.Value != nil {
		out.Value = s.Value
	}
	if s.Headers != nil {
		out.Headers = s.Headers
	}
	if s.Cut != 0 {
		out.Cut = s.Cut
	}
	out.Set, out.Remove = maps.Clone(b.Set), append(slices.Clone(b.Remove), s.Remove...)
	if out.Set == nil {
		out.Set = map[string]config.Node{}
	}
	maps.Copy(out.Set, s.Set)
	return out
}

func (m *maker) bytes(ctx context.Context, b *SuiteBytes, set map[string]config.Node, remove []string) ([]byte, error) {
	switch {
	case b == nil:
		return nil, nil
	case b.file != "":
		data, err := m.read(m.suite.at(b.file))
		if err != nil {
			return nil, m.bad("%w", err)
		}
		return append([]byte{}, data...), nil
	case !b.isJSON:
		if len(set)+len(remove) > 0 {
			return nil, m.bad("set and remove change a value that is written as json")
		}
		return slices.Clone(b.bytes), nil
	}
	doc := cloneJSON(b.json)
	for _, path := range slices.Sorted(maps.Keys(set)) {
		if err := m.change(&doc, path, set[path].Value(), false); err != nil {
			return nil, err
		}
	}
	for _, path := range remove {
		if err := m.change(&doc, path, nil, true); err != nil {
			return nil, err
		}
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(doc); err != nil {
		return nil, m.bad("%w", err)
	}
	value := bytes.TrimSuffix(text.Bytes(), []byte("\n"))
	if b.avro == 0 {
		return value, nil
	}
	schema, f := m.registry.ByID(ctx, b.avro)
	if f != nil {
		return nil, m.bad("the schema %d to encode in: %s", b.avro, f.Reason())
	}
	framed, err := codec.EncodeAvro(schema, value)
	if err != nil {
		return nil, m.bad("the value does not fit the schema %d: %w", b.avro, err)
	}
	if len(framed) < 5 || framed[0] != 0 || binary.BigEndian.Uint32(framed[1:]) != uint32(b.avro) {
		framed = codec.Frame(b.avro, framed)
	}
	return framed, nil
}

func cloneJSON(v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = cloneJSON(e)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = cloneJSON(e)
		}
		return out
	}
	return v
}

// change sets or removes what stands at a path of a JSON value. Everything before its last part must be there.
func (m *maker) change(doc *any, path string, to any, remove bool) error {
	p, err := pipeline.NewPath(path)
	if err != nil {
		return err
	}
	if len(p.Segs) == 0 {
		*doc = to
		return nil
	}
	at := *doc
	for i, seg := range p.Segs {
		last := i == len(p.Segs)-1
		switch v := at.(type) {
		case map[string]any:
			if last && remove {
				delete(v, seg)
			} else if last {
				v[seg] = to
			}
			at = v[seg]
		case []any:
			k, err := strconv.Atoi(seg)
			if err != nil || k < 0 || k >= len(v) || last && remove {
				return m.bad("%s: there is no item %s", path, seg)
			}
			if last {
				v[k] = to
			}
			at = v[k]
		default:
			return m.bad("%s: nothing stands before %q", path, seg)
		}
	}
	return nil
}
