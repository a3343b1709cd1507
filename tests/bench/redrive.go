package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
)

// What redrives promise.
const (
	plainBudget   = 8000 // items a second from the ledger to reconciled
	rateBudget    = 50   // most sends in a half-open second at 50/s
	redriveSource = 60_000
	rateSeconds   = 60
)

func redriveEntry() entry {
	return entry{names: []string{"redrive_plain", "redrive_rate"}, run: redrives}
}

// redrives fills the ledger with invoices that a rule refused, takes the rule away, and redrives them: from PostgreSQL through Kafka
// and the pipeline's stages to reconciled. globex's go as fast as they can, acme's at 50/s by two executors.
func redrives(ctx context.Context) (out []result, err error) {
	d, err := newDesk(ctx, setting("ITEMS", redriveSource))
	if d != nil {
		defer d.close()
	}
	if err != nil {
		return nil, err
	}
	if err := d.quarantine(ctx); err != nil {
		return nil, err
	}
	w, err := startChild(filepath.Join(d.dir, "open.log"), d.command(ctx, "run"))
	if err != nil {
		return nil, err
	}
	defer w.stop()
	digest, err := d.plan(ctx, "tenant=globex state=TRIAGED", "20000/s")
	if err != nil {
		return nil, err
	}
	if err := d.run(ctx, digest); err != nil {
		return nil, err
	}
	n, took, err := d.spent(ctx, digest)
	if err != nil {
		return nil, err
	}
	plain := result{Name: "redrive_plain", What: fmt.Sprintf("%d items from a PostgreSQL ledger through Kafka and the stages to reconciled", n), Unit: "items/s", Value: float64(n) / took.Seconds(), Budget: plainBudget}
	plain.OK = plain.Value >= plainBudget
	busiest, sent, err := d.paced(ctx)
	if err != nil {
		return nil, err
	}
	return append(out, plain, result{Name: "redrive_rate", What: fmt.Sprintf("most sends in any half-open second over %d s at 50/s, two executors sharing one row, %d sends", rateSeconds, sent),
		Unit: "sends/s", Value: float64(busiest)}.atMost(rateBudget)), nil
}

// spent is how many items a redrive had, and how long it took from its first intent to its judgement.
func (d *desk) spent(ctx context.Context, digest string) (items int64, took time.Duration, err error) {
	db, err := ledger.Open(ctx, d.ledger, ledger.Options{Clock: time.Now})
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	var from, to int64
	err = db.Read(ctx, func(tx *ledger.Tx) error {
		if _, err := tx.Row("SELECT min(written_ms) FROM intents WHERE manifest = ?", []any{digest}, &from); err != nil {
			return err
		}
		_, err := tx.Row("SELECT items, changed_ms FROM manifests WHERE digest = ? AND state = 'DONE'", []any{digest}, &items, &to)
		return err
	})
	if err == nil && items == 0 {
		err = fmt.Errorf("the redrive %s is not done", digest)
	}
	return items, time.Duration(to-from) * time.Millisecond, err
}

// paced runs two executors over two halves of what is left, for a while, and counts what they sent.
func (d *desk) paced(ctx context.Context) (busiest, sent int, err error) {
	if err := d.edit("pipelines/billing.yaml", "ceiling: 20000/s", "ceiling: 50/s"); err != nil { // of both executors together
		return 0, 0, err
	}
	before, err := d.sends(ctx)
	if err != nil {
		return 0, 0, err
	}
	var digests []string
	for _, sel := range []string{"tenant=acme state=TRIAGED partition<6", "tenant=acme state=TRIAGED partition>5"} {
		digest, err := d.plan(ctx, sel, "50/s")
		if err != nil {
			return 0, 0, err
		}
		digests = append(digests, digest)
	}
	limited, cancel := context.WithTimeout(ctx, rateSeconds*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, digest := range digests {
		wg.Go(func() { _ = d.run(limited, digest) }) // it is paused by the limit
	}
	wg.Wait()
	all, err := d.sends(ctx)
	if err != nil {
		return 0, 0, err
	}
	times := all[len(before):]
	slices.Sort(times)
	for from, i := 0, 0; i < len(times); i++ {
		for times[i]-times[from] >= 1000 {
			from++
		}
		busiest = max(busiest, i-from+1)
	}
	return busiest, len(times), nil
}

// sends are the times of all redriven records of the retry topic, in ms, oldest first.
func (d *desk) sends(ctx context.Context) (times []int64, err error) {
	log, err := kafka.NewLog(kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": d.bootstrap}}, nil)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	info, err := log.Info(ctx, d.retry)
	if err != nil {
		return nil, err
	}
	for p, r := range info.Partitions {
		if err := log.Read(ctx, pipeline.TP{Topic: d.retry, Partition: p}, func(yield func(int64) bool) {
			for off := r.First; off < r.Next && yield(off); off++ {
			}
		}, func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				if !deadletter.IsProbe(&b.Recs[i]) {
					times = append(times, b.Recs[i].TimeMS)
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.Sort(times)
	return times, nil
}
