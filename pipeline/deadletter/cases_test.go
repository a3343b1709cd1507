package deadletter

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
)

func readCase(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "cases", path))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, into); err != nil {
		t.Fatal(err)
	}
}

// caseRecord is a record as the cases write it.
type caseRecord struct {
	Topic         string
	Partition     int32
	Offset        int64
	TimestampMS   int64 `json:"timestamp_ms"`
	TimestampType string
	KeyHex        *string `json:"key_hex"`
	ValueHex      *string `json:"value_hex"`
	Headers       [][2]*string
}

func (c *caseRecord) record(t *testing.T) *pipeline.Record {
	t.Helper()
	decode := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := hex.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{}, b...)
	}
	r := &pipeline.Record{Offset: c.Offset, TimeMS: c.TimestampMS, TimeType: pipeline.TimeCreate, Key: decode(c.KeyHex), Value: decode(c.ValueHex)}
	for _, h := range c.Headers {
		r.Headers = append(r.Headers, pipeline.Header{Name: *h[0], Value: decode(h[1])})
	}
	return r
}

func letterOf(r *pipeline.Record, signed bool) *Letter {
	l := exampleLetter()
	l.Key, l.Value, l.Headers = r.Key, r.Value, PassHeaders(nil, r.Headers, signed)
	return l
}

func TestCaseC29TwoHundredPassesLeaveOneOfEachHeader(t *testing.T) {
	ring := newRing(t, "k1")
	var in caseRecord
	var want struct {
		Cycles int
		Max    int `json:"total_header_bytes_max"`
	}
	readCase(t, "C29/record.json", &in)
	readCase(t, "C29/expected.json", &want)
	r := in.record(t)
	stack, _ := find(r.Headers, HeaderStack)
	sizes := map[int]bool{}
	signed := false
	var attempts []pipeline.Attempt
	for n := range want.Cycles {
		l := letterOf(r, signed)
		l.Stack = string(stack)
		attempts = append(attempts, pipeline.Attempt{N: n + 1, At: time.UnixMilli(1760000000000), Code: pipeline.CodeRegistryUnavailable})
		l.Attempts = attempts
		m := appendLetter(t, l, Profiles{}, ring)
		for _, name := range []string{HeaderReason, HeaderException, HeaderStack, HeaderTopic, HeaderPartition, HeaderOffset, HeaderQuarantined,
			HeaderAttemptCount, "trace-id", headerSig, headerItem} {
			if c := count(m.Headers, name); c != 1 {
				t.Fatalf("pass %d: %s stands %d times", n, name, c)
			}
		}
		total := 0
		for _, h := range m.Headers {
			total += len(h.Name) + len(h.Value)
		}
		if total > want.Max {
			t.Fatalf("pass %d: %d bytes of headers", n, total)
		}
		if n > 120 {
			sizes[total] = true
		}
		r, signed = arrived(m), true
	}
	if len(sizes) != 1 {
		t.Errorf("the headers still grow after 120 passes: %v", sizes)
	}
}

