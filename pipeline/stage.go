package pipeline

import (
	"context"
	"log/slog"
)

// Stage is one step of the live lane. It marks records (Batch.Fail) and fills Outs. It has no effects, reorders, drops and
// keeps nothing, and is safe for concurrent use on different batches. A record's failure is b.Fail; a returned error means
// that this pipeline cannot go on.
type Stage interface {
	Process(ctx context.Context, b *Batch) error
}

// Phase orders the stages of a pipeline; the loader refuses a file that goes backwards.
type Phase uint8

// The phases.
const (
	PhaseDecode Phase = iota + 1
	PhaseClassify
	PhaseRedact
	PhaseEnrich
	PhaseRoute
)

var phaseNames = [...]string{"", "decode", "classify", "redact", "enrich", "route"}

// String is the phase's name.
func (p Phase) String() string { return phaseNames[p] }

// Close frees what a stage holds; nil is nothing to free.
type Close func() error

// Kind is a registered implementation of a stage. Settings live beside the stage; config only decodes strictly into them.
type Kind struct {
	Name     string
	Doc      string     // one sentence for the reference
	Phase    Phase      //
	Settings func() any // pointer to a struct with defaults and yaml tags
	Build    func(settings any, env Env) (Stage, Close, error)
}

// Env is what a stage may use.
type Env struct {
	Name     string // of the stage: its kind, or what the file calls it
	Pipeline string
	Layout   *Layout
	Log      *slog.Logger
	Meter    Meter
	Clock    Clock
	// Resource returns what the worker file names, e.g. ("registry", "main"); the stage knows its type. Codes:
	// ERR_CONFIG_REFERENCE.
	Resource func(kind, name string) (any, error)
}

// Counter only goes up.
type Counter interface{ Add(float64) }

// Gauge goes both ways.
type Gauge interface{ Set(float64) }

// Histogram counts observations.
type Histogram interface{ Observe(float64) }

// Meter makes metrics. Names are reprieve_*, units in names; labels are name, value pairs, bounded. Asking twice for the same
// name and labels returns the same metric.
type Meter interface {
	Counter(name, help string, labels ...string) Counter
	Gauge(name, help string, labels ...string) Gauge
	Histogram(name, help string, buckets []float64, labels ...string) Histogram
}
