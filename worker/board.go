package worker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
)

// boardOptions say which control topic is followed, as whom.
type boardOptions struct {
	plan    *Plan
	ring    *seal.Ring
	cluster kafka.Cluster
	name    string // of the client
	clock   pipeline.Clock
	log     *slog.Logger
	meter   pipeline.Meter
}

// openBoard follows the control topic of a cluster until closing is called. Codes: ERR_BROKER_CONFIG, ERR_CONFIG_VALUE.
func openBoard(ctx context.Context, o boardOptions) (board *control.Board, closing func(), err error) {
	a, err := o.plan.authority(o.ring)
	if err != nil {
		return nil, nil, err
	}
	log, err := kafka.NewLog(o.cluster, nil)
	if err != nil {
		return nil, nil, err
	}
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: o.cluster, ClientID: "reprieve-control-" + o.name, Log: o.log})
	if err != nil {
		log.Close()
		return nil, nil, err
	}
	board = control.NewBoard(control.Options{Topic: deadletter.ControlTopic(o.plan.Config.Topics.Prefix), Reader: log, Sink: sink, Authority: a,
		Clock: o.clock, Log: o.log, Meter: o.meter})
	ctx = context.WithoutCancel(ctx)
	run, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = board.Run(run) // it ends only with run
	}()
	return board, func() {
		stop()
		<-ended
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_ = sink.Close(ctx) // what matters was acknowledged to who asked for it
		log.Close()
	}, nil
}

// followed is the control topic of one pipeline's source cluster, known to its end.
type followed struct {
	pp      *PipelinePlan
	cluster kafka.Cluster
	board   *control.Board
	close   func()
}

// Close ends what following started.
func (f *followed) Close() { f.close() }

// follow opens the board of a pipeline; the cluster of o is not used. Codes: ERR_CONFIG_*, ERR_BROKER_*, ERR_CONTROL_NOT_READY.
func follow(ctx context.Context, pipelineName string, o boardOptions) (f followed, err error) {
	if f.pp, err = o.plan.Pipeline(pipelineName); err != nil {
		return f, err
	}
	if f.cluster, err = o.plan.Cluster(f.pp.Config.Source.Cluster); err != nil {
		return f, err
	}
	o.cluster = f.cluster
	if f.board, f.close, err = openBoard(ctx, o); err != nil {
		return f, err
	}
	if err = ready(ctx, f.board); err != nil {
		f.close()
	}
	return f, err
}

// ready waits until a board was read to its end. Codes: ERR_CONTROL_NOT_READY.
func ready(ctx context.Context, board *control.Board) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	return board.WaitReady(ctx)
}

// authority says whose signatures count on the control topic: the workers' keys and the persons of the worker file. Codes:
// ERR_CONFIG_VALUE.
func (p *Plan) authority(ring *seal.Ring) (*control.Authority, error) {
	approvers, err := p.approvers()
	if err != nil {
		return nil, err
	}
	a := &control.Authority{Ring: ring}
	roles := custody.DefaultRoles()
	for _, ap := range approvers {
		activates := slices.ContainsFunc(ap.Roles, func(role string) bool { return slices.Contains(roles[role], custody.PermPolicy) })
		a.Approvers = append(a.Approvers, control.Approver{Subject: ap.Key.Subject(), Key: ap.Key, Activates: activates})
	}
	return a, nil
}
