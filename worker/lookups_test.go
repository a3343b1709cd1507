package worker_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/worker"
)

// lookupFolder writes the worker file and pipeline of the suite tests, its enrich settings replaced.
func lookupFolder(t *testing.T, enrich string) (*worker.Plan, config.Problems) {
	t.Helper()
	dir := t.TempDir()
	head, rest, _ := strings.Cut(suitePipeline, "    enrich: ")
	_, rest, _ = strings.Cut(rest, "\n")
	for name, text := range map[string]string{
		"reprieve.yaml": suiteWorker, "pipelines/orders.yaml": head + "    enrich: " + enrich + "\n" + rest, "pipelines/countries.csv": "code,zone\nDE,eu\n", "pipelines/twice.csv": "code,zone\nDE,eu\nDE,x\n",
		"keys/hmac": "for tests only: signs headers\n", "keys/identity": "for tests only: makes item ids\n",
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt := config.Options{Env: func(string) (string, bool) { return "kafka:9092", true }, ReadFile: func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(dir, path)
		}
		return os.ReadFile(path)
	}}
	return worker.Load(worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "pipelines", "orders.yaml")}}, stage.Kinds(), opt)
}

// A service that goes down: the first failures are retried, then it is known to be down and the partition waits for it rather
// than using up attempts (outage: pause); when it is back, records go on.
func TestPartitionWaitsForAServiceThatIsKnownToBeDown(t *testing.T) {
	var down atomic.Bool
	var asked atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		if r.Header.Get("Authorization") != "Bearer kafka:9092" {
			t.Errorf("credentials: %q", r.Header.Get("Authorization"))
		}
		_, _ = w.Write([]byte(`{"tier":"gold"}`))
	}))
	t.Cleanup(server.Close)
	plan, ps := lookupFolder(t, `{http: {url: "`+server.URL+`/{tenant}/{/account}", headers: {Authorization: "Bearer ${TOKEN}"}, cache: {ttl: 0s}, take: {tier: /tier}}, table: {file: countries.csv, key: code, by: /country, take: {zone: zone}, missing: skip}}`)
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(1_800_000_000, 0)
	env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: func() time.Time { return now }}
	o, shut, err := plan.Pipelines[0].Assemble(t.Context(), plan, keys, env, func(string) (codec.Registry, error) { return nil, nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shut() })
	trial := engine.NewTrial(o)
	send := func() (code pipeline.Code, action string) {
		b := o.Pool.Get()
		b.TP.Topic, b.Recs = "orders.v1", append(b.Recs[:0], pipeline.Record{Value: []byte(`{"id":"e1","tenant":"acme","account":"A-1","country":"DE"}`)})
		if err := trial.Try(t.Context(), b, func(r engine.Tried) error {
			action = "deliver"
			if r.Failure != nil {
				code, action = r.Failure.Code, r.Decision.Action.String()
			}
			if len(r.Messages) > 0 {
				action += " " + r.Messages[0].Topic
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return code, action
	}
	if _, action := send(); action != "deliver orders.gold.v1" {
		t.Fatal(action)
	}
	down.Store(true)
	for i := range 4 {
		if code, action := send(); action != "retry orders.v1.retry" || code != pipeline.CodeHTTPUnavailable {
			t.Fatalf("failure %d: %s %s", i, action, code)
		}
	}
	before := asked.Load()
	for range 10 {
		if _, action := send(); action != "pause" {
			t.Fatal(action)
		}
	}
	if asked.Load() != before+1 {
		t.Errorf("a service that is down was asked %d times", asked.Load()-before)
	}
	down.Store(false)
	now = now.Add(time.Second)
	if _, action := send(); action != "deliver orders.gold.v1" {
		t.Error(action)
	}
}

func TestCheckNamesWhatALookupCannotUse(t *testing.T) {
	for enrich, want := range map[string]string{
		`{table: {file: none.csv, key: code, by: /country, take: {zone: zone}}}`:                                    "none.csv",
		`{table: {file: twice.csv, key: code, by: /country, take: {zone: zone}}}`:                                   "line 2 already",
		`{table: {file: countries.csv, key: code, by: /country, take: {zone: region}}}`:                             `no column "region"`,
		`{http: {url: "https://a/{/x}", take: {a: /a}, tls: {ca: none.pem}}}`:                                       "none.pem",
		`{http: {url: "https://a/{/x}", take: {a: /a}, into: b}}`:                                                   "it takes no member",
		`{http: {url: "https://{/x}/", take: {a: /a}}}`:                                                             "which server is asked",
		`{headers: {a: 'view.'}, table: {file: countries.csv, key: code, by: /country, take: {zone: zone}}}`:        "headers.a",
		`{table: {file: countries.csv, key: code, by: country, take: {zone: zone}}, http: {url: "https://a/{/x}"}}`: "http.take",
	} {
		_, ps := lookupFolder(t, enrich)
		if !strings.Contains(ps.Error(), want) || !strings.Contains(ps.Error(), "orders.yaml:") {
			t.Errorf("%s: %v, want %s", enrich, ps, want)
		}
	}
}
