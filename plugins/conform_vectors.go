package plugins

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/transforms"
)

func (j *judge) vectors() {
	const name = "repairs its own vectors"
	vs := slices.DeleteFunc(slices.Clone(j.pkg.Descriptor.Vectors), func(v Vector) bool { return v.Stage != nil })
	if len(vs) == 0 {
		j.add(name, "note", "it brings none; add vectors to %s", DescriptorFile)
		return
	}
	var wrong []string
	for _, v := range vs {
		r, err := j.remote(j.pkg, v.Config)
		if err != nil {
			wrong = append(wrong, fmt.Sprintf("%s: %v", v.Name, err))
			continue
		}
		for round, value := range []string{v.Value, v.Expect} { // the second: what is right already stays
			if round == 1 && v.Rejected {
				break
			}
			out, err := r.Repair(j.ctx, records([]byte(value)))
			switch {
			case err != nil:
				wrong = append(wrong, fmt.Sprintf("%s: %v", v.Name, err))
			case v.Rejected != (out[0].Failure != nil && out[0].Failure.Code == pipeline.CodeTransformFailed):
				wrong = append(wrong, v.Name+": "+r.verdict(out[0].Failure)+expected(v))
			case !v.Rejected && out[0].Failure != nil:
				wrong = append(wrong, v.Name+": "+r.verdict(out[0].Failure)+expected(v))
			case !v.Rejected && string(out[0].Value) != v.Expect:
				wrong = append(wrong, fmt.Sprintf("%s: %s (round %d)", v.Name, difference(string(out[0].Value), v.Expect), round+1))
			}
		}
		r.stop()
	}
	if len(wrong) > 0 {
		j.add(name, "fail", "%s", strings.Join(wrong, "; "))
		return
	}
	j.add(name, "pass", "%d vectors; a second repair changes nothing", len(vs))
}

// verdict is what became of a vector's record.
func (r *remote) verdict(f *pipeline.Failure) string {
	if f == nil {
		return "it was answered"
	}
	text := r.became(f)
	if f.Cause != nil {
		text += ": " + f.Cause.Error()
	}
	return text
}

func expected(v Vector) string {
	if v.Rejected {
		return "; it should be rejected"
	}
	return "; it should be answered"
}

// difference shows where an answer is not what was expected: the bytes of a vector are its author's own.
func difference(got, want string) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	from := max(0, at-10)
	part := func(s string) string { return strconv.Quote(s[min(from, len(s)):min(from+40, len(s))]) }
	return fmt.Sprintf("at byte %d %s, where %s was expected", at, part(got), part(want))
}

// corpus is the vectors and what hurts parsers.
func (j *judge) corpus() [][]byte {
	out := [][]byte{nil, {}, []byte("null"), []byte("{}"), []byte("[]"), []byte(`"`), {0xff, 0xfe, 0x80}, bytes.Repeat([]byte("["), 100_000),
		[]byte(`{"a":1,"a":2}`), []byte(`{"n":1e999999}`), bytes.Repeat([]byte("x"), 1<<20), {0, 0, 0, 0, 7}, []byte("\x00\x00\x00\x00\x07\x02\x00")}
	seed := uint64(0x9e3779b97f4a7c15)
	for _, v := range j.pkg.Descriptor.Vectors {
		out = append(out, []byte(v.Value))
		for n := range 40 { // cut it, or change one byte
			b := []byte(v.Value)
			if len(b) == 0 {
				break
			}
			seed ^= seed << 13
			seed ^= seed >> 7
			seed ^= seed << 17
			if at := int(seed % uint64(len(b))); n%4 == 0 {
				b = b[:at]
			} else {
				b[at] = byte(seed >> 40)
			}
			out = append(out, b)
		}
	}
	return out
}

// records are envelopes with these values. Whatever else there is of one is its own, so that an answer that is made of another record
// can be told.
func records(values ...[]byte) []transforms.Envelope {
	out := make([]transforms.Envelope, len(values))
	for i, v := range values {
		key := fmt.Appendf(nil, "key-%d", i)
		out[i] = transforms.Envelope{Item: pipeline.ID(fmt.Sprintf("q%d", i)), Topic: "conformance", Schema: "json", Code: pipeline.CodeTransformFailed,
			Identity: pipeline.Identity{Consumer: "conformance", Tenant: "acme", EventID: fmt.Sprintf("e%d", i)},
			Record: pipeline.Record{Offset: int64(i), TimeMS: 1_700_000_000_000 + 86_400_000*int64(i), TimeType: pipeline.TimeCreate, Key: key, Value: v,
				Headers: []pipeline.Header{{Name: "number", Value: key}}}}
	}
	return out
}

// config is the configuration of the first vector.
func (j *judge) config() string {
	if vs := j.pkg.Descriptor.Vectors; len(vs) > 0 {
		return vs[0].Config
	}
	return "{}"
}
