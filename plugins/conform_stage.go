package plugins

import (
	"context"
	"encoding/json"
	"fmt"
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
		r := pipeline.Record{Offset: int64(i), TimeMS: 1_700_000_000_000 + int64(i), TimeType: pipeline.TimeCreate}
		out[i] = &wire.LiveRecord{Offset: r.Offset, TimeMs: r.TimeMS, TimeType: r.TimeType.String(), Key: &wire.Nullable{Value: []byte("key")},
			Value: &wire.Nullable{Value: v}, Schema: "json"}
	}
	return out
}

// process asks for the marks of records in batches of a size, from a fresh process.
func (j *judge) process(config string, in []*wire.LiveRecord, size int) ([]*wire.Mark, error) {
	r, err := j.remote(config)
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
		reply, err := r.proc.client.Process(ctx, &wire.ProcessRequest{Batch: 1, Topic: "conformance", Records: sent})
		cancel()
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s", r.proc.runner.diary.clean(err.Error()))
		case len(reply.Records) != len(batch) || reply.Batch != 1:
			return nil, fmt.Errorf("%d marks for %d records, batch %d", len(reply.Records), len(batch), reply.Batch)
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
		got, err := j.process(v.Config, liveRecords([]byte(v.Value)), 1)
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

// sameMarks: hostile records, other processes and other batches give the same marks.
func (j *judge) sameMarks() {
	const check = "gives the same marks"
	in := liveRecords(j.corpus()...)
	first, err := j.process(j.config(), in, wire.BatchDefault)
	if err != nil {
		j.add(check, "fail", "%v", err)
		return
	}
	for _, size := range []int{wire.BatchDefault, 1, 7, wire.BatchMost} {
		again, err := j.process(j.config(), in, size)
		if err != nil {
			j.add(check, "fail", "batches of %d: %v", size, err)
			return
		}
		for i := range first {
			if !proto.Equal(first[i], again[i]) {
				j.add(check, "fail", "batches of %d give another mark for record %d", size, i)
				return
			}
		}
	}
	j.add(check, "pass", "%d records, among them null, empty, deep, large, truncated and not UTF-8: five processes and batches of 1, 7, 64 and 512 agree", len(in))
}
