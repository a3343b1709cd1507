package drill

import (
	"context"
	"math"
	"sync"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/lab"
)

// invoice is the truth about one that was sent.
type invoice struct {
	id, token string
	amount    int64
	gateway   bool // its effect is a debit; else it is delivered to a topic
	poison    billing.Defect
	warm      bool      // sent before the drill begins, while clients and caches start: its latency says nothing
	sent      time.Time // just before it was handed to the client
}

// traffic is the live flow.
type traffic struct {
	t     *testing.T
	l     *lab.Lab
	rate  int
	every int // each so many-th invoice calls the gateway
	gen   billing.Generator
	first int // number of the first invoice
	warm  bool

	mu   sync.Mutex
	all  map[pipeline.Position]*invoice
	sent int
}

// newTraffic is a flow of n invoices of which exactly poison are defect and each every-th calls the gateway.
func newTraffic(t *testing.T, l *lab.Lab, n, rate, poison, every int) *traffic {
	share := math.Ceil(float64(poison)*1e6/float64(n)) / 1e6
	return &traffic{t: t, l: l, rate: rate, every: every, all: make(map[pipeline.Position]*invoice, n),
		gen: billing.Generator{Seed: uint64(time.Now().UnixNano()), Count: n, Poison: share, Secrets: 0.01, SchemaID: l.SchemaID}}
}

// run sends the invoices, so many a second, until all are acknowledged.
func (f *traffic) run(ctx context.Context) {
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: f.l.Cluster, ClientID: "drill"})
	if err != nil {
		f.t.Error(err)
		return
	}
	defer func() { _ = sink.Close(context.WithoutCancel(ctx)) }()
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "avro"}, f.l.Codec)
	if err != nil {
		f.t.Error(err)
		return
	}
	fields := reader{t: f.t, dec: dec, scratch: codec.NewScratch()}
	from := time.Now()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	open, next := 0, 0
	for next < f.gen.Count || open > 0 {
		select {
		case <-ctx.Done():
			return
		case s := <-sink.Done():
			open--
			if len(s.Bad) > 0 {
				f.t.Errorf("the broker refused an invoice: %s", s.Bad[0].Failure.Reason())
				return
			}
			f.acknowledged(s)
			continue
		case <-tick.C:
		}
		due := min(f.gen.Count, int(time.Since(from).Seconds()*float64(f.rate)))
		if due <= next {
			continue
		}
		s := &pipeline.Sending{Msgs: make([]pipeline.Message, due-next)}
		list := make([]*invoice, due-next)
		at := time.Now()
		for i := range s.Msgs {
			label := f.gen.Invoice(&s.Msgs[i], f.first+next+i)
			s.Msgs[i].Topic = f.l.Topic(billing.InvoicesTopic)
			v := &invoice{gateway: (f.first+next+i+1)%f.every == 0, poison: label.Defect, warm: f.warm, sent: at}
			if label.Defect == billing.None {
				v.id, v.token, v.amount = fields.of(&s.Msgs[i])
			}
			list[i] = v
		}
		s.Owner = list
		if err := sink.Send(s); err != nil {
			f.t.Errorf("send: %v", err)
			return
		}
		next, open = due, open+1
	}
}

func (f *traffic) acknowledged(s *pipeline.Sending) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, v := range s.Owner.([]*invoice) {
		m := &s.Msgs[i]
		f.all[pipeline.Position{TP: pipeline.TP{Topic: m.Topic, Partition: m.Partition}, Offset: m.Offset}] = v
	}
	f.sent += len(s.Msgs)
}

// reader reads the fields of an invoice.
type reader struct {
	t       *testing.T
	dec     *codec.Decoder
	scratch *codec.Scratch
}

var fieldPaths = func() (out [3]*pipeline.Path) {
	for i, p := range []string{"/invoice_id", "/token", "/amount_minor"} {
		out[i], _ = pipeline.NewPath(p) // a constant
	}
	return out
}()

func (r *reader) of(m *pipeline.Message) (id, token string, amount int64) {
	r.scratch.Reset()
	v, f := r.dec.Decode(context.Background(), r.scratch, m.Value, m.Headers)
	if f != nil {
		r.t.Errorf("an invoice of ours cannot be read: %s", f.Reason())
		return "", "", 0
	}
	for i, p := range fieldPaths {
		got, ok := v.Get(p)
		if !ok {
			r.t.Errorf("an invoice of ours has no %s", p)
			return "", "", 0
		}
		switch i {
		case 0:
			id = string(got.Bytes)
		case 1:
			token = string(got.Bytes)
		case 2:
			amount = got.Int
		}
	}
	return id, token, amount
}

// watcher reads the dead-letter topic as it is written and notes when each letter was there.
type watcher struct {
	mu   sync.Mutex
	seen map[pipeline.Position]time.Time
}

func watch(ctx context.Context, t *testing.T, l *lab.Lab) *watcher {
	t.Helper()
	topic := l.Topic("billing.invoices.v1.dlq")
	src, err := kafka.NewSource(kafka.SourceConfig{Cluster: l.Cluster, Group: l.Group("drill-watcher"), Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	w := &watcher{seen: map[pipeline.Position]time.Time{}}
	done := make(chan struct{})
	ready := make(chan struct{})
	go func() {
		defer close(done)
		defer src.Close()
		told := false
		for ctx.Err() == nil {
			ev, err := src.Poll(5 * time.Millisecond)
			if err != nil {
				t.Errorf("the watcher of dead letters: %v", err)
				return
			}
			switch b := ev.(type) {
			case pipeline.Assigned:
				if !told {
					told = true
					close(ready)
				}
			case *pipeline.Batch:
				w.take(topic, b, l)
			}
		}
	}()
	t.Cleanup(func() { <-done })
	select {
	case <-ready:
	case <-time.After(30 * time.Second):
		t.Fatal("the watcher of dead letters got no partition")
	}
	return w
}

func (w *watcher) take(topic string, b *pipeline.Batch, l *lab.Lab) {
	defer b.Release()
	at := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range b.Recs {
		if deadletter.IsProbe(&b.Recs[i]) {
			continue
		}
		if letter, err := deadletter.Parse(topic, &b.Recs[i], l.Ring); err == nil {
			if _, again := w.seen[letter.Original]; !again {
				w.seen[letter.Original] = at
			}
		}
	}
}

// progress watches how long each partition of the source goes without a commit while something waits in it.
type progress struct {
	mu      sync.Mutex
	longest map[int32]time.Duration
	last    map[int32]int64 // committed
	since   map[int32]time.Time
}

func (p *progress) run(ctx context.Context, l *lab.Lab, topic, group string) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		points, err := l.Admin.Checkpoints(ctx, group)
		if err != nil {
			continue // a look that failed is no stall: the next one sees it longer
		}
		ends, err := l.Admin.EndOffsets(ctx, topic)
		if err != nil {
			continue
		}
		at := time.Now()
		p.mu.Lock()
		for part, end := range ends {
			next := points[pipeline.TP{Topic: topic, Partition: part}].Next
			if _, known := p.since[part]; !known || next > p.last[part] || next >= end {
				p.last[part], p.since[part] = next, at
			}
			p.longest[part] = max(p.longest[part], at.Sub(p.since[part]))
		}
		p.mu.Unlock()
	}
}