func TestCaseC29WhatDoesNotFitShrinksAndTheValueNever(t *testing.T) {
	ring := newRing(t, "k1")
	l := exampleLetter()
	l.Stack = strings.Repeat("at step in module billing/charge.go:100\n", 60)
	l.Value = make([]byte, 999900)
	m := &pipeline.Message{Topic: dlq}
	err := Append(m, l, Profiles{MessageBytes: 1000000}, ring)
	if pipeline.CodeOf(err) != pipeline.CodeTooLarge {
		t.Errorf("100 bytes are not enough for identity: got %v", err)
	}
	for err != nil { // the largest value that goes with the identity
		l.Value = l.Value[1:]
		err = Append(m, l, Profiles{MessageBytes: 1000000}, ring)
	}
	if Size(m) > 1000000 || len(m.Value) != len(l.Value) || count(m.Headers, HeaderStack) != 0 || value(t, m.Headers, HeaderOffset) != "4711" {
		t.Errorf("size %d, value %d of %d, headers %v", Size(m), len(m.Value), len(l.Value), m.Headers)
	}
	if got, err := Parse(dlq, arrived(m), ring); err != nil || got.Identity != l.Identity {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestCaseC31PartitionIsTheKeysAndTheOriginalStaysTrue(t *testing.T) {
	ring := newRing(t, "k1")
	var in struct {
		Records []struct {
			Partition int32
			Key       *string
		}
	}
	var want struct {
		Original []string `json:"X-Original-Partition"`
	}
	readCase(t, "C31/scenario.json", &in)
	readCase(t, "C31/expected.json", &want)
	if len(in.Records) != 5 {
		t.Fatal("the scenario has five records")
	}
	for i, r := range in.Records {
		l := exampleLetter()
		l.Original.Partition = r.Partition
		l.Key = nil
		if r.Key != nil {
			l.Key = []byte(*r.Key)
		}
		m := appendLetter(t, l, Profiles{}, ring)
		if m.Partition != -1 {
			t.Errorf("record %d: partition %d is asked for", i, m.Partition)
		}
		if got := value(t, m.Headers, HeaderPartition); got != want.Original[i] {
			t.Errorf("record %d: X-Original-Partition %s", i, got)
		}
		if got, err := Parse(dlq, arrived(m), ring); err != nil || got.Original.Partition != r.Partition || (got.Key == nil) != (r.Key == nil) {
			t.Errorf("record %d: %+v, %v", i, got, err)
		}
	}
}

func TestCaseC32NullStaysNullAndEmptyStaysEmpty(t *testing.T) {
	ring := newRing(t, "k1")
	var in []caseRecord
	readCase(t, "C32/records.json", &in)
	if len(in) != 5 {
		t.Fatal("the case has five records")
	}
	for i := range in {
		r := in[i].record(t)
		l, err := Parse(dlq, arrived(appendLetter(t, letterOf(r, false), Profiles{}, ring)), ring)
		if err != nil || l.Dialect != Reprieve {
			t.Fatalf("record %d: %v", i, err)
		}
		back := &pipeline.Message{Topic: retry, Key: l.Key, Value: l.Value}
		if err := AppendTrail(back, exampleTrail(), l.Identity, nil, 0, ring); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ParseTrail(retry, arrived(back), ring); err != nil {
			t.Errorf("record %d: %v", i, err)
		}
		for what, pair := range map[string][2][]byte{"key in the letter": {r.Key, l.Key}, "value in the letter": {r.Value, l.Value},
			"key after redrive": {r.Key, back.Key}, "value after redrive": {r.Value, back.Value}} {
			if d := cmp.Diff(pair[0], pair[1]); d != "" {
				t.Errorf("record %d: %s: %s", i, what, d)
			}
		}
	}
}

func TestCaseC35LimitsCountCharacters(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join("testdata", "cases", "C35", name))
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSuffix(string(b), "\n")
	}
	written := func(text string) string {
		l := exampleLetter()
		l.Reason, l.Stack = text, text
		m := appendLetter(t, l, Profiles{Connect: true}, newRing(t, "k1"))
		for _, h := range m.Headers {
			if !utf8.Valid(h.Value) || strings.IndexByte(string(h.Value), 0) >= 0 {
				t.Errorf("%s is not valid text: %q", h.Name, h.Value)
			}
		}
		return value(t, m.Headers, HeaderReason)
	}
	t.Run("193 characters in 538 bytes are kept whole", func(t *testing.T) {
		if in := read("reason.txt"); written(in) != in || utf8.RuneCountInString(in) != 193 {
			t.Error("it was cut")
		}
	})
	t.Run("600 characters become the first 512", func(t *testing.T) {
		if got := written(read("reason_long.txt")); got != strings.Repeat("é", 512) {
			t.Errorf("%d characters", utf8.RuneCountInString(got))
		}
	})
	t.Run("bad bytes and NUL become text", func(t *testing.T) {
		in, _ := hex.DecodeString("626164206279746520fffe2068657265200020656e64")
		if got := written(string(in)); got != "bad byte \ufffd\ufffd here \ufffd end" {
			t.Errorf("got %q", got)
		}
	})
	t.Run("a stack has 10 frames and 2048 characters", func(t *testing.T) {
		java := "java.lang.X: m\nand more\n" + strings.Repeat("\tat a.b(C.java:1)\n", 30)
		if got := Stack(java); strings.Count(got, "\tat ") != 10 || !strings.HasPrefix(got, "java.lang.X: m\nand more\n") {
			t.Errorf("got %q", got)
		}
		golang := "panic: x\n\ngoroutine 7 [running]:\n" + strings.Repeat("main.f(0x1)\n\t/src/main.go:10 +0x1d\n", 30)
		if got := Stack(golang); strings.Count(got, "main.go") != 10 {
			t.Errorf("got %q", got)
		}
		if got := Stack(strings.Repeat("line\n", 30)); strings.Count(got, "line") != 10 {
			t.Errorf("got %q", got)
		}
		if got := Stack(strings.Repeat("é", 5000)); utf8.RuneCountInString(got) != 2048 {
			t.Errorf("%d characters", utf8.RuneCountInString(got))
		}
	})
}

