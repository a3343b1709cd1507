package drill

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
)

// counted is what stands in the dead-letter and retry topics.
type counted struct {
	letters  map[string]int // by class
	dead     map[pipeline.Position][]*deadletter.Letter
	retried  map[pipeline.Position]int // passes of a record through the retry topic that are no redrive
	redriven map[pipeline.Position]int // passes that are
	sends    []int64                   // times of the redriven ones, ms
}

func (c *counted) total() (n int) {
	for _, x := range c.letters {
		n += x
	}
	return n
}

func count(t *testing.T, l *lab.Lab, retry string) *counted {
	t.Helper()
	c := &counted{letters: map[string]int{}, dead: map[pipeline.Position][]*deadletter.Letter{}, retried: map[pipeline.Position]int{}, redriven: map[pipeline.Position]int{}}
	dlq := l.Topic("billing.invoices.v1.dlq")
	l.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		x, err := deadletter.Parse(dlq, r, l.Ring)
		if err != nil {
			t.Errorf("a letter cannot be read: %v", err)
			return
		}
		c.letters[x.Class.String()]++
		c.dead[x.Original] = append(c.dead[x.Original], x)
	})
	l.Each(retry, func(_ pipeline.TP, r *pipeline.Record) {
		tr, _, err := deadletter.ParseTrail(retry, r, l.Ring)
		switch {
		case err != nil:
			t.Errorf("a record of the retry topic cannot be read: %v", err)
		case tr.Redrive != "":
			c.redriven[tr.Original]++
			c.sends = append(c.sends, r.TimeMS)
		default:
			c.retried[tr.Original]++
		}
	})
	return c
}

// busiest is the most times in any half-open second.
func busiest(ms []int64) (most int) {
	slices.Sort(ms)
	for from, i := 0, 0; i < len(ms); i++ {
		for ms[i]-ms[from] >= 1000 {
			from++
		}
		most = max(most, i-from+1)
	}
	return most
}

