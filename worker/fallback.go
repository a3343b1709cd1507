package worker

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	"gocloud.dev/blob"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/kafka"
)

// Fallbacks opens the fallback stores of a pipeline, in order. Close them. Codes: ERR_CONFIG_REFERENCE, ERR_FALLBACK_FAILED (a bucket
// cannot be opened; a ledger is opened when it is needed).
func (p *Plan) Fallbacks(ctx context.Context, c *config.Pipeline, o ledger.Options) (stores []custody.FallbackStore, closing pipeline.Close, err error) {
	var closers []pipeline.Close
	closing = func() error {
		var errs []error
		for _, f := range slices.Backward(closers) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	for i, f := range c.Quarantine.Fallback {
		if f.Ledger != "" {
			url, err := p.LedgerURL(f.Ledger)
			if err != nil {
				return nil, nil, errors.Join(err, closing())
			}
			s := custody.NewLedgerFallback(func(ctx context.Context) (*ledger.DB, error) { return ledger.Open(context.WithoutCancel(ctx), url, o) })
			stores, closers = append(stores, s), append(closers, s.Close)
			continue
		}
		b, err := blob.OpenBucket(ctx, f.Blob)
		if err != nil {
			place := "quarantine.fallback[" + strconv.Itoa(i) + "].blob"
			return nil, nil, errors.Join(&pipeline.Error{Code: pipeline.CodeFallbackFailed, Place: place, Text: "the bucket cannot be opened: " + err.Error(), Cause: err}, closing())
		}
		stores, closers = append(stores, custody.NewBlobFallback(objects{b})), append(closers, b.Close)
	}
	return stores, closing, nil
}

// republishEvery is how often fallback stores are looked into.
const republishEvery = 2 * time.Second

// fallback gives a pipeline its fallback stores, if it has any, and brings what they hold to the dead-letter topic when it is back.
func (w *Worker) fallback(ctx context.Context, ps *parts, o *engine.Options, c *config.Pipeline, letters kafka.Cluster) error {
	if len(c.Quarantine.Fallback) == 0 {
		return nil
	}
	stores, closing, err := w.o.Plan.Fallbacks(ctx, c, ledger.Options{Clock: w.o.Clock, Log: w.o.Log})
	if err != nil {
		return err
	}
	ps.close = append(ps.close, func() { logClose(w, c.Name, "fallback stores", closing()) })
	storing, cancel := context.WithCancel(context.WithoutCancel(ctx)) // letters are stored while the pipeline drains
	sink := custody.NewFallback(storing, c.Name, stores, w.o.Clock)
	ps.close = append(ps.close, func() {
		w.closeSink(c.Name+" fallback", sink.Close)
		cancel()
	})
	o.Fallback = sink
	run, stop := context.WithCancel(ctx)
	var publishing sync.WaitGroup
	publishing.Go(func() { w.republish(run, c.Name, stores, letters) })
	ps.close = append(ps.close, func() { stop(); publishing.Wait() })
	return nil
}

// republish looks into the stores until ctx ends. While the topic refuses letters still, it waits longer each time.
func (w *Worker) republish(ctx context.Context, name string, stores []custody.FallbackStore, letters kafka.Cluster) {
	pause := republishEvery
	for wait(ctx, pause) == nil {
		pause = republishEvery
		for _, s := range stores {
			n, err := w.republishStore(ctx, name, s, letters)
			if n > 0 {
				w.o.Log.Info("letters of the fallback store are on the dead-letter topic", "pipeline", name, "count", n)
			}
			if err != nil && ctx.Err() == nil {
				pause = 5 * republishEvery
				w.o.Log.Warn("letters wait in the fallback store", "pipeline", name, "code", pipeline.CodeOf(err), "cause", err.Error())
			}
		}
	}
}

// keepVaulted takes into the ledger what is too large for a vault topic.
func (w *Worker) keepVaulted(ctx context.Context, list []custody.TakenVault) error {
	db, err := w.ledger(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	items := custody.New(db, custody.Options{Clock: w.o.Clock, Identity: w.keys.Identity, Ring: w.keys.Ring, Log: w.o.Log})
	return items.Within(ctx, func(tx *ledger.Tx) error { return items.VaultTx(tx, list) })
}

func (w *Worker) republishStore(ctx context.Context, name string, s custody.FallbackStore, letters kafka.Cluster) (int, error) {
	if some, err := s.List(ctx, name, nil, 1); err != nil || len(some) == 0 {
		return 0, err
	}
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: letters, ClientID: "reprieve-" + name + "-fallback", Log: w.o.Log})
	if err != nil {
		return 0, err
	}
	defer w.closeSink(name+" fallback", sink.Close)
	return custody.Republish(ctx, s, name, sink, w.keys.Ring, w.keepVaulted)
}
