package integration

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/worker"
)

// payments is a service that does what the end of an id says, and remembers what it was asked under each key.
type payments struct {
	*httptest.Server
	mu    sync.Mutex
	asked map[string]int // calls by idempotency key
	done  map[string]int // calls by key that it answered with 2xx
	order map[string][]string
	slow  chan struct{} // the first call of a slow id waits for it
}

func newPayments(t *testing.T) *payments {
	p := &payments{asked: map[string]int{}, done: map[string]int{}, order: map[string][]string{}, slow: make(chan struct{})}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		id, key := strings.TrimPrefix(r.URL.Path, "/invoices/"), r.Header.Get("Idempotency-Key")
		p.mu.Lock()
		p.asked[key]++
		first := p.asked[key] == 1
		p.mu.Unlock()
		if key != "key-"+id || r.Header.Get("Traceparent") != "00-"+id {
			t.Errorf("%s was called under the key %q with the trace %q", id, key, r.Header.Get("Traceparent"))
		}
		status := http.StatusCreated
		switch {
		case strings.HasSuffix(id, "refused"):
			status = http.StatusUnprocessableEntity
		case strings.HasSuffix(id, "broken"):
			status = http.StatusInternalServerError
		case strings.HasSuffix(id, "flaky") && first:
			status = http.StatusBadGateway
		case strings.HasSuffix(id, "slow") && first:
			select {
			case <-r.Context().Done():
			case <-p.slow:
			}
			return
		}
		if status == http.StatusCreated {
			account, _, _ := strings.Cut(id, "-")
			p.mu.Lock()
			p.done[key]++
			p.order[account] = append(p.order[account], id)
			p.mu.Unlock()
		}
		w.WriteHeader(status)
	}))
	t.Cleanup(func() {
		close(p.slow)
		p.Close()
	})
	return p
}

const effectsWorker = `
clusters: {main: {bootstrap.servers: "BOOTSTRAP"}}
keys: {hmac: [{id: k1, secret: "0123456789abcdef0123456789abcdef"}], identity: {id: i1, secret: "0123456789abcdef0123456789abcdef"}}
`

const effectsPipeline = `
apiVersion: reprieve/v1
pipeline: pay
owner: finance
delivery: DELIVERY
source:
  topics: [pay]
  group: payer
  tenant: {from: fixed, value: acme}
  identity: {event_id: /id}
stages:
  - decode: {format: json}
  - redact: {detectors: [pan]}
  - route:
      rules: [{when: 'view.kind == "note"', topic: notes}]
      default: {http: {name: payments, url: "URL/invoices/{/id}", idempotency_key: '"key-" + view.id', IDEMPOTENT timeout: 500ms, concurrency: 8}}
retry: {topic: pay.retry, backoff: {initial: 50ms}}
quarantine: {topic: pay.dlq}
outage: quarantine
reconcile: here
`

// loadFiles writes a worker file and one pipeline file and reads them.
func loadFiles(t *testing.T, workerText, pipelineText string) *worker.Plan {
	t.Helper()
	dir := t.TempDir()
	files := worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipeline.yaml")}}
	for name, text := range map[string]string{files.Worker: workerText, files.Pipelines[0]: pipelineText} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	plan, ps := worker.Load(files, stage.Kinds(), config.Options{ReadFile: os.ReadFile, Env: func(string) (string, bool) { return "", false }})
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	return plan
}

// platform makes the platform's own topics, and has the dead-letter topic keep letters.
func (c *cluster) platform(t *testing.T, dlq string) {
	t.Helper()
	c.create(t, 1, "reprieve.settlements", "reprieve.outcomes", "reprieve.control")
	for topic, configs := range map[string]map[string]string{dlq: {"retention.ms": "-1"}, "reprieve.control": {"cleanup.policy": "compact"}} {
		if err := c.admin.SetConfigs(t.Context(), topic, configs); err != nil {
			t.Fatal(err)
		}
	}
}

