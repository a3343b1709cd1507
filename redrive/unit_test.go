package redrive

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
)

func someLines(n int) []Line {
	lines := make([]Line, n)
	for i := range lines {
		lines[i] = Line{N: int64(i + 1), Item: pipeline.ID(fmt.Sprintf("q%d", i)), Digest: pipeline.Digest(fmt.Sprintf("hmac256:k:%04x", i)), Order: fmt.Sprint(i % 5)}
	}
	return lines
}

func someManifest(t testing.TB, lines []Line) (*Manifest, pipeline.Digest) {
	t.Helper()
	m := &Manifest{V: 1, Pipeline: "billing", Tenant: "acme", Requester: "ana", Ticket: "OPS-1", Created: "2026-09-15T10:00:00.000Z", Destination: retry,
		Source: []string{source}, Schemas: []string{}, Measures: []Measure{}, Pace: Pace{Rate: "50/s"}}
	m.Selection = Selected{Snapshot: "s1", Selected: int64(len(lines)), Count: int64(len(lines)), Bytes: "9007199254740993", Classes: map[string]int64{}, Excluded: map[string]int64{}}
	var c chunker
	for i := range lines {
		c.add(&lines[i])
	}
	m.Selection.Chunks, m.Selection.Merkle = c.end()
	d, err := m.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return m, d
}

func TestManifestFilesRoundTrip(t *testing.T) {
	for _, n := range []int{1, ChunkLines, ChunkLines + 1, 2*ChunkLines + 7} {
		lines := someLines(n)
		m, digest := someManifest(t, lines)
		dir := t.TempDir()
		if err := WriteFiles(dir, m, lines); err != nil {
			t.Fatal(err)
		}
		m2, lines2, err := ReadFiles(dir, digest)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(m, m2); diff != "" || !slices.Equal(lines, lines2) {
			t.Errorf("%d lines: %s", n, diff)
		}
		if want := (n + ChunkLines - 1) / ChunkLines; len(m.Selection.Chunks) != want {
			t.Errorf("%d chunks, want %d", len(m.Selection.Chunks), want)
		}
	}
}

