package deadletter

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
)

func exampleTrail() *pipeline.Trail {
	return &pipeline.Trail{Attempt: 2, Item: "q1", Redrive: "sha256:m", Try: 1, Generation: 4, NotBefore: 1760000000800,
		Attempts: []pipeline.Attempt{{N: 1, At: time.UnixMilli(1760000000123).UTC(), Code: pipeline.CodeHTTPUnavailable},
			{N: 2, At: time.UnixMilli(1760000000456).UTC(), Code: pipeline.CodeRegistryUnavailable}},
		Original: position("billing.invoices.v1", 9, 4711), OriginalMS: 1456789012345, TimeType: pipeline.TimeLogAppend,
		At: position("billing.invoices.v1", 9, 4711)}
}

func trailMessage(t testing.TB, hs []pipeline.Header, ids ...string) *pipeline.Message {
	t.Helper()
	tr := exampleTrail()
	m := &pipeline.Message{Topic: retry, Key: []byte("inv-1"), Value: []byte{0, 0, 0, 0, 7, 1}, Headers: hs}
	f := &pipeline.Failure{Stage: "enrich", Code: pipeline.CodeRegistryUnavailable}
	if err := AppendTrail(m, tr, exampleLetter().Identity, f, tr.NotBefore, newRing(t, ids...)); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestTrailRoundTrip(t *testing.T) {
	m := trailMessage(t, []pipeline.Header{{Name: "trace-id", Value: []byte("abc")}, {Name: "nullh"}}, "k1")
	golden(t, "trail", m)
	for _, m := range []*pipeline.Message{m, readGolden(t, "trail")} {
		got, id, err := ParseTrail(retry, arrived(m), newRing(t, "k1"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(exampleTrail(), got); d != "" {
			t.Error(d)
		}
		if d := cmp.Diff(exampleLetter().Identity, id); d != "" {
			t.Error(d)
		}
	}
}

func TestTrailOfALiveRecordIsMinimal(t *testing.T) {
	ring := newRing(t, "k1")
	m := &pipeline.Message{Topic: retry, Value: []byte("v")}
	want := &pipeline.Trail{Attempt: 1, Original: position("t", 1, 2), OriginalMS: -1}
	if err := AppendTrail(m, want, pipeline.Identity{Consumer: "c"}, nil, 0, ring); err != nil {
		t.Fatal(err)
	}
	got, _, err := ParseTrail(retry, arrived(m), ring)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// ADV: attempts and lineage of anybody else are not believed.
func TestForgedTrailIsNotBelieved(t *testing.T) {
	ring := newRing(t, "k1")
	refused := func(t *testing.T, topic string, r *pipeline.Record) {
		t.Helper()
		tr, id, err := ParseTrail(topic, r, ring)
		if pipeline.CodeOf(err) != pipeline.CodeLineage || tr != nil || id != (pipeline.Identity{}) {
			t.Errorf("got %+v %+v %v", tr, id, err)
		}
	}
	t.Run("none at all", func(t *testing.T) { refused(t, retry, &pipeline.Record{Value: []byte("v")}) })
	t.Run("another retry topic", func(t *testing.T) { refused(t, "other.retry", arrived(trailMessage(t, nil, "k1"))) })
	t.Run("another key of ours", func(t *testing.T) { refused(t, retry, arrived(trailMessage(t, nil, "k2"))) })
	t.Run("other bytes", func(t *testing.T) {
		r := arrived(trailMessage(t, nil, "k1"))
		r.Value[5]++
		refused(t, retry, r)
	})
	for i, h := range trailMessage(t, nil, "k1").Headers {
		t.Run("changed "+h.Name, func(t *testing.T) {
			r := arrived(trailMessage(t, nil, "k1"))
			r.Headers[i].Value = append([]byte{'0'}, r.Headers[i].Value...)
			refused(t, retry, r)
		})
		t.Run("repeated "+h.Name, func(t *testing.T) {
			r := arrived(trailMessage(t, nil, "k1"))
			r.Headers = append([]pipeline.Header{r.Headers[i]}, r.Headers...)
			refused(t, retry, r)
		})
	}
	t.Run("a letter that was moved to the retry topic", func(t *testing.T) {
		m := &pipeline.Message{Topic: retry}
		if err := Append(m, exampleLetter(), Profiles{}, ring); err != nil {
			t.Fatal(err)
		}
		refused(t, retry, arrived(m))
	})
	t.Run("no ring", func(t *testing.T) {
		if _, _, err := ParseTrail(retry, arrived(trailMessage(t, nil, "k1")), nil); err == nil {
			t.Error("believed without keys")
		}
	})
}

func TestTrailIsNoLetter(t *testing.T) {
	r := arrived(trailMessage(t, nil, "k1"))
	if l, err := Parse(retry, r, newRing(t, "k1")); err == nil {
		t.Errorf("a retry message was read as the letter %+v", l)
	}
}

func TestTrailRenamesWhatIsSpoofed(t *testing.T) {
	ring := newRing(t, "k1")
	hs := []pipeline.Header{{Name: "reprieve-redrive-try", Value: []byte("9")}, {Name: "trace-id", Value: []byte("abc")}, {Name: HeaderAttemptCount, Value: []byte("4")}}
	m := trailMessage(t, hs, "k1")
	if d := cmp.Diff([]pipeline.Header{{Name: "reprieve-foreign-redrive-try", Value: []byte("9")}, {Name: "trace-id", Value: []byte("abc")}}, m.Headers[:2]); d != "" {
		t.Error(d)
	}
	tr, _, err := ParseTrail(retry, arrived(m), ring)
	if err != nil || tr.Attempt != 2 || tr.Try != 1 {
		t.Errorf("got %+v, %v", tr, err)
	}
	if hs[0].Name != "reprieve-redrive-try" {
		t.Error("the caller's headers were written to")
	}
}

// A record goes round: each pass reads a trail, drops it and writes the next. Nothing piles up.
func TestPassesDoNotPileUp(t *testing.T) {
	ring := newRing(t, "k1")
	m := trailMessage(t, []pipeline.Header{{Name: "trace-id", Value: []byte("abc")}, {Name: "reprieve-x", Value: []byte("spoofed")}}, "k1")
	size := Size(m)
	for n := range 200 {
		r := arrived(m)
		tr, id, err := ParseTrail(retry, r, ring)
		if err != nil {
			t.Fatal(err)
		}
		next := &pipeline.Message{Topic: retry, Key: r.Key, Value: r.Value, Headers: PassHeaders(nil, r.Headers, true)}
		if err := AppendTrail(next, tr, id, &pipeline.Failure{Stage: "enrich", Code: pipeline.CodeRegistryUnavailable}, tr.NotBefore, ring); err != nil {
			t.Fatal(err)
		}
		if Size(next) != size {
			t.Fatalf("pass %d: %d bytes instead of %d", n, Size(next), size)
		}
		m = next
	}
	if count(m.Headers, "reprieve-foreign-x") != 1 || count(m.Headers, "trace-id") != 1 {
		t.Errorf("headers: %v", m.Headers)
	}
}

func TestAttemptsAreBounded(t *testing.T) {
	tr := exampleTrail()
	tr.Attempts = nil
	for n := range 200 {
		tr.Attempts = append(tr.Attempts, pipeline.Attempt{N: n + 1, At: time.UnixMilli(int64(n)).UTC(), Code: `ERR_"X"`})
	}
	m := &pipeline.Message{Topic: retry}
	if err := AppendTrail(m, tr, pipeline.Identity{}, nil, 0, newRing(t, "k1")); err != nil {
		t.Fatal(err)
	}
	got, _, err := ParseTrail(retry, arrived(m), newRing(t, "k1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Attempts) != MaxAttempts || got.Attempts[MaxAttempts-1].N != 200 {
		t.Errorf("got %d attempts", len(got.Attempts))
	}
	if strings.Contains(string(got.Attempts[0].Code), `"`) {
		t.Errorf("code %q", got.Attempts[0].Code)
	}
}
