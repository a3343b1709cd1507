package worker

import (
	"context"
	"errors"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/redact"
)

// door is where applications hand records over while the worker runs.
type door struct {
	in    *custody.Intake
	items *custody.Items
}

// QuarantineAll takes records into custody that an application hands over. Codes: as custody.Intake.QuarantineAll;
// ERR_CUSTODY_UNAVAILABLE while this worker takes none.
func (w *Worker) QuarantineAll(ctx context.Context, who custody.Actor, list []custody.Submission) ([]pipeline.ID, error) {
	d, err := w.opened()
	if err != nil {
		return nil, err
	}
	return d.in.QuarantineAll(ctx, who, list)
}

// Outcome writes what a registered writer has signed to the outcomes topic. Codes: as custody.Intake.Outcome.
func (w *Worker) Outcome(ctx context.Context, who custody.Actor, value []byte) (pipeline.Outcome, error) {
	d, err := w.opened()
	if err != nil {
		return pipeline.Outcome{}, err
	}
	return d.in.Outcome(ctx, who, value)
}

// SourceMoved takes the statement that a source has moved past a record. Codes: as custody.Items.SourceMoved.
func (w *Worker) SourceMoved(ctx context.Context, who custody.Actor, id pipeline.ID) error {
	d, err := w.opened()
	if err != nil {
		return err
	}
	return d.items.SourceMoved(ctx, who, id)
}

func (w *Worker) opened() (*door, error) {
	if d := w.door.Load(); d != nil {
		return d, nil
	}
	return nil, pipeline.Errorf(pipeline.CodeCustodyUnavailable, "", "this worker takes no records now")
}

// superviseIntake keeps the door open until ctx ends.
func (w *Worker) superviseIntake(ctx context.Context) {
	w.again(ctx, "the intake cannot open yet", func() error { return w.runIntake(ctx) })
}

// runIntake opens the ledger, which is asked only when a caller is refused or says that its source moved on, and a producer for
// each cluster, and closes them when ctx ends.
func (w *Worker) runIntake(ctx context.Context) error {
	p := w.o.Plan
	db, err := w.ledger(ctx)
	if err != nil {
		return err
	}
	defer db.Close()
	sinks := map[string]endingSink{}
	ended := make(chan error, 1)
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		for _, s := range sinks {
			_ = s.Close(ctx) // callers that were not answered send again
		}
	}()
	open := func(use, cluster string) error {
		if sinks[use+cluster].Sink != nil {
			return nil
		}
		c, err := p.Cluster(cluster)
		if err != nil {
			return err
		}
		s, err := kafka.NewSink(kafka.SinkConfig{Cluster: c, ClientID: "reprieve-intake", Log: w.o.Log})
		if err == nil {
			sinks[use+cluster] = endingSink{s, ended}
		}
		return err
	}
	targets := map[string]*PipelinePlan{}
	outcomes := ""
	for _, pp := range p.Pipelines {
		if err := open("", pp.Config.Quarantine.Cluster); err != nil {
			return err
		}
		targets[pp.Config.Name], outcomes = pp, pp.Config.Source.Cluster
	}
	sanitize, err := redact.New(redact.Config{}, redact.Options{HashKey: w.keys.Hash})
	if err != nil {
		return err
	}
	writers, err := writersOf(p)
	if err != nil {
		return err
	}
	items := custody.New(db, custody.Options{Clock: w.o.Clock, Identity: w.keys.Identity, Ring: w.keys.Ring, Log: w.o.Log, Roles: p.Roles()})
	o := custody.IntakeOptions{Items: items, Sanitizer: sanitize, Ring: w.keys.Ring, Writers: writers, Outcomes: deadletter.OutcomesTopic(p.Config.Topics.Prefix),
		Data: func(name string) string { return targets[name].Config.Quarantine.Data }, // Target has refused what is not there
		Target: func(name string) (string, pipeline.Sink, bool) {
			pp := targets[name]
			if pp == nil {
				return "", nil, false
			}
			return pp.Config.Quarantine.Topic, sinks[pp.Config.Quarantine.Cluster], true
		}}
	if p.Vaulted() {
		v := p.OpenVault(ctx, items, w.o.Clock) // its keeper is not asked: sealing needs public halves alone
		o.Sealer = func(name string) pipeline.Sealer {
			if pp := targets[name]; pp == nil || !pp.Config.Quarantine.Encrypt {
				return nil
			}
			return v.Sealer
		}
		strip, err := vaultStrip(w.keys)
		if err != nil {
			return err
		}
		o.Vault = &custody.IntakeVault{Sealer: v.Sealer, Strip: strip, Topic: func(name string) string { return targets[name].Config.Quarantine.VaultTopic() }}
	}
	if outcomes != "" {
		if err := open("outcomes of ", outcomes); err != nil {
			return err
		}
		o.OutcomeSink = sinks["outcomes of "+outcomes]
	}
	w.door.Store(&door{custody.NewIntake(o), items})
	defer w.door.Store(nil)
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

// endingSink tells when its sink is at its end: it takes nothing any more, and another one has to be opened.
type endingSink struct {
	*kafka.Sink
	ended chan<- error
}

func (s endingSink) Send(sending *pipeline.Sending) error {
	err := s.Sink.Send(sending)
	if err != nil && !errors.Is(err, pipeline.ErrFull) {
		select {
		case s.ended <- err:
		default: // somebody has told already
		}
	}
	return err
}

// Roles are the permissions by role of the worker file; nil: the built-in ones.
func (p *Plan) Roles() custody.Roles {
	if len(p.Config.HTTP.Roles) == 0 {
		return nil
	}
	roles := custody.DefaultRoles()
	for name, list := range p.Config.HTTP.Roles {
		roles[name] = nil
		for _, perm := range list {
			roles[name] = append(roles[name], custody.Permission(perm))
		}
	}
	return roles
}
