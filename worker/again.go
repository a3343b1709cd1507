package worker

import (
	"context"
	"slices"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// again runs a part of the worker until it ends without an error or ctx ends: after an error it logs text with the code, the cause
// and the remedy, waits, longer each time, and starts it anew. attrs stand before these.
func (w *Worker) again(ctx context.Context, text string, run func() error, attrs ...any) {
	backoff := time.Second
	for ctx.Err() == nil {
		err := run()
		if err == nil || ctx.Err() != nil {
			return
		}
		code := pipeline.CodeOf(err)
		w.o.Log.Error(text, append(slices.Clip(attrs), "code", code, "cause", err.Error(), "remedy", pipeline.Lookup(code).Remedy, "in", backoff.String())...)
		_ = wait(ctx, backoff) // the loop looks at ctx itself
		backoff = min(2*backoff, 30*time.Second)
	}
}

// ledger opens the ledger of the worker file. Close it. Codes: ERR_CONFIG_REFERENCE, ERR_LEDGER_*.
func (w *Worker) ledger(ctx context.Context) (*ledger.DB, error) {
	url, err := w.o.Plan.LedgerURL("")
	if err != nil {
		return nil, err
	}
	return ledger.Open(ctx, url, ledger.Options{Clock: w.o.Clock, Log: w.o.Log})
}
