package decide

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
)

var allCodes = func() []pipeline.Code {
	out := []pipeline.Code{"ERR_NEVER_HEARD_OF", ""}
	for _, c := range pipeline.Codes() {
		out = append(out, c.Code)
	}
	return out
}()

// anyPolicy draws a policy file, sensible or not, under bounds, sensible or not.
func anyPolicy(t *rapid.T) *Policy {
	condition := rapid.SampledFrom([]string{
		`true`, `class == "transient"`, `attempt > 1`, `!healthy`, `code.startsWith("ERR_HTTP")`, `age > duration("1h")`, `three_way == "poison"`,
		`lane == "retry" && redriven`, `retry_after > duration("1s")`, `1 / attempt > 0`, `tenant == "acme" || retryable`, `rung > 0`,
	})
	var f File
	for range rapid.IntRange(0, 4).Draw(t, "rules") {
		r := DecideRule{When: condition.Draw(t, "when"), Action: rapid.SampledFrom([]string{"", "retry", "quarantine", "pause"}).Draw(t, "action")}
		if rapid.Bool().Draw(t, "attempts given") {
			n := rapid.IntRange(0, 255).Draw(t, "attempts")
			r.Attempts = &n
		}
		if rapid.Bool().Draw(t, "backoff given") {
			r.Backoff = &BackoffFile{Factor: Number(rapid.SampledFrom([]string{"", "1", "1.5", "100"}).Draw(t, "factor")),
				Jitter: Number(rapid.SampledFrom([]string{"", "0", "0.5"}).Draw(t, "jitter"))}
		}
		f.Decide = append(f.Decide, r)
	}
	o := Options{
		Bounds: Bounds{Attempts: uint8(rapid.IntRange(0, 7).Draw(t, "bound")), Age: time.Duration(rapid.Int64Range(-1, int64(48*time.Hour)).Draw(t, "age")),
			Cumulative: time.Duration(rapid.Int64Range(-1, int64(time.Hour)).Draw(t, "cumulative"))},
		Retry:      Retry{Topic: rapid.SampledFrom([]string{"t.retry", "t.retry", "t.retry", ""}).Draw(t, "retry topic"), Backoff: Backoff{Jitter: rapid.Float64Range(0, 0.5).Draw(t, "jitter")}},
		Quarantine: "t.dlq", OutagePause: rapid.Bool().Draw(t, "outage pause"),
	}
	if rapid.Bool().Draw(t, "retries given") {
		n := rapid.Uint8().Draw(t, "retries")
		o.Retry.Attempts = &n
	}
	p, err := New(f, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func anyFacts(t *rapid.T) pipeline.Facts {
	f := pipeline.Facts{
		Code: rapid.SampledFrom(allCodes).Draw(t, "code"), Stage: "decode", Lane: pipeline.Lane(rapid.IntRange(0, 1).Draw(t, "lane")),
		RetryAfter: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64(), rapid.Int64Range(0, 10_000)).Draw(t, "retry after"),
		Tenant:     rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant"), Redriven: rapid.Bool().Draw(t, "redriven"),
		Unhealthy: rapid.IntRange(0, 4).Draw(t, "unhealthy") == 0,
	}
	f.Class = pipeline.Lookup(f.Code).Class
	return f
}

// The life of a record under any policy: whatever fails in each pass, it is retried at most as often as the platform allows,
// waits at most as long, and ends in quarantine or stops the partition.
//
// INV-ATTEMPTS, INV-BOUNDS.
func TestNoSequenceOfFailuresGivesMoreThanTheBoundedRetries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		now := int64(1_790_000_000_000)
		first := now - rapid.Int64Range(0, int64(72*time.Hour/time.Millisecond)).Draw(t, "backlog")
		known := rapid.Bool().Draw(t, "age known")
		attempt, retries, waited := uint8(0), 0, int64(0)
		for pass := 0; ; pass++ {
			if pass > MaxAttempts {
				t.Fatalf("%d passes", pass)
			}
			f := anyFacts(t)
			f.Attempt, f.NowMS = attempt, now
			if known {
				f.FirstMS = first
			}
			d := p.Decide(f)
			if again := p.Decide(f); again != d {
				t.Fatalf("two decisions for one failure: %+v, %+v", d, again)
			}
			if d.Policy != p.Digest() || d.Policy == "" {
				t.Fatalf("the decision does not say by which policy: %+v", d)
			}
			info := pipeline.Lookup(f.Code)
			switch d.Action {
			case pipeline.ActRetry:
				if info.Class != pipeline.Transient || !info.Retryable() {
					t.Fatalf("%s is retried", f.Code)
				}
				if d.Attempt != attempt+1 || d.Topic != "t.retry" || d.NotBefore <= now || d.Code != f.Code {
					t.Fatalf("got %+v for %+v", d, f)
				}
				if known && d.NotBefore-first > p.Bounds().Age.Milliseconds() {
					t.Fatalf("a retry is planned beyond the age: %+v", d)
				}
				attempt, retries, waited = d.Attempt, retries+1, waited+d.NotBefore-now
				now = d.NotBefore + rapid.Int64Range(0, 5000).Draw(t, "late")
			case pipeline.ActQuarantine:
				if d.Topic != "t.dlq" || d.Attempt != attempt || d.NotBefore != 0 {
					t.Fatalf("got %+v", d)
				}
				if d.Code == pipeline.CodeRetryExhausted && f.Code != d.Code && retries == 0 {
					t.Fatalf("exhausted without a retry: %+v", d)
				}
			case pipeline.ActPause:
				if d.Topic != "" || d.NotBefore != 0 {
					t.Fatalf("got %+v", d)
				}
			default:
				t.Fatalf("%s is no decision of a failure", d.Action)
			}
			if retries > MaxAttempts || retries > int(p.Bounds().Attempts) {
				t.Fatalf("%d retries", retries)
			}
			if limit := p.Bounds().Cumulative.Milliseconds() + MaxAttempts; waited > limit { // each wait is rounded up to a millisecond
				t.Fatalf("waited %d ms of at most %d", waited, limit)
			}
			if d.Action != pipeline.ActRetry {
				return
			}
		}
	})
}

