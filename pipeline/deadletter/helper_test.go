package deadletter

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

var update = flag.Bool("update", false, "write the golden files anew")

func newRing(t testing.TB, ids ...string) *seal.Ring {
	t.Helper()
	var keys []seal.Key
	for _, id := range ids {
		keys = append(keys, seal.Key{ID: id, Secret: bytes.Repeat([]byte(id), 32)[:32]})
	}
	r, err := seal.NewRing(keys)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const (
	dlq   = "billing.invoices.v1.dlq"
	retry = "billing.invoices.v1.retry"
)

func exampleLetter() *Letter {
	return &Letter{
		Kind: KindLetter, Item: "qexample", At: position("billing.invoices.v1.retry", 3, 77), Original: position("billing.invoices.v1", 9, 4711),
		Cluster: "cluster-1", OriginalMS: 1456789012345, TimeType: pipeline.TimeCreate, Pipeline: "billing",
		Failure: pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeTruncated,
			Params: []pipeline.Param{pipeline.Str("schema", "avro:7"), pipeline.Int("at", 17)}},
		Decision: pipeline.Decision{Action: pipeline.ActQuarantine, Attempt: 2, Policy: "sha256:00ff"},
		Identity: pipeline.Identity{Consumer: "billing-event-processor", Release: "billing-event-processor@2.2", Tenant: "acme",
			EventID: "evt-1", Entity: "acc-1", BusinessID: "inv-1", Token: "tok-1", Version: "12"},
		Fingerprint: "f1example", Schema: "avro:7", DigestFaithful: "hmac256:k:00", DigestRedacted: "sha256:00", Faithful: Source,
		Attempts: []pipeline.Attempt{{N: 1, At: time.UnixMilli(1760000000123).UTC(), Code: pipeline.CodeRegistryUnavailable},
			{N: 2, At: time.UnixMilli(1760000000456).UTC(), Code: pipeline.CodeRegistryUnavailable}},
		Generation: 3, Redrive: "sha256:abc", Try: 1, QuarantinedMS: 1760000001000,
		Key: []byte("inv-1"), Value: []byte{0, 0, 0, 0, 7, 1, 2},
		Headers: []pipeline.Header{{Name: "trace-id", Value: []byte("abc")}, {Name: "nullh"}, {Name: "trace-id", Value: []byte("second")}},
	}
}

func position(topic string, p int32, off int64) pipeline.Position {
	return pipeline.Position{TP: pipeline.TP{Topic: topic, Partition: p}, Offset: off}
}

func appendLetter(t testing.TB, l *Letter, p Profiles, r *seal.Ring) *pipeline.Message {
	t.Helper()
	m := &pipeline.Message{Topic: dlq, Partition: -1}
	if err := Append(m, l, p, r); err != nil {
		t.Fatal(err)
	}
	return m
}

// arrived is the message as a consumer reads it.
func arrived(m *pipeline.Message) *pipeline.Record {
	r := pipeline.Record{Offset: 5, TimeMS: 1760000001001, TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers}
	c := r.Clone()
	return &c
}

func count(hs []pipeline.Header, name string) (n int) {
	for _, h := range hs {
		if h.Name == name {
			n++
		}
	}
	return n
}

func value(t testing.TB, hs []pipeline.Header, name string) string {
	t.Helper()
	b, ok := find(hs, name)
	if !ok {
		t.Fatalf("no header %s", name)
	}
	return string(b)
}

// golden compares a message with its file, byte for byte, in a form that a person can read.
func golden(t *testing.T, name string, m *pipeline.Message) {
	t.Helper()
	text := func(b []byte) any {
		switch {
		case b == nil:
			return nil
		case cleanText(string(b)) == string(b):
			return map[string]string{"text": string(b)}
		}
		return map[string]string{"hex": hex.EncodeToString(b)}
	}
	form := map[string]any{"topic": m.Topic, "key": text(m.Key), "value": text(m.Value)}
	var hs []any
	for _, h := range m.Headers {
		hs = append(hs, []any{h.Name, text(h.Value)})
	}
	form["headers"] = hs
	got, err := json.MarshalIndent(form, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	file := filepath.Join("testdata", "golden", name+".json")
	if *update {
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the message is not as in %s any more; messages of earlier versions must still be read. Got:\n%s", file, got)
	}
}

// readGolden is the message of a golden file, as one that an earlier version wrote.
func readGolden(t *testing.T, name string) *pipeline.Message {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "golden", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var form struct {
		Topic      string
		Key, Value map[string]string
		Headers    [][2]json.RawMessage
	}
	if err := json.Unmarshal(text, &form); err != nil {
		t.Fatal(err)
	}
	bytesOf := func(v map[string]string) []byte {
		if v == nil {
			return nil
		}
		if h, ok := v["hex"]; ok {
			b, _ := hex.DecodeString(h)
			return b
		}
		return []byte(v["text"])
	}
	m := &pipeline.Message{Topic: form.Topic, Key: bytesOf(form.Key), Value: bytesOf(form.Value)}
	for _, h := range form.Headers {
		var name string
		var v map[string]string
		if json.Unmarshal(h[0], &name) != nil || json.Unmarshal(h[1], &v) != nil {
			t.Fatal("bad header in golden file")
		}
		m.Headers = append(m.Headers, pipeline.Header{Name: name, Value: bytesOf(v)})
	}
	return m
}

// dialectFile reads captured dead letters.
func dialectFile(t testing.TB, name string) (topics []string, recs []*pipeline.Record) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "dialects", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Topic         string
		Offset        int64
		Timestamp     int64
		TimestampType string `json:"timestamp_type"`
		Key, Value    *string
		Headers       [][2]*string
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	decode := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := base64.StdEncoding.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{}, b...)
	}
	for _, a := range all {
		r := &pipeline.Record{Offset: a.Offset, TimeMS: a.Timestamp, TimeType: pipeline.TimeCreate, Key: decode(a.Key), Value: decode(a.Value)}
		for _, h := range a.Headers {
			r.Headers = append(r.Headers, pipeline.Header{Name: *h[0], Value: decode(h[1])})
		}
		topics, recs = append(topics, a.Topic), append(recs, r)
	}
	return topics, recs
}
