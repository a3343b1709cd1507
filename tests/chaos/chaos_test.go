// Package chaos kills workers at random points against a real Kafka and counts, by reading the topics, what became of every
// record.
package chaos

import (
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// rounds is how often the worker is killed: ROUNDS, 8 by default.
func rounds(t *testing.T) int {
	n, err := strconv.Atoi(os.Getenv("ROUNDS"))
	if err != nil {
		return 8
	}
	if n < 1 || n > 1000 {
		t.Fatalf("ROUNDS=%d", n)
	}
	return n
}

// A run of 50,000 records is killed at random points, again and again: nothing is lost, whatever was done twice.
func TestChaosKillLosesNothing(t *testing.T) { kills(t, false) }

// With exactly_once nothing is there twice either, for readers of committed records.
func TestChaosKillExactlyOnce(t *testing.T) { kills(t, true) }

func kills(t *testing.T, exactly bool) {
	l := lab.New(t, services.Kafka(t))
	if exactly {
		l.Edit("pipelines/billing.yaml", "delivery: at_least_once", "delivery: exactly_once")
		// on the same cluster letters are in the transaction; on another one they are unique by quarantine id only
		l.Edit("pipelines/billing.yaml", "cluster: dlq", "cluster: main")
	}
	const records = 50_000
	g := billing.Generator{Seed: 11, Count: records, Poison: 0.002, Secrets: 0.01, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	for m := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
	}
	in, retry := l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry")
	times := rounds(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d kills", seed, times)
	random := rand.New(rand.NewPCG(seed, 1))
	share := records / times
	for k := range times {
		// Each kill meets fresh records in flight; the last share also has what is left.
		end := (k + 1) * share
		if k == times-1 {
			end = records
		}
		l.Write(msgs[k*share : end])
		w := l.Start("pipelines/billing.yaml", "--instance-id", "chaos-1")
		before := outputs(l)
		// Somewhere between the first output of this life and the last, or before it.
		l.Until(90*time.Second, "an output of the worker", func() bool { return w.Exited() || outputs(l) > before })
		if w.Exited() {
			t.Fatalf("the worker ended by itself in round %d", k)
		}
		pause := time.NewTimer(time.Duration(random.Int64N(int64(400 * time.Millisecond))))
		<-pause.C // the random point of the kill
		w.Kill()
	}
	w := l.Start("pipelines/billing.yaml", "--instance-id", "chaos-1")
	// The life before may have settled everything: this one takes the partitions back before it is asked to drain.
	l.Until(time.Minute, "the partitions of the last worker", func() bool { return w.Exited() || strings.Contains(w.Log(), "partitions assigned") })
	l.Until(2*time.Minute, "the end of the source topic", func() bool { return l.Settled(l.Group("billing-event-processor"), in, retry) })
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}

	tally(t, l, records, exactly)
}

// tally counts, by reading the topics, what became of every record of the source topic.
func tally(t *testing.T, l *lab.Lab, records int, exactly bool) {
	t.Helper()
	in := l.Topic("billing.invoices.v1")
	out, dead := map[string]int{}, map[pipeline.Position]int{}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "avro"}, l.Codec)
	if err != nil {
		t.Fatal(err)
	}
	scratch := codec.NewScratch()
	path, _ := pipeline.NewPath("/event_id")
	event := func(r *pipeline.Record) string {
		scratch.Reset()
		v, f := dec.Decode(t.Context(), scratch, r.Value, r.Headers)
		if f != nil || v == nil {
			return ""
		}
		val, _ := v.Get(path)
		return string(val.Bytes)
	}
	total := 0
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) { out[event(r)]++; total++ })
	}
	dlq := l.Topic("billing.invoices.v1.dlq")
	l.Each(dlq, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(dlq, r, l.Ring)
		if err != nil {
			t.Fatal(err)
		}
		dead[letter.Original]++
	})
	lost, seen := 0, 0
	l.Each(in, func(tp pipeline.TP, r *pipeline.Record) {
		seen++
		if dead[pipeline.Position{TP: tp, Offset: r.Offset}] == 0 && out[event(r)] == 0 {
			lost++
		}
	})
	t.Logf("%d records, %d delivered of which %d again, %d dead letters, %d lost", seen, total, total-len(out), len(dead), lost)
	if twice := total - len(out); exactly && twice != 0 {
		t.Errorf("%d records are there twice", twice)
	}
	for at, n := range dead {
		if exactly && n != 1 {
			t.Errorf("%s has %d dead letters", at, n)
		}
	}
	if lost != 0 || seen != records || len(out)+len(dead) != records {
		t.Errorf("lost %d; %d delivered and %d dead letters of %d", lost, len(out), len(dead), records)
	}
}

// outputs is how many records stand in the destination topics.
func outputs(l *lab.Lab) (n int64) {
	for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
		ends, err := l.Admin.EndOffsets(l.T.Context(), l.Topic(topic))
		if err != nil {
			return n
		}
		for _, end := range ends {
			n += end
		}
	}
	return n
}
