package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/tests/services"
	"reprieve.dev/worker"
)

// patience is how long the work of one record lasts in the test below: more than twice the time after which the library leaves the group
// for a program that does not poll.
const (
	pollInterval = 8 * time.Second
	patience     = 20 * time.Second
)

const patientPipeline = `
apiVersion: reprieve/v1
pipeline: patient
owner: finance
source:
  topics: [ID.in]
  group: ID.patient
  tenant: {from: fixed, value: acme}
  identity: {event_id: /id, idempotency_token: /id}
stages:
  - decode: {format: json}
  - redact: {detectors: [pan]}
  - dwell:  {}
  - enrich: {http: {url: "URL/{/ask}", timeout: 60s, take: {answer: /answer}}}
  - route:  {default: {topic: ID.out}}
retry: {topic: ID.retry}
quarantine: {topic: ID.dlq}
breaker: {off: true}
reconcile: here
`

// dwell is a stage that keeps the records that say so until it is let go.
type dwell struct {
	slow    *pipeline.Path
	entered chan<- struct{}
	leave   <-chan struct{}
}

func (d dwell) Process(ctx context.Context, b *pipeline.Batch) error {
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		if _, ok := b.Views[i].Get(d.slow); ok {
			d.entered <- struct{}{}
			select {
			case <-d.leave:
			case <-ctx.Done():
			}
		}
	}
	return nil
}

// Work on a record may last longer than max.poll.interval.ms, in a stage and in a look-up: the worker stays the member of its group
// that it is, and other partitions go on.
func TestSlowWorkNeverCostsTheAssignment(t *testing.T) {
	if testing.Short() {
		t.Skip("it lasts longer than the poll interval of a real broker's group")
	}
	id := "patient" + strconv.FormatInt(time.Now().UnixNano(), 36)
	c := &cluster{Cluster: kafka.Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": services.Kafka(t)}}}
	var err error
	if c.admin, err = kafka.NewAdmin(c.Cluster); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.admin.Close)
	c.create(t, 3, id+".in", id+".out", id+".retry", id+".dlq")
	c.create(t, 1, id+".settlements", id+".outcomes", id+".control")
	for topic, configs := range map[string]map[string]string{id + ".dlq": {"retention.ms": "-1"}, id + ".control": {"cleanup.policy": "compact"}} {
		if err := c.admin.SetConfigs(t.Context(), topic, configs); err != nil {
			t.Fatal(err)
		}
	}

	inStage, inLookup, leave := make(chan struct{}, 100), make(chan struct{}, 100), make(chan struct{})
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			inLookup <- struct{}{}
			select {
			case <-leave:
			case <-r.Context().Done():
			}
		}
		_, _ = io.WriteString(w, `{"answer": "yes"}`)
	}))
	t.Cleanup(service.Close)

	var msgs []pipeline.Message
	want := 0
	add := func(partition int32, text string) {
		msgs = append(msgs, pipeline.Message{Topic: id + ".in", Partition: partition, Key: fmt.Append(nil, want), Value: fmt.Appendf(nil, text, want)})
		want++
	}
	for range 5 {
		add(0, `{"id":"%d","ask":"quick"}`)
		add(1, `{"id":"%d","ask":"quick"}`)
	}
	add(0, `{"id":"%d","ask":"quick","slow":true}`)
	add(1, `{"id":"%d","ask":"slow"}`)
	c.write(t, msgs)

	stop := runWorker(t, patientPlan(t, c, id, service.URL, pipeline.Kind{
		Name: "dwell", Phase: pipeline.PhaseEnrich, Doc: "Keeps records.", Settings: func() any { return &struct{}{} },
		Build: func(any, pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
			slow, err := pipeline.NewPath("/slow")
			return dwell{slow, inStage, leave}, nil, err
		}}))
	for _, in := range []chan struct{}{inStage, inLookup} {
		select {
		case <-in:
		case <-time.After(2 * time.Minute):
			t.Fatal("the slow records did not come")
		}
	}
	before := members(t, c, id+".patient")
	for begun := time.Now(); time.Since(begun) < patience; {
		msgs = msgs[:0]
		add(2, `{"id":"%d","ask":"quick"}`)
		c.write(t, msgs)
		at := pipeline.TP{Topic: id + ".in", Partition: 2}
		for limit := time.Now().Add(time.Minute); ; {
			ends, err := c.admin.EndOffsets(t.Context(), at.Topic)
			if err != nil {
				t.Fatal(err)
			}
			if points, err := c.admin.Checkpoints(t.Context(), id+".patient"); err == nil && points[at].Next == ends[2] {
				break
			}
			if time.Now().After(limit) {
				t.Fatal("the other partition does not go on")
			}
			time.Sleep(50 * time.Millisecond) // between two looks at a broker
		}
	}
	if after := members(t, c, id+".patient"); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("the group had the members %v and has %v", before, after)
	}
	close(leave)
	for limit := time.Now().Add(time.Minute); !c.settled(t, id+".patient", id+".in"); {
		if time.Now().After(limit) {
			t.Fatal("the slow records were not settled")
		}
		time.Sleep(50 * time.Millisecond) // between two looks at a broker
	}
	stop()
	seen := map[string]int{}
	for _, r := range c.read(t, id+".out") {
		seen[string(r.Key)]++
	}
	if len(seen) != want {
		t.Errorf("%d of %d records arrived", len(seen), want)
	}
	for key, n := range seen {
		if n != 1 {
			t.Errorf("record %s arrived %d times: somebody else was given its partition", key, n)
		}
	}
}

// patientPlan reads the files of the test, with a kind of its own.
func patientPlan(t *testing.T, c *cluster, id, url string, kind pipeline.Kind) *worker.Plan {
	t.Helper()
	dir := t.TempDir()
	files := worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipeline.yaml")}}
	text := fmt.Sprintf("clusters: {main: {bootstrap.servers: %q, max.poll.interval.ms: %d, session.timeout.ms: 6000}}\ntopics: {prefix: %s}\n",
		c.Properties["bootstrap.servers"], pollInterval.Milliseconds(), id) +
		`keys: {hmac: [{id: k1, secret: "0123456789abcdef0123456789abcdef"}], identity: {id: i1, secret: "0123456789abcdef0123456789abcdef"}}` + "\n"
	for name, text := range map[string]string{files.Worker: text, files.Pipelines[0]: strings.NewReplacer("ID.", id+".", "URL", url).Replace(patientPipeline)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, ps := worker.Load(files, append(stage.Kinds(), kind), config.Options{ReadFile: os.ReadFile, Env: func(string) (string, bool) { return "", false }})
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	return plan
}

// members are the ids of a stable group's members: one that had to join again has another.
func members(t *testing.T, c *cluster, group string) (ids []string) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(c.Properties["bootstrap.servers"], ",")...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	groups, err := kadm.NewClient(client).DescribeGroups(t.Context(), group)
	if err != nil {
		t.Fatal(err)
	}
	g := groups[group]
	if g.Err != nil || g.State != "Stable" {
		t.Errorf("the group is %s: %v", g.State, g.Err)
	}
	for _, m := range g.Members {
		ids = append(ids, m.MemberID)
	}
	slices.Sort(ids)
	return ids
}
