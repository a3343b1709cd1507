package worker

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/pipeline"
)

// meter makes Prometheus metrics. Asking twice for the same name and labels returns the same metric: pipelines that restart
// go on counting.
type meter struct{ reg prometheus.Registerer }

// NewMeter registers metrics with reg.
func NewMeter(reg prometheus.Registerer) pipeline.Meter { return meter{reg} }

func split(labels []string) (names []string, pairs prometheus.Labels) {
	pairs = prometheus.Labels{}
	for i := 0; i+1 < len(labels); i += 2 {
		names = append(names, labels[i])
		pairs[labels[i]] = labels[i+1]
	}
	return names, pairs
}

func register[V prometheus.Collector](reg prometheus.Registerer, v V) V {
	err := reg.Register(v)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if old, ok := already.ExistingCollector.(V); ok {
			return old
		}
	}
	return v
}

func (m meter) Counter(name, help string, labels ...string) pipeline.Counter {
	names, pairs := split(labels)
	return register(m.reg, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, names)).With(pairs)
}

func (m meter) Gauge(name, help string, labels ...string) pipeline.Gauge {
	names, pairs := split(labels)
	return register(m.reg, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, names)).With(pairs)
}

func (m meter) Histogram(name, help string, buckets []float64, labels ...string) pipeline.Histogram {
	names, pairs := split(labels)
	return register(m.reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, names)).With(pairs)
}
