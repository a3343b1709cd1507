package redrive

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Whatever the unit that a producer took for milliseconds, and whatever the destination keeps: a time that is no time of ours is refused
// before anything is sent, what retention would take at once is counted, and nothing is written with its original time.
func TestCaseC43AnyUnitAndAnyRetention(t *testing.T) {
	const day = 24 * time.Hour
	year := 365 * day
	cases := []struct {
		name    string
		ms      func(now time.Time) int64
		typ     pipeline.TimeType
		refused bool
		age     time.Duration // as retention counts it; 0: it has none
	}{
		{"seconds", func(now time.Time) int64 { return now.Unix() }, pipeline.TimeCreate, true, 0},
		{"seconds of a log-append time", func(now time.Time) int64 { return now.Unix() }, pipeline.TimeLogAppend, false, 50 * year},
		{"microseconds", func(now time.Time) int64 { return now.UnixMicro() }, pipeline.TimeCreate, true, 0},
		{"nanoseconds", func(now time.Time) int64 { return now.UnixNano() }, pipeline.TimeCreate, true, 0},
		{"eleven years ago", func(now time.Time) int64 { return now.Add(-11 * year).UnixMilli() }, pipeline.TimeCreate, true, 0},
		{"nine years ago", func(now time.Time) int64 { return now.Add(-9 * year).UnixMilli() }, pipeline.TimeCreate, false, 9 * year},
		{"two weeks ago", func(now time.Time) int64 { return now.Add(-14 * day).UnixMilli() }, pipeline.TimeCreate, false, 14 * day},
		{"two hours ago", func(now time.Time) int64 { return now.Add(-2 * time.Hour).UnixMilli() }, pipeline.TimeCreate, false, 2 * time.Hour},
		{"now", func(now time.Time) int64 { return now.UnixMilli() }, pipeline.TimeCreate, false, 0},
		{"zero", func(time.Time) int64 { return 0 }, pipeline.TimeCreate, false, 0},
		{"none", func(time.Time) int64 { return -1 }, pipeline.TimeNone, false, 0},
	}
	for _, keeps := range []time.Duration{-1, time.Hour, 7 * day, 30 * year} {
		t.Run(keeps.String(), func(t *testing.T) {
			b := newBench(t, sqliteStore(t))
			ms := "-1"
			if keeps > 0 {
				ms = strconv.FormatInt(keeps.Milliseconds(), 10)
			}
			b.kafka.DeleteTopic(retry)
			b.kafka.CreateTopic(retry, 3, map[string]string{"retention.ms": ms})
			now := b.Clock()
			var refused, old int64
			ids := b.letters(0, int64(len(cases)), func(n int64, l *deadletter.Letter) {
				l.OriginalMS, l.TimeType = cases[n].ms(now), cases[n].typ
			})
			for _, c := range cases {
				if c.refused {
					refused++
				} else if keeps > 0 && c.age > keeps {
					old++
				}
			}
			p := b.plan()
			r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
			if err != nil {
				t.Fatal(err)
			}
			if got := r.CannotGo[string(pipeline.CodeRedriveTime)].Count; got != refused || r.Old != old {
				t.Errorf("%d are refused, want %d; %d are old, want %d", got, refused, r.Old, old)
			}
			b.approve(p)
			st := b.run(p)
			if st.Counts.Unsendable != refused || st.Counts.Reconciled != int64(len(ids))-refused {
				t.Errorf("%+v", st.Counts)
			}
			for _, rec := range b.kafka.All(retry) {
				if rec.TimeMS < now.UnixMilli() {
					t.Errorf("written with the time %d", rec.TimeMS)
				}
			}
		})
	}
}

// What was found out holds for one try. An item whose send at 301 s fails again is past the horizon at 302 and at 900, too: each time it is
// asked about anew, it keeps its event id, and there is at most one send for each answer.
func TestCaseC50EveryTryIsAskedAbout(t *testing.T) {
	var c struct {
		TTL        int64   `json:"dedup_ttl_s"`
		Deliveries []int64 `json:"deliveries_of_event_e1_s"`
	}
	readCase(t, "C50/scenario.json", &c)
	eachBench(t, func(t *testing.T, b *bench) {
		ttl := time.Duration(c.TTL) * time.Second
		b.target.Horizon = Horizon{Known: true, For: ttl}
		b.outcome = func(*pipeline.Trail) pipeline.Result { return "" } // the retry lane dead-letters it again
		id := b.letters(0, 1, func(_ int64, l *deadletter.Letter) { l.OriginalMS = custodytest.Start.UnixMilli() })[0]
		at := func(d time.Duration) { b.Turn(custodytest.Start.Add(d).Sub(b.Clock())) }

		at(ttl)
		if p := b.plan(); len(b.lines(p)) != 1 {
			t.Fatalf("at the last moment of the horizon: %v", p.Excluded)
		}
		at(ttl + time.Millisecond)
		_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
		wantCode(t, err, pipeline.CodeManifestEmpty)

		for try, s := range c.Deliveries[1:] {
			at(time.Duration(s)*time.Second + time.Duration(try)*time.Minute) // a run takes its time
			_, err := b.svc.Plan(b.Ctx, custodytest.Operator, b.request())
			wantCode(t, err, pipeline.CodeManifestEmpty)
			if err == nil || !strings.Contains(err.Error(), "1 horizon") {
				t.Fatalf("try %d: the reason is not named: %v", try, err)
			}
			if err := b.svc.ConfirmAbsent(b.Ctx, custodytest.Operator, id, "report"); err != nil {
				t.Fatal(err)
			}
			p := b.plan()
			if len(b.lines(p)) != 1 {
				t.Fatalf("try %d: after it was found absent: %v", try, p.Excluded)
			}
			b.approve(p)
			b.onWait = func(time.Duration) {
				if len(b.kafka.All(retry)) > try && b.Show(t, id).Item.State == custody.Redriving {
					b.onWait = nil
					b.comesBack(id, pipeline.CodeDecodeTruncated)
				}
			}
			_, err = b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
			wantCode(t, err, pipeline.CodeRedriveThreshold) // a canary that fails again ends the run
			sent := b.kafka.All(retry)
			if len(sent) != try+1 {
				t.Fatalf("try %d: %d records were sent", try, len(sent))
			}
			if _, who, err := deadletter.ParseTrail(retry, &sent[try], b.Ring); err != nil || who.EventID != "ev-0" {
				t.Errorf("try %d: sent as %s, %v", try, who.EventID, err)
			}
			if it := b.Show(t, id).Item; it.State != custody.Triaged || int(it.Try) != try+1 {
				t.Fatalf("try %d: the item is %s, try %d", try, it.State, it.Try)
			}
		}
	})
}