// Every byte of every file is covered by the digest.
func TestManifestRefusesAChangedByte(t *testing.T) {
	lines := someLines(3)
	m, digest := someManifest(t, lines)
	dir := t.TempDir()
	if err := WriteFiles(dir, m, lines); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"manifest.json", "items-00001.jsonl"} {
		path := filepath.Join(dir, name)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for i := range whole {
			b := slices.Clone(whole)
			b[i] ^= 1
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ReadFiles(dir, digest); pipeline.CodeOf(err) != pipeline.CodeManifestDigest {
				t.Fatalf("%s byte %d: %v", name, i, err)
			}
		}
		for what, b := range map[string][]byte{"Longer": append(slices.Clone(whole), '\n'), "Shorter": whole[:len(whole)-1], "Empty": {}} {
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, _, err := ReadFiles(dir, digest); pipeline.CodeOf(err) != pipeline.CodeManifestDigest {
				t.Errorf("%s %s: %v", name, what, err)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := ReadFiles(dir, "sha256:00"); pipeline.CodeOf(err) != pipeline.CodeManifestDigest {
		t.Errorf("another digest: %v", err)
	}
}

func FuzzParseManifest(f *testing.F) {
	m, _ := someManifest(f, someLines(2))
	b, err := m.Bytes()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte(`{"v":1}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		m, err := ParseManifest(in, pipeline.Digest(digestOf(in)))
		if err != nil {
			return
		}
		again, err := m.Bytes()
		if err != nil || string(again) != string(in) {
			t.Fatalf("%q was read and is written as %q", in, again)
		}
	})
}

func TestCanaryCoversPartitionsAndFingerprints(t *testing.T) {
	lines := someLines(1000)
	of := make([]traits, len(lines))
	for i := range of {
		lines[i].Order = fmt.Sprint(i % 100)
		of[i] = traits{int32(i % 12), fmt.Sprint("f", i/300)}
	}
	set := canarySet(lines, of, 0)
	parts, prints := map[int32]bool{}, map[string]bool{}
	for _, i := range set {
		parts[of[i].partition], prints[of[i].fingerprint] = true, true
	}
	if len(parts) != 12 || len(prints) != 4 || len(set) > 60 {
		t.Errorf("%d items cover %d partitions and %d fingerprints", len(set), len(parts), len(prints))
	}
	if !slices.Equal(set, canarySet(lines, of, 0)) || !slices.IsSorted(set) {
		t.Error("it is not deterministic or not in order")
	}
	in := map[int]bool{}
	for _, i := range set {
		in[i] = true
	}
	for _, i := range set { // no item overtakes an earlier one of its key
		for j := range i {
			if lines[j].Order == lines[i].Order && !in[j] {
				t.Fatalf("item %d goes before item %d of its key", i, j)
			}
		}
	}
	if got := canarySet(lines, of, 5); len(got) != 5 {
		t.Errorf("limited to 5: %d", len(got))
	}
	if got := canarySet(lines[:1], of[:1], 0); !slices.Equal(got, []int{0}) {
		t.Errorf("one item: %v", got)
	}
	if got := canarySet(nil, nil, 0); got != nil {
		t.Errorf("none: %v", got)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]Rate{"50/s": 50, "1/s": 1, "600/m": 10, "8000/s": 8000} {
		if got, err := ParseRate(text); err != nil || got != want {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	for _, bad := range []string{"", "50", "0/s", "-1/s", "1.5/s", "50/h", "61/m", "50/s ", "99999999999/s"} {
		if _, err := ParseRate(bad); pipeline.CodeOf(err) != pipeline.CodeInputInvalid {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// INV-PACE (INV-DLQ-03): whatever the rate, no half-open second holds more attempts than the rate, from the first one on.
func TestPaceIsExactFromTheFirstSecond(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		for _, rate := range []Rate{1, 2, 3, 49, 50, 51, 60, 100, 1000, 8000} {
			now := custodytest.Start
			db := s.Open(t, ledger.Options{Clock: func() time.Time { return now }})
			var at []time.Time
			k := rate.window(MaxWindow)
			for len(at) < int(rate)*3+3 {
				var slot time.Time
				if err := db.Write(context.Background(), func(tx *ledger.Tx) (err error) {
					slot, err = take(tx, now, k, paceRow{"pipeline/p" + rate.String(), rate})
					return err
				}); err != nil {
					t.Fatal(err)
				}
				if slot.Before(now) {
					t.Fatalf("a slot in the past")
				}
				now = slot // the executor leaves in its slot
				for range k {
					at = append(at, slot)
				}
			}
			if most := busiest(at); most > int(rate) {
				t.Errorf("%s: %d in one second", rate, most)
			}
			// And not needlessly slow: at least 90 % of the rate.
			if d := at[len(at)-1].Sub(at[0]); float64(len(at)-k)/d.Seconds() < 0.9*float64(rate) {
				t.Errorf("%s: %d attempts took %s", rate, len(at), d)
			}
		}
	})
}

// busiest is the most attempts of any half-open second.
func busiest(at []time.Time) (most int) {
	from := 0
	for i := range at {
		for at[i].Sub(at[from]) >= time.Second {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

func TestPaceIsSharedAndGivesNoCreditForIdleTime(t *testing.T) {
	db := ledgertest.SQLite(t).Open(t, ledger.Options{Clock: func() time.Time { return custodytest.Start }})
	now := custodytest.Start
	get := func(name string, rate Rate) (slot time.Time) {
		t.Helper()
		if err := db.Write(context.Background(), func(tx *ledger.Tx) (err error) {
			slot, err = take(tx, now, 1, paceRow{"pipeline/p", 50}, paceRow{name, rate})
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return slot
	}
	var at []time.Time
	for i := range 200 { // two runs that share a pipeline's row, each allowed the full rate
		at = append(at, get(fmt.Sprint("run/", i%2), 50))
	}
	if most := busiest(at); most > 50 {
		t.Errorf("%d in one second", most)
	}
	now = now.Add(time.Hour)
	at = at[:0]
	for range 60 {
		at = append(at, get("run/0", 50))
	}
	if most := busiest(at); most > 50 {
		t.Errorf("after an idle hour: %d in one second", most)
	}
	if at[0].Before(now) {
		t.Error("a slot in the past")
	}
}

func TestRunNeverExceedsItsRate(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.ready(120)
	p := b.plan(func(r *PlanRequest) { r.Rate = 50 })
	b.approve(p)
	b.run(p)
	var at []time.Time
	for _, r := range b.kafka.All(retry) {
		at = append(at, time.UnixMilli(r.TimeMS))
	}
	slices.SortFunc(at, time.Time.Compare)
	if len(at) != 120 || busiest(at) > 50 {
		t.Errorf("%d records, %d in the busiest second", len(at), busiest(at))
	}
}

func TestPartitionOfKeylessItems(t *testing.T) {
	if Partition(nil, 3, 7) != 1 || Partition([]byte{}, 3, 0) < 0 || Partition([]byte("x"), 0, 1) != -1 {
		t.Error("keyless items keep the number of their partition; no partitions is -1")
	}
}
