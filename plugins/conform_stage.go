package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins/wire"
)

// liveRecords are values as the live lane has them.
func liveRecords(values ...[]byte) []*wire.LiveRecord {
	out := make([]*wire.LiveRecord, len(values))
	for i, v := range values {
		key := fmt.Appendf(nil, "key-%d", i)
		r := pipeline.Record{Offset: int64(i), TimeMS: 1_700_000_000_000 + 86_400_000*int64(i), TimeType: pipeline.TimeCreate}
		out[i] = &wire.LiveRecord{Offset: r.Offset, TimeMs: r.TimeMS, TimeType: r.TimeType.String(), Key: &wire.Nullable{Value: key},
			Value: &wire.Nullable{Value: v}, Headers: &wire.Headers{Header: []*wire.Header{{Name: "number", Value: key}}}, Schema: "json"}
	}
	return out
}

// process asks for the marks of records in batches of a size, from a fresh process.
func (j *judge) process(pkg *loaded, config string, in []*wire.LiveRecord, size int) ([]*wire.Mark, error) {
	r, err := j.remote(pkg, config)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	var out []*wire.Mark
	for batch := range slices.Chunk(in, size) {
		sent := batch
		if r.proc.about.View {
			sent = make([]*wire.LiveRecord, len(batch))
			for i, l := range batch {
				sent[i] = proto.CloneOf(l)
				if v := l.GetValue().GetValue(); json.Valid(v) && utf8.Valid(v) {
					sent[i].View = v
				}
			}
		}
		ctx, cancel := context.WithTimeout(j.ctx, j.h.o.Call)
		number := drawn() >> 16
		reply, err := r.proc.client.Process(ctx, &wire.ProcessRequest{Batch: number, Topic: "conformance", Records: sent})
		cancel()
		switch {
		case err != nil:
			return nil, errors.New(r.proc.trouble(err))
		case len(reply.Records) != len(batch) || reply.Batch != number:
			return nil, fmt.Errorf("%d marks for %d records, batch %d for %d", len(reply.Records), len(batch), reply.Batch, number)
		}
		for i, m := range reply.Records {
			if m.GetOffset() != batch[i].Offset {
				return nil, fmt.Errorf("mark %d is of another record", i)
			}
			if m.Reject != "" && (!name(m.Reject, ruleMost, ruleLetters) || len(m.Fields)+len(m.Headers) > 0) {
				return nil, fmt.Errorf("the rejection of record %d is no rule, or adds something", i)
			}
		}
		out = append(out, reply.Records...)
	}
	return out, nil
}

// marks: what the descriptor's vectors say of a stage.
func (j *judge) marks() {
	const check = "marks its own vectors"
	n := 0
	var wrong []string
	for _, v := range j.pkg.Descriptor.Vectors {
		if v.Stage == nil {
			continue
		}
		n++
		got, err := j.process(j.pkg, v.Config, liveRecords([]byte(v.Value)), 1)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", v.Name, err))
			continue
		}
		if what := differs(v.Stage, got[0]); what != "" {
			wrong = append(wrong, v.Name+": "+what)
		}
	}
	switch {
	case len(wrong) > 0:
		j.add(check, "fail", "%s", strings.Join(wrong, "; "))
	case n == 0:
		j.add(check, "note", "it brings none; add vectors with stage to %s", DescriptorFile)
	default:
		j.add(check, "pass", "%d vectors", n)
	}
}

func differs(want *Marks, got *wire.Mark) string {
	if got.Reject != want.Reject {
		return "it is rejected by another rule, or by none"
	}
	if len(got.Fields) != len(want.Fields) || len(got.Headers) != len(want.Headers) {
		return "other fields or headers are added"
	}
	for _, f := range got.Fields {
		text := ""
		switch x := f.Value.(type) {
		case *wire.Field_Text:
			text = x.Text
		case *wire.Field_Integer:
			text = fmt.Sprint(x.Integer)
		case *wire.Field_Number:
			text = fmt.Sprint(x.Number)
		case *wire.Field_Boolean:
			text = fmt.Sprint(x.Boolean)
		}
		if w, ok := want.Fields[f.Name]; !ok || w != text {
			return "the field " + fmt.Sprintf("%q", f.Name) + " is another"
		}
	}
	for _, h := range got.Headers {
		if w, ok := want.Headers[h.Name]; !ok || w != string(h.Value) {
			return "the header " + fmt.Sprintf("%q", h.Name) + " is another"
		}
	}
	return ""
}

// sameMarks: hostile records, other processes, batches and orders, another time and another machine give the same marks.
func (j *judge) sameMarks() {
	const check = "gives the same marks"
	in := liveRecords(j.corpus()...)
	first := map[int64]*wire.Mark{}
	marks, err := j.process(j.pkg, j.config(), in, wire.BatchDefault)
	if err != nil {
		j.add(check, "fail", "%v", err)
		return
	}
	for _, m := range marks {
		first[m.Offset] = m
	}
	again := func(pkg *loaded, in []*wire.LiveRecord, size int) error {
		marks, err := j.process(pkg, j.config(), in, size)
		if err != nil {
			return err
		}
		for i, m := range marks {
			if !proto.Equal(first[m.Offset], m) {
				return fmt.Errorf("another mark for record %d of %d, %s", i+1, len(in), show(in[i].GetValue().GetValue()))
			}
		}
		return nil
	}
	for _, size := range []int{wire.BatchDefault, 1, 7, wire.BatchMost} {
		if err := again(j.pkg, in, size); err != nil {
			j.add(check, "fail", "batches of %d: %v", size, err)
			return
		}
	}
	other := slices.Clone(in)
	rand.Shuffle(len(other), func(a, b int) { other[a], other[b] = other[b], other[a] })
	if err := again(j.pkg, other, 1+rand.IntN(wire.BatchDefault)); err != nil {
		j.add(check, "fail", "in another order: %v", err)
		return
	}
	where, err := j.elsewhere(func(pkg *loaded, _ string) error { return again(pkg, in, wire.BatchDefault) })
	switch {
	case pipeline.CodeOf(err) == pipeline.CodePluginSandbox:
		where = "another time and another machine cannot be had here: " + err.Error()
	case err != nil:
		j.add(check, "fail", "%s: %v", where, err)
		return
	default:
		where += " too"
	}
	j.add(check, "pass", "%d records, among them null, empty, deep, large, truncated and not UTF-8: six processes, batches of 1, 7, 64 and 512, and another order agree; %s", len(in), where)
}
