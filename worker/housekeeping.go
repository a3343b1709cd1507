package worker

import (
	"context"
	"strconv"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// How often one worker for all looks at what is due.
const (
	careEvery = 10 * time.Minute
	careLease = 3 * careEvery
)

// superviseCare does until ctx ends what is due in the ledger: it tells owners of what ends soon and of what is late, expires what is
// over, and deletes archives of erased items. One worker does it for all.
func (w *Worker) superviseCare(ctx context.Context) {
	alerts := w.o.Plan.Alerts(w.o.Clock, w.o.Log)
	for ctx.Err() == nil {
		if err := w.care(ctx, alerts); err != nil && ctx.Err() == nil {
			w.o.Log.Error("retention and notices could not be looked after", "code", pipeline.CodeOf(err), "cause", err.Error(), "remedy", pipeline.Lookup(pipeline.CodeOf(err)).Remedy)
		}
		_ = wait(ctx, careEvery) // the loop looks at ctx itself
	}
}

func (w *Worker) care(ctx context.Context, alerts *Alerts) error {
	p := w.o.Plan
	db, err := w.ledger(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	logs := p.Logs(ctx)
	defer logs.Close()
	large, closeLarge := p.Large()
	defer closeLarge()
	items := custody.New(db, custody.Options{Large: large, Clock: w.o.Clock, Identity: w.keys.Identity, Ring: w.keys.Ring, Log: w.o.Log, Roles: p.Roles(), Source: logs.Of, Schemas: p.Schemas(w.o.Clock)})
	who := custody.System("retention")
	if mine, err := items.Lead(ctx, w.holder(), careLease); err != nil || !mine {
		return err
	}
	r := p.Retention()
	bucket, closing, err := p.Archive(ctx)
	if err != nil {
		return err
	}
	defer closing()
	r.Archive = bucket
	if err := tellAll(ctx, items, who, r, p, alerts); err != nil {
		return err
	}
	e, err := items.Expire(ctx, who, r, nil)
	if e.Expired+e.Payloads > 0 {
		w.o.Log.Info("retention", "expired", e.Expired, "payloads_dropped", e.Payloads, "held", e.Held)
	}
	if err != nil || bucket == nil {
		return err
	}
	_, err = items.Unarchive(ctx, who, bucket)
	return err
}

// holder is this process in the ledger's leases.
func (w *Worker) holder() string {
	if w.o.Plan.Config.Name != "" {
		return w.o.Plan.Config.Name + "/" + w.o.Host
	}
	return w.o.Host
}

// tellAll tells every notice that is due. One that cannot be delivered is told again the next time; the others go out.
func tellAll(ctx context.Context, items *custody.Items, who custody.Actor, r custody.Retention, p *Plan, alerts *Alerts) (first error) {
	due, err := items.Due(ctx, who, r, p.Config.Custody.Retention.Escalate, p.Objectives())
	if err != nil {
		return err
	}
	for _, n := range due {
		x := Alert{To: n.Owner, Tenant: n.Tenant, Detail: map[string]string{"items": strconv.FormatInt(n.Items, 10), "subject": n.Subject}}
		at := time.UnixMilli(n.FirstMS).UTC().Format(pipeline.TimeForm)
		switch n.Kind {
		case custody.NoticeEnding:
			x.Code, x.Detail["first_ends"] = pipeline.CodeRetentionEnding, at
		case custody.NoticeOutlived:
			x.Code, x.Detail["what"], x.Detail["first_ends"] = pipeline.CodeRetentionOutlived, n.Text, at
			if n.FirstMS == 0 {
				x.Detail["first_ends"] = "now"
			}
		case custody.NoticeEscalated:
			x.Code, x.Detail["first_ends"] = pipeline.CodeRetentionEscalated, at
		case custody.NoticeOverdue:
			x.Code, x.Detail["oldest_since"], x.Detail["limit"] = pipeline.CodeObjectiveMissed, at, n.Limit.String()
		}
		err := alerts.Send(ctx, x)
		if err == nil {
			err = items.Told(ctx, who, n)
		}
		if err != nil && first == nil {
			first = err
		}
	}
	return first
}