func TestCaseC43OriginalTimeIsAlwaysInAHeader(t *testing.T) {
	ring := newRing(t, "k1")
	var in []struct {
		MS   int64 `json:"original_ms"`
		Type string
	}
	readCase(t, "C43/table.json", &in)
	text := map[int64]string{1456789012345: "2016-02-29T23:36:52.345Z", 1756800000123: "2025-09-02T08:00:00.123Z", 0: "1970-01-01T00:00:00.000Z", -5: "1969-12-31T23:59:59.995Z"}
	types := map[string]pipeline.TimeType{"CreateTime": pipeline.TimeCreate, "LogAppendTime": pipeline.TimeLogAppend, "NotAvailable": pipeline.TimeNone}
	for _, row := range in {
		l := exampleLetter()
		l.OriginalMS, l.TimeType = row.MS, types[row.Type]
		m := appendLetter(t, l, Profiles{}, ring)
		if l.TimeType == pipeline.TimeNone {
			if count(m.Headers, headerTime) != 0 {
				t.Error("a record without a time has one in its letter")
			}
		} else if got := value(t, m.Headers, headerTime); got != text[row.MS] {
			t.Errorf("%d: the header says %s", row.MS, got)
		}
		if m.TimeMS != 0 {
			t.Errorf("%d: the letter is written with the time %d: its retention would count from then", row.MS, m.TimeMS)
		}
		got, err := Parse(dlq, arrived(m), ring)
		if err != nil || got.OriginalMS != row.MS || got.TimeType != l.TimeType {
			t.Errorf("%d: read back %+v, %v", row.MS, got, err)
		}
	}
	t.Run("beyond what RFC 3339 can write the number stays exact", func(t *testing.T) {
		for _, ms := range []int64{-1 << 63, 1<<63 - 1, firstMS - 1, firstMS, lastMS, lastMS + 1, 99999} {
			l := exampleLetter()
			l.OriginalMS = ms
			got, err := Parse(dlq, arrived(appendLetter(t, l, Profiles{}, ring)), ring)
			if err != nil || got.OriginalMS != ms {
				t.Errorf("%d: %+v, %v", ms, got, err)
			}
		}
	})
}

func TestCaseC61HeadersComeBackInOrder(t *testing.T) {
	ring := newRing(t, "k1")
	var in caseRecord
	readCase(t, "C61/record.json", &in)
	r := in.record(t)
	if len(r.Headers) != 7 {
		t.Fatal("the case has seven headers")
	}
	m := appendLetter(t, letterOf(r, false), Profiles{Connect: true}, ring)
	if d := cmp.Diff(r.Headers, m.Headers[:7]); d != "" {
		t.Errorf("in the letter, before the X- headers: %s", d)
	}
	l, err := Parse(dlq, arrived(m), ring)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r.Headers, l.Headers); d != "" {
		t.Errorf("read back: %s", d)
	}
	back := &pipeline.Message{Topic: retry, Key: l.Key, Value: l.Value, Headers: PassHeaders(nil, l.Headers, true)}
	if err := AppendTrail(back, exampleTrail(), l.Identity, nil, 0, ring); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(r.Headers, back.Headers[:7]); d != "" {
		t.Errorf("after redrive: %s", d)
	}
	if d := cmp.Diff(r.Headers, PassHeaders(nil, arrived(back).Headers, true)); d != "" {
		t.Errorf("what leaves after the redrive: %s", d)
	}
}

// The messages of the case are never looked at: groups come from the typed code and its identifying params.
func TestCaseC23GroupsAreByCause(t *testing.T) {
	var in []struct {
		N        int
		Code     string
		SchemaID string `json:"schema_id"`
		Field    string
		Message  string
	}
	var want struct {
		Groups [][]int
		Never  [][]int  `json:"never_together"`
		Labels []string `json:"no_group_label_contains"`
	}
	readCase(t, "C23/records.json", &in)
	readCase(t, "C23/expected.json", &want)
	id := map[int]pipeline.ID{}
	for _, r := range in {
		f := &pipeline.Failure{Stage: "route", Index: int32(r.N), Params: []pipeline.Param{pipeline.Int("took", r.N), pipeline.Str("schema", "avro:"+r.SchemaID)}}
		switch {
		case r.Code == "FIELD_TYPE":
			f.Stage, f.Code = "decode", pipeline.CodeSchemaMismatch
			f.Params = append(f.Params, pipeline.Str("field", r.Field))
		case strings.Contains(r.Message, "status 404"):
			f.Code = pipeline.CodeHTTPRejected
			f.Params = append(f.Params, pipeline.Str("target", "gateway"), pipeline.Int("status", 404))
		default:
			f.Code = pipeline.CodeHTTPUnavailable
			f.Params = append(f.Params, pipeline.Str("target", "gateway"), pipeline.Int("status", 502))
		}
		id[r.N] = Fingerprint("billing-event-processor", f)
		for _, l := range want.Labels {
			if strings.Contains(f.Reason(), l) || strings.Contains(string(id[r.N]), l) {
				t.Errorf("record %d: payload text %q in a label", r.N, l)
			}
		}
	}
	for _, g := range want.Groups {
		for _, n := range g[1:] {
			if id[n] != id[g[0]] {
				t.Errorf("%d and %d have one cause and two groups", g[0], n)
			}
		}
	}
	for _, pair := range want.Never {
		if id[pair[0]] == id[pair[1]] {
			t.Errorf("%v are in one group", pair)
		}
	}
}