// INV-LADDER: whatever is refused, the next decision is lower, until the partition waits.
func TestRefusedSendsOnlyGoDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		f := anyFacts(t)
		f.Attempt = rapid.Uint8().Draw(t, "attempt")
		done := pipeline.Delivered
		for step := 0; ; step++ {
			if step > 3 {
				t.Fatal("the ladder has no end")
			}
			f.Rung = Rung(done)
			d := p.Decide(f)
			if before := ladder(map[pipeline.Disposition]pipeline.Action{pipeline.Delivered: pipeline.ActDeliver, pipeline.Retried: pipeline.ActRetry,
				pipeline.DeadLettered: pipeline.ActQuarantine}[done]); ladder(d.Action) <= before {
				t.Fatalf("after a refused %s: %+v", done, d)
			}
			switch d.Action {
			case pipeline.ActRetry:
				done = pipeline.Retried
			case pipeline.ActQuarantine:
				done = pipeline.DeadLettered
			default:
				return
			}
			f = anyFacts(t) // the refused send has a failure of its own
		}
	})
}

// A policy never gives more than the code's own action.
func TestNoPolicyWidens(t *testing.T) {
	plain := Default(Bounds{}, "t.retry", "t.dlq", Backoff{})
	rapid.Check(t, func(t *rapid.T) {
		p := anyPolicy(t)
		f := anyFacts(t)
		f.Attempt, f.NowMS = uint8(rapid.IntRange(0, 7).Draw(t, "attempt")), 1_790_000_000_000
		got, most := p.Decide(f), plain.Decide(f)
		if ladder(got.Action) < ladder(most.Action) {
			t.Fatalf("%+v: the policy says %s, the code %s", f, got.Action, most.Action)
		}
	})
}

func TestDecidingAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	p := load(t, `
reject:
  - {name: inactive, when: 'view.state == "INACTIVE"'}
  - {name: currency, when: '!(view.currency in ["EUR", "USD"])', params: {field: currency}}
decide:
  - {when: 'code == "ERR_HTTP_TIMEOUT" && !healthy', action: pause}
  - {when: 'class == "transient" && age > duration("1h")', action: quarantine}
`, Options{Retry: Retry{Topic: "t.retry", Backoff: Backoff{Jitter: 0.5}}, Quarantine: "t.dlq"})
	f := facts(pipeline.CodeHTTPUnavailable, 2)
	if n := testing.AllocsPerRun(100, func() { p.Decide(f) }); n != 0 {
		t.Errorf("Decide: %v allocations", n)
	}
	b := &pipeline.Batch{Recs: make([]pipeline.Record, 1)}
	b.Begin(p)
	state, currency := []byte("ACTIVE"), []byte("EUR")
	b.Views[0] = twoFields{state, currency}
	if n := testing.AllocsPerRun(100, func() {
		if f, refused := p.Reject(b, 0); refused {
			t.Error(f)
		}
	}); n != 0 {
		t.Errorf("Reject: %v allocations", n)
	}
	b.Views[0] = twoFields{state, []byte("XXX")}
	if n := testing.AllocsPerRun(100, func() { p.Reject(b, 0) }); n != 0 {
		t.Errorf("Reject of a bad record: %v allocations", n)
	}
}

type twoFields [2][]byte