// runWorker runs the pipelines of a plan until the function that it returns is called.
func runWorker(t *testing.T, plan *worker.Plan) (stop func()) {
	t.Helper()
	w, err := worker.New(worker.Options{Plan: plan, Roles: []worker.Role{worker.RolePipelines}, Host: "w1", Clock: time.Now, Log: slog.Default(),
		Meter: worker.NewMeter(prometheus.NewRegistry()), Limits: engine.Limits{CommitEvery: 50 * time.Millisecond}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// until polls a broker with a deadline.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("%s did not come", what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Each invoice is paid once, in the order of its account; what the service refuses or leaves open is a letter or a retry, as the
// rule of ambiguous calls says.
func TestInvoicesArePaidByCalls(t *testing.T) {
	for _, c := range []struct {
		delivery   string
		idempotent bool
	}{{"at_least_once", true}, {"exactly_once", true}, {"at_least_once", false}} {
		t.Run(fmt.Sprintf("%s idempotent=%v", c.delivery, c.idempotent), func(t *testing.T) {
			broker := startCluster(t)
			broker.create(t, 3, "pay", "pay.retry", "pay.dlq", "notes")
			broker.platform(t, "pay.dlq")
			service := newPayments(t)
			word := ""
			if c.idempotent {
				word = "idempotent: true,"
			}
			plan := loadFiles(t, strings.Replace(effectsWorker, "BOOTSTRAP", broker.Properties["bootstrap.servers"], 1),
				strings.NewReplacer("DELIVERY", c.delivery, "URL", service.URL, "IDEMPOTENT", word).Replace(effectsPipeline))
			const n = 600
			var msgs []pipeline.Message
			for i := range n {
				id, kind := fmt.Sprintf("A%d-%04d", i%17, i), "invoice"
				switch {
				case i%100 == 5:
					id += "-refused"
				case i%200 == 7:
					id += "-broken"
				case i%100 == 9:
					id += "-flaky"
				case i == 111:
					id += "-slow"
				case i%10 == 3:
					kind = "note"
				}
				msgs = append(msgs, pipeline.Message{Topic: "pay", Partition: -1, Key: []byte(id[:strings.IndexByte(id, '-')]), Value: fmt.Appendf(nil, `{"id":%q,"kind":%q}`, id, kind),
					Headers: []pipeline.Header{{Name: "traceparent", Value: []byte("00-" + id)}}})
			}
			broker.write(t, msgs)
			stop := runWorker(t, plan)
			until(t, "the end of every invoice", func() bool {
				service.mu.Lock()
				paid := len(service.done)
				service.mu.Unlock()
				quarantined := 0
				for _, r := range broker.read(t, "pay.dlq") {
					if !deadletter.IsProbe(&r) {
						quarantined++
					}
				}
				return paid+quarantined+len(broker.read(t, "notes")) >= n
			})
			stop()

			keys, err := worker.NewKeys(plan.Config.Keys)
			if err != nil {
				t.Fatal(err)
			}
			letters := map[string]*deadletter.Letter{}
			for _, r := range broker.read(t, "pay.dlq") {
				if deadletter.IsProbe(&r) {
					continue
				}
				l, err := deadletter.Parse("pay.dlq", &r, keys.Ring)
				if err != nil {
					t.Fatal(err)
				}
				letters[l.Identity.EventID] = l
			}
			if notes := len(broker.read(t, "notes")); notes != n/10 {
				t.Errorf("%d notes", notes)
			}
			for i := range msgs {
				id := string(msgs[i].Headers[0].Value[3:])
				l, paid := letters[id], service.done["key-"+id]
				var want pipeline.Code
				calls := 1
				unknown := strings.HasSuffix(id, "broken") || strings.HasSuffix(id, "flaky") || strings.HasSuffix(id, "slow")
				switch {
				case strings.Contains(string(msgs[i].Value), "note"):
					calls = 0
				case strings.HasSuffix(id, "refused"):
					want = pipeline.CodeHTTPRejected
				case unknown && !c.idempotent:
					want = pipeline.CodeHTTPAmbiguous
				case strings.HasSuffix(id, "broken"):
					want, calls = pipeline.CodeRetryExhausted, 6
				case unknown:
					calls = 2
				}
				switch {
				case want == "" && (l != nil || paid != min(calls, 1)):
					t.Errorf("%s: letter %v, paid %d times", id, l, paid)
				case want != "" && (l == nil || l.Decision.Code != want || paid != 0 || want != pipeline.CodeRetryExhausted && l.Decision.Attempt != 0):
					t.Errorf("%s: letter %+v, paid %d times, want %s", id, l, paid, want)
				case want == pipeline.CodeRetryExhausted && service.asked["key-"+id] > 0 && service.asked["key-"+id] <= calls:
					// the circuit may have spared the service some of the calls
				case service.asked["key-"+id] != calls:
					t.Errorf("%s was called %d times, want %d", id, service.asked["key-"+id], calls)
				}
			}
			for account, ids := range service.order {
				last := ""
				for _, id := range ids {
					if strings.Count(id, "-") == 1 { // one that was retried comes later
						if id < last {
							t.Errorf("%s: %s was called after %s", account, id, last)
						}
						last = id
					}
				}
			}
		})
	}
}

// A service that fails on some records whatever happens looks down when they come first. It does not hold up the others for good.
func TestRecordsThatAServiceAlwaysFailsOnHoldUpNobody(t *testing.T) {
	broker := startCluster(t)
	broker.create(t, 1, "pay", "pay.retry", "pay.dlq", "notes")
	broker.platform(t, "pay.dlq")
	service := newPayments(t)
	plan := loadFiles(t, strings.Replace(effectsWorker, "BOOTSTRAP", broker.Properties["bootstrap.servers"], 1),
		strings.NewReplacer("DELIVERY", "at_least_once", "URL", service.URL, "IDEMPOTENT", "idempotent: true,", "outage: quarantine", "outage: pause").Replace(effectsPipeline))
	send := func(n int, end string) {
		var msgs []pipeline.Message
		for i := range n {
			id := fmt.Sprintf("A%d-%04d%s", i, i, end)
			msgs = append(msgs, pipeline.Message{Topic: "pay", Partition: -1, Value: fmt.Appendf(nil, `{"id":%q,"kind":"invoice"}`, id), Headers: []pipeline.Header{{Name: "traceparent", Value: []byte("00-" + id)}}})
		}
		broker.write(t, msgs)
	}
	send(8, "-broken")
	stop := runWorker(t, plan)
	calls := func(count func(key string, asked, done int) bool) (n int) {
		service.mu.Lock()
		defer service.mu.Unlock()
		for key, asked := range service.asked {
			if count(key, asked, service.done[key]) {
				n++
			}
		}
		return n
	}
	until(t, "the calls that open the circuit", func() bool {
		return calls(func(_ string, asked, _ int) bool { return asked > 0 }) >= 5
	})
	send(100, "")
	until(t, "every other call", func() bool {
		return calls(func(key string, _, done int) bool { return !strings.HasSuffix(key, "broken") && done == 1 }) == 100
	})
	stop()
	if n := calls(func(_ string, _, done int) bool { return done > 1 }); n > 0 {
		t.Errorf("%d calls were made twice", n)
	}
}