// prove counts everything that stands anywhere and compares it with what was sent.
func prove(t *testing.T, a *audit, l *lab.Lab, g *provider, s settings, x scenario, f *traffic, w *watcher, p *progress, before *counted, ends []runEnd) {
	t.Helper()
	after := count(t, l, l.Topic("billing.invoices.v1.retry"))
	st := g.stats()
	a.fact("gateway", st)
	a.fact("letters", before.letters)

	// No partition stalled.
	worst := time.Duration(0)
	per := map[string]string{}
	for part, d := range p.longest {
		worst = max(worst, d)
		per[fmt.Sprint(part)] = d.Round(time.Millisecond).String()
	}
	a.fact("longest_without_a_commit", per)
	if x.pause {
		a.fact("note", "outage: pause holds partitions back on purpose")
	} else {
		a.must(len(p.longest) == partitions && worst <= stallWithin, "no partition stalled in the outage", "longest time without a commit %s, of %d partitions", worst.Round(time.Millisecond), len(p.longest))
	}

	// Poison.
	poison, late, most := 0, 0, time.Duration(0)
	var slowest *invoice
	var all []float64
	for at, v := range f.all {
		if v.poison == billing.None || v.warm {
			continue
		}
		poison++
		seen, ok := w.seen[at]
		switch {
		case !ok:
			late++
		default:
			d := seen.Sub(v.sent)
			all = append(all, float64(d.Microseconds())/1000)
			if d > most {
				most, slowest = d, v
			}
		}
	}
	slices.Sort(all)
	a.fact("poison_ms", all)
	if slowest != nil {
		a.fact("poison_slowest_sent_at", slowest.sent.UTC().Format("15:04:05.000"))
	}
	if x.pause {
		a.must(poison == poisonCount && late == 0, "every poison invoice is in the dead-letter topic", "%d of %d; a partition that waits is slowed: the slowest after %s", poison-late, poison, most.Round(time.Millisecond))
	} else {
		a.must(poison == poisonCount && late == 0, "every poison invoice is in the dead-letter topic", "%d of %d", poison-late, poison)
		a.within(most <= deadWithin, "a poison invoice is in the dead-letter topic within 200 ms", "the slowest after %s", most.Round(100*time.Microsecond))
	}

	// What the outage did.
	wrongAttempts, wrongRetries, healthy, gatewayLetters := 0, 0, 0, 0
	for at, list := range before.dead {
		v := f.all[at]
		if v == nil || len(list) != 1 {
			t.Errorf("%s has %d letters", at, len(list))
			continue
		}
		if v.poison != billing.None {
			continue
		}
		healthy++
		if !v.gateway {
			continue
		}
		gatewayLetters++
		want := 0
		if x.idempotent {
			want = 5
		}
		if list[0].Decision.Attempt != uint8(want) {
			wrongAttempts++
		}
		if before.retried[at] != want {
			wrongRetries++
		}
	}
	switch {
	case x.pause:
		a.must(healthy == 0, "the outage put no healthy invoice into quarantine", "%d", healthy)
	case x.idempotent:
		a.must(gatewayLetters > 0 && gatewayLetters == healthy && wrongAttempts == 0 && wrongRetries == 0, "what the outage refused was retried 5 times, then quarantined (X-Attempt-Count 5)",
			"%d invoices; %d with another count, %d with other retries", gatewayLetters, wrongAttempts, wrongRetries)
	default:
		a.must(gatewayLetters > 0 && gatewayLetters == healthy && wrongAttempts == 0 && wrongRetries == 0, "what may have happened was not retried (X-Attempt-Count 0)",
			"%d invoices; %d with another count, %d retried", gatewayLetters, wrongAttempts, wrongRetries)
	}
	a.within(st.Slowest <= answerWithin, "the restored gateway answers within 150 ms", "%d answers, the slowest %.1f ms", st.Answered, st.Slowest)

	// The redrive.
	halted := ""
	reconciled := int64(0)
	for _, e := range ends {
		if e.Halt != nil {
			halted = e.Halt.By + ": " + e.Halt.Reason
		}
		reconciled += e.Counts["reconciled"]
		a.must(e.State == "DONE" && e.code == 0, "the redrive is reconciled", "%s, exit %d: %s", e.State, e.code, e.Detail+lastLine(e.errs))
	}
	if s.wrong != "" {
		a.fact("halt", halted)
		a.say("the halt: %s", halted)
		if halted == "" {
			a.must(false, "a mismatch trips the halt", "no halt stands after %s", s.wrong)
		}
	}
	once, more := 0, 0
	for at, n := range after.redriven {
		if n == 1 && before.dead[at] != nil {
			once++
		} else {
			more++
		}
	}
	want := gatewayLetters
	if !x.idempotent {
		want -= int(st.Lost) // the question said that they are debited
	}
	if x.pause {
		want = 0
	}
	a.must(once == want && more == 0, "each redriven invoice passed the retry topic once", "%d of %d once, %d otherwise; %d were debited already", once, want, more, gatewayLetters-want)
	a.must(int(reconciled) == gatewayLetters || x.pause, "every quarantined invoice is reconciled", "%d of %d", reconciled, gatewayLetters)
	if len(after.sends) > 0 {
		most := busiest(after.sends)
		a.fact("redrive_busiest_second", most)
		a.must(most <= redriveRate, "two executors never sent more than 50 in a second", "%d in the busiest", most)
	}

	// Money.
	debits := g.debits()
	var due, paid int64
	missing, twice, wrong := 0, 0, 0
	for _, v := range f.all {
		if !v.gateway || v.poison != billing.None {
			continue
		}
		due += v.amount
		d, ok := debits[v.token]
		switch {
		case !ok:
			missing++
		case d.times != 1:
			twice++
		case d.amount != v.amount || d.invoice != v.id || d.noted != 1:
			wrong++
		}
		paid += d.amount
		delete(debits, v.token)
	}
	for _, d := range debits {
		paid += d.amount
	}
	a.fact("invoiced_minor", due)
	a.fact("debited_minor", paid)
	a.must(due == paid && missing+twice+wrong+len(debits) == 0, "debits equal invoices to the cent", "invoiced %d.%02d, debited %d.%02d; %d missing, %d twice, %d wrong, %d unknown",
		due/100, due%100, paid/100, paid%100, missing, twice, wrong, len(debits))

	// Nothing dropped.
	delivered := map[string]int{}
	fields := eventReader(t, l)
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) { delivered[fields(r)]++ })
	}
	lost, again := 0, 0
	for at, v := range f.all {
		switch {
		case v.poison != billing.None:
			if before.dead[at] == nil {
				lost++
			}
		case v.gateway: // counted as money
		case delivered[v.id] == 0:
			lost++
		case delivered[v.id] > 1:
			again++
		}
	}
	a.must(lost == 0 && again == 0, "nothing is dropped, nothing is there twice", "%d lost, %d twice of %d", lost, again, len(f.all))
	_, errs, code := l.Run("ledger", "verify")
	a.must(code == 0, "the history of custody verifies", "exit %d%s", code, lastLine(errs))
}

func lastLine(text string) string {
	text = strings.TrimSpace(text)
	if text == "" {
		return ""
	}
	return "; " + text[strings.LastIndexByte(text, '\n')+1:]
}

// eventReader reads the invoice id of a delivered record.
func eventReader(t *testing.T, l *lab.Lab) func(*pipeline.Record) string {
	t.Helper()
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "avro"}, l.Codec)
	if err != nil {
		t.Fatal(err)
	}
	scratch := codec.NewScratch()
	return func(r *pipeline.Record) string {
		scratch.Reset()
		v, f := dec.Decode(context.Background(), scratch, r.Value, r.Headers)
		if f != nil || v == nil {
			return ""
		}
		got, _ := v.Get(fieldPaths[0])
		return string(got.Bytes)
	}
}