func (v twoFields) Get(p *pipeline.Path) (pipeline.Value, bool) {
	switch p.Text {
	case "/state":
		return pipeline.Value{Kind: pipeline.KindString, Bytes: v[0]}, true
	case "/currency":
		return pipeline.Value{Kind: pipeline.KindString, Bytes: v[1]}, true
	}
	return pipeline.Value{}, false
}
func (twoFields) Keys(*pipeline.Path) []string          { return nil }
func (twoFields) AppendJSON(dst []byte) ([]byte, error) { return dst, nil }
func (twoFields) Schema() pipeline.SchemaRef            { return pipeline.SchemaRef{} }
func (twoFields) Edit(dst []byte, _ pipeline.Editor) (out []byte, _ bool, _ error) {
	return dst, false, nil
}
func (twoFields) Rebind([]byte) error { return nil }

// engineModel is a worker that dies whenever it works a poisonous record, and sometimes of itself. Only the checkpoint
// survives.
type engineModel struct {
	t       *rapid.T
	stored  pipeline.Checkpoint
	poison  map[int64]bool
	end     int64
	inWork  map[int64]int // crashes that a record was in work at
	settled map[int64]string
	stray   int // crashes left that are nobody's fault
	batch   int64
}

// commit stores a checkpoint the way a broker keeps it.
func (m *engineModel) commit(c pipeline.Checkpoint) {
	m.stored = pipeline.ParseCheckpoint(c.Next, c.Metadata())
}

func (m *engineModel) settle(off int64, how string) {
	if was, twice := m.settled[off]; twice && was != how {
		m.t.Fatalf("%d is %s after %s", off, how, was)
	}
	m.settled[off] = how
}

// run is one life; true means that it ended by itself, with nothing left.
func (m *engineModel) run() (clean bool) {
	s := Resume(m.stored)
	out, aborts := s.Abort()
	next := m.stored.Next
	for next < m.end {
		if aborts && out == next {
			m.settle(next, "aborted")
			next++
			m.commit(Clean(pipeline.Checkpoint{Next: next}))
			continue
		}
		to := min(next+m.batch, m.end)
		if _, end, suspect := s.Group(next); suspect {
			to = min(to, end)
			if aborts {
				to = next + 1
			}
		} else if s.Crashes() > 0 && next < s.first {
			to = min(to, s.first)
		}
		m.commit(s.Mark(pipeline.Checkpoint{Next: m.stored.Next}, next))
		crash := m.stray > 0 && rapid.IntRange(0, 3).Draw(m.t, "stray crash") == 0
		if crash {
			m.stray--
		}
		for off := next; off < to; off++ {
			crash = crash || m.poison[off]
		}
		if crash {
			for off := next; off < to; off++ {
				m.inWork[off]++
			}
			return false
		}
		for off := next; off < to; off++ {
			m.settle(off, "worked")
		}
		next = to
		if rapid.Bool().Draw(m.t, "committed") {
			m.commit(s.Mark(pipeline.Checkpoint{Next: next}, next))
		}
	}
	m.commit(Clean(pipeline.Checkpoint{Next: next}))
	return true
}

// ADV-IR-01: a record that kills the process is worked in at most five lives, then quarantined; the others of its batch go
// on; the worker ends.
func TestARecordThatKillsTheProcessIsIsolatedAtFiveCrashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &engineModel{t: t, end: rapid.Int64Range(1, 300).Draw(t, "records"), poison: map[int64]bool{}, inWork: map[int64]int{}, settled: map[int64]string{},
			batch: rapid.Int64Range(1, 100).Draw(t, "batch"), stored: pipeline.Checkpoint{InFlight: -1}, stray: rapid.IntRange(0, 1).Draw(t, "stray crashes")}
		stray := m.stray
		for range rapid.IntRange(0, 4).Draw(t, "poisonous records") {
			m.poison[rapid.Int64Range(0, m.end-1).Draw(t, "poison")] = true
		}
		lives := 1
		for ; !m.run(); lives++ {
			if lives > MaxCrashes*(len(m.poison)+stray)+1 { // a crash of something else begins the search anew
				t.Fatalf("still dying after %d lives", lives)
			}
		}
		for off := range m.end {
			switch how := m.settled[off]; {
			case how == "":
				t.Fatalf("%d is lost", off)
			case how == "aborted" && !m.poison[off]:
				t.Fatalf("%d is innocent and was aborted", off)
			case how == "worked" && m.poison[off]:
				t.Fatalf("%d cannot be worked", off)
			case m.inWork[off] > MaxCrashes*(len(m.poison)+stray):
				t.Fatalf("%d was in work at %d crashes", off, m.inWork[off])
			}
			if n := m.inWork[off]; m.poison[off] && len(m.poison) == 1 && stray == 0 && n != MaxCrashes {
				t.Fatalf("the only poisonous record was in work at %d crashes", n)
			}
		}
	})
}

func ExampleBackoff_Delay() {
	b := DefaultBackoff()
	for n := range 5 {
		fmt.Print(b.Delay(n, 0), " ")
	}
	// Output: 100ms 200ms 400ms 800ms 1.6s
}
