package script_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/tests/conformance/script"
)

type tt struct{ *testing.T }

func (t tt) Run(name string, f func(conformance.T)) bool {
	return t.T.Run(name, func(t *testing.T) { f(tt{t}) })
}

// adapter opens scripted clients for the suites.
type adapter struct {
	c *script.Cluster
	n *atomic.Int64
}

func (a adapter) Name(prefix string) string { return fmt.Sprintf("%s-%d", prefix, a.n.Add(1)) }

func (a adapter) CreateTopic(_ conformance.T, partitions int, configs map[string]string) string {
	name := a.Name("topic")
	a.c.CreateTopic(name, partitions, configs)
	return name
}

func (a adapter) Source(t conformance.T, o conformance.SourceOptions) conformance.Source {
	s := a.c.Source(script.SourceOptions{Group: o.Group, Topics: o.Topics, Retry: o.Retry, MaxBatch: o.MaxBatch})
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func (a adapter) Sink(_ conformance.T, o conformance.SinkOptions) conformance.Sink {
	return a.c.Sink(script.SinkOptions{MaxInFlight: o.MaxInFlight})
}

func (a adapter) Tx(_ conformance.T, id string) conformance.Tx {
	return a.c.Tx(id, script.SinkOptions{})
}

func (a adapter) Log(conformance.T) pipeline.Log { return a.c.Log(nil) }

func (a adapter) Committed(_ conformance.T, group string) map[pipeline.TP]pipeline.Checkpoint {
	return a.c.Committed(group)
}

func TestScriptConforms(t *testing.T) {
	conformance.All(tt{t}, adapter{c: script.New(1_760_000_000_000), n: new(atomic.Int64)})
}
