package stage_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/stage"
)

// lane is a decode stage for JSON and one enrich stage from its text.
type lane struct {
	t      testing.TB
	stages []pipeline.Stage
	pool   *pipeline.Pool
	policy pipeline.Policy
}

type noMeter struct{}

func (noMeter) Counter(string, string, ...string) pipeline.Counter { return noMeter{} }
func (noMeter) Gauge(string, string, ...string) pipeline.Gauge     { return noMeter{} }
func (noMeter) Histogram(string, string, []float64, ...string) pipeline.Histogram {
	return noMeter{}
}
func (noMeter) Add(float64)     {}
func (noMeter) Set(float64)     {}
func (noMeter) Observe(float64) {}

func newLane(t testing.TB, enrich string, files map[string]string, topics ...stage.Follower) *lane {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id, err := stage.NewIdentity(stage.IdentityConfig{EventID: "header:event", Tenant: "/tenant"})
	if err != nil {
		t.Fatal(err)
	}
	layout := &pipeline.Layout{}
	l := &lane{t: t, pool: pipeline.NewPool(layout), policy: decide.Default(decide.Bounds{}, "r", "q", decide.Backoff{})}
	env := pipeline.Env{Pipeline: "p", Layout: layout, Log: slog.New(slog.DiscardHandler), Meter: noMeter{}, Clock: time.Now,
		Resource: func(kind, name string) (any, error) {
			switch kind {
			case stage.ResourceIdentity:
				return id, nil
			case stage.ResourceFile:
				return os.ReadFile(filepath.Join(dir, name))
			case stage.ResourceTopic:
				return topics[0], nil
			}
			return nil, pipeline.Errorf(pipeline.CodeConfigReference, name, "no %s", kind)
		}}
	for _, s := range [][2]string{{"decode", "{format: json}"}, {"enrich", enrich}} {
		built := build(t, env, s[0], s[1])
		l.stages = append(l.stages, built)
	}
	return l
}

// run gives what happens to each value: "header=text ..." or the code with its params. A value of "" is null.
func (l *lane) run(values ...string) []string {
	l.t.Helper()
	b := l.pool.Get()
	defer b.Release()
	b.TP.Topic = "t"
	for i, v := range values {
		r := pipeline.Record{Offset: int64(i), Value: []byte(v), Headers: []pipeline.Header{{Name: "event", Value: fmt.Append(nil, "evt ", i)}}}
		if v == "" {
			r.Value = nil
		}
		b.Recs = append(b.Recs, r)
	}
	b.Begin(l.policy)
	for _, s := range l.stages {
		if err := s.Process(l.t.Context(), b); err != nil {
			l.t.Fatal(err)
		}
	}
	var out []string
	for i := range b.Recs {
		var words []string
		for _, h := range b.Outs[i].Add {
			words = append(words, h.Name+"="+string(h.Value))
		}
		if f := b.Failure(i); f != nil {
			words = []string{string(f.Code)}
			for _, p := range f.Params {
				words = append(words, p.Name+"="+p.Value())
			}
			if f.Stage != "enrich" {
				words = append(words, "in "+f.Stage)
			}
		}
		out = append(out, strings.Join(words, " "))
	}
	return out
}

func (l *lane) want(value, want string) {
	l.t.Helper()
	if got := l.run(value)[0]; got != want {
		l.t.Errorf("%s gives %q, want %q", value, got, want)
	}
}

func accounts(t testing.TB, asked *atomic.Int32) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		switch id := strings.TrimPrefix(r.URL.Path, "/v1/"); id {
		case "A-1", "evt 0":
			fmt.Fprint(w, `{"tier":"gold","limits":{"credit":9007199254740993},"note":null,"tags":["x"]}`)
		case "page":
			fmt.Fprint(w, "<html>sign in</html>")
		case "empty":
		case "down":
			w.WriteHeader(500)
		case "denied":
			w.WriteHeader(403)
		case "odd":
			w.WriteHeader(422)
		default:
			w.WriteHeader(404)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestAnswersBecomeHeadersThatExpressionsSee(t *testing.T) {
	var asked atomic.Int32
	l := newLane(t, `{http: {url: "`+accounts(t, &asked)+`/v1/{/account}", take: {tier: /tier, credit: /limits/credit}},
		headers: {class: '"tier" in headers ? (headers["tier"] == "gold" ? "first" : "other") : "none"'}}`, nil)
	l.want(`{"account":"A-1"}`, "credit=9007199254740993 tier=gold class=first")
	l.want(`{"account":"A-1"}`, "credit=9007199254740993 tier=gold class=first")
	l.want("", "class=none") // a delete marker has no fields to ask about
	if asked.Load() != 1 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestIdentityFieldsMayBeAskedAbout(t *testing.T) {
	var asked atomic.Int32
	l := newLane(t, `{http: {url: "`+accounts(t, &asked)+`/v1/{event_id}", take: {tier: /tier}}}`, nil)
	l.want(`{"tenant":"acme"}`, "tier=gold")
}

func TestMissingIsADeclaredChoice(t *testing.T) {
	var asked atomic.Int32
	url := accounts(t, &asked) + "/v1/{/account}"
	const gone, keyless, up, partly, list = `{"account":"A-2"}`, `{"other":1}`, `{"account":"../x"}`, `{"account":"A-1"}`, `{"account":"A-1"}`
	t.Run("the record fails", func(t *testing.T) {
		l := newLane(t, `{http: {url: "`+url+`", take: {tier: /tier}}}`, nil)
		l.want(gone, "ERR_ENRICH_MISSING lookup=enrich what=no entry")
		l.want(keyless, "ERR_ENRICH_MISSING lookup=enrich what={/account} absent")
		l.want(up, "ERR_ENRICH_MISSING lookup=enrich what="+url+" leaves its path")
		for _, path := range []string{"/note", "/tags", "/none"} {
			l := newLane(t, `{http: {url: "`+url+`", take: {x: `+path+`}}}`, nil)
			l.want(partly, "ERR_ENRICH_MISSING lookup=enrich what="+path)
		}
	})
	t.Run("it gets the default", func(t *testing.T) {
		l := newLane(t, `{http: {url: "`+url+`", take: {tier: /tier, note: /note}, missing: default, default: {tier: standard, note: none}}}`, nil)
		l.want(gone, "note=none tier=standard")
		l.want(keyless, "note=none tier=standard")
		l.want(partly, "note=none tier=gold")
	})
	t.Run("it gets no header", func(t *testing.T) {
		l := newLane(t, `{http: {url: "`+url+`", take: {tier: /tier, note: /note}, missing: skip}}`, nil)
		l.want(gone, "")
		l.want(keyless, "")
		l.want(partly, "tier=gold")
	})
}

func TestServiceThatFailsIsAFailureOfTheRecordWhateverIsDeclared(t *testing.T) {
	var asked atomic.Int32
	l := newLane(t, `{http: {url: "`+accounts(t, &asked)+`/v1/{/account}", take: {tier: /tier}, missing: skip}}`, nil)
	l.want(`{"account":"down"}`, "ERR_HTTP_UNAVAILABLE target=enrich status=500")
	l.want(`{"account":"denied"}`, "ERR_HTTP_DENIED target=enrich status=403")
	l.want(`{"account":"odd"}`, "ERR_HTTP_REJECTED target=enrich status=422")
	l.want(`{"account":"page"}`, "ERR_HTTP_ANSWER target=enrich what=not JSON")
	l.want(`{"account":"empty"}`, "ERR_HTTP_ANSWER target=enrich what=not JSON")
}

func TestBatchAsksEachQuestionOnceAndAllAtOnce(t *testing.T) {
	const different = 8
	var asked, now atomic.Int32
	all := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if now.Add(1) == different {
			close(all)
		}
		<-all // nobody is answered before everybody is asked
		fmt.Fprintf(w, `{"id":%q}`, r.URL.Path)
	}))
	t.Cleanup(s.Close)
	l := newLane(t, `{http: {url: "`+s.URL+`/{/account}", timeout: 30s, take: {id: /id}}}`, nil)
	var values []string
	for i := range 200 {
		values = append(values, fmt.Sprintf(`{"account":"A-%d"}`, i%different))
	}
	for i, got := range l.run(values...) {
		if want := fmt.Sprintf("id=/A-%d", i%different); got != want {
			t.Fatalf("record %d: %s, want %s", i, got, want)
		}
	}
	if asked.Load() != different {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestOneRecordsFailureIsItsOwn(t *testing.T) {
	var asked atomic.Int32
	l := newLane(t, `{http: {url: "`+accounts(t, &asked)+`/v1/{/account}", take: {tier: /tier}}}`, nil)
	got := l.run(`{"account":"A-1"}`, `{`, `{"account":"down"}`, `{"account":"A-2"}`, `{"account":"A-1"}`, `{"account":"down"}`)
	want := []string{"tier=gold", "", "ERR_HTTP_UNAVAILABLE target=enrich status=500", "ERR_ENRICH_MISSING lookup=enrich what=no entry", "tier=gold",
		"ERR_HTTP_UNAVAILABLE target=enrich status=500"}
	for i := range want {
		if i == 1 {
			if !strings.HasPrefix(got[i], "ERR_DECODE_JSON") {
				t.Errorf("record 1: %s", got[i])
			}
		} else if got[i] != want[i] {
			t.Errorf("record %d: %s, want %s", i, got[i], want[i])
		}
	}
}

func TestServiceThatIsDownIsKnownToBe(t *testing.T) {
	var asked atomic.Int32
	l := newLane(t, `{http: {url: "`+accounts(t, &asked)+`/v1/{/account}", take: {tier: /tier}}}`, nil)
	unhealthy := l.stages[1].(interface{ Unhealthy(*pipeline.Failure) bool }).Unhealthy
	f := &pipeline.Failure{Stage: "enrich", Code: pipeline.CodeHTTPUnavailable}
	if unhealthy(f) {
		t.Error("unhealthy before the first call")
	}
	for range 6 {
		l.run(`{"account":"down"}`)
	}
	if !unhealthy(f) || unhealthy(&pipeline.Failure{Stage: "other", Code: pipeline.CodeHTTPUnavailable}) {
		t.Error("a service that failed six times is not known to be down")
	}
	if asked.Load() != 5 {
		t.Errorf("asked %d times", asked.Load())
	}
}

func TestRowsBecomeHeaders(t *testing.T) {
	files := map[string]string{
		"a.csv":   "\xef\xbb\xbfid,tier,\"long name\"\nA-1,gold,\"one, two\nlines\"\n7,silver,\n",
		"a.jsonl": `{"id":"A-1","tier":"gold","long":{"name":"one"}}` + "\n\n" + `{"id":7,"tier":"silver","long":{"name":null}}` + "\n",
	}
	csv := newLane(t, `{table: {file: a.csv, key: id, by: /account, take: {tier: tier, name: long name}}}`, files)
	csv.want(`{"account":"A-1"}`, "name=one, two\nlines tier=gold")
	csv.want(`{"account":7}`, "name= tier=silver")
	csv.want(`{"account":"A-2"}`, "ERR_ENRICH_MISSING lookup=enrich what=no entry")
	csv.want(`{"account":null}`, "ERR_ENRICH_MISSING lookup=enrich what=no key")
	csv.want("", "")
	lines := newLane(t, `{table: {file: a.jsonl, key: /id, by: /account, take: {tier: /tier, name: /long/name}, missing: default, default: {tier: none, name: nobody}},
		headers: {class: 'headers["tier"]'}}`, files)
	lines.want(`{"account":"A-1"}`, "name=one tier=gold class=gold")
	lines.want(`{"account":7}`, "name=nobody tier=silver class=silver")
	lines.want(`{"account":"7"}`, "name=nobody tier=silver class=silver")
	lines.want(`{"account":"none"}`, "name=nobody tier=none class=none")
	byHeader := newLane(t, `{table: {file: a.csv, key: id, by: 'header:event', take: {tier: tier}, missing: skip}}`, files)
	byHeader.want(`{}`, "")
}

func TestTableThatCannotBeReadSaysWhere(t *testing.T) {
	for name, c := range map[string]struct{ format, data, want string }{
		"no header row":       {"csv", "", "t.x:1"},
		"no such column":      {"csv", "id,other\nA-1,x\n", `t.x:1: there is no column "tier"`},
		"a column twice":      {"csv", "id,tier,tier\nA-1,x,y\n", `t.x:1: the column "tier" stands twice`},
		"a key twice":         {"csv", "id,tier\nA-1,x\nA-2,y\nA-1,z\n", "t.x:4: the key stands in line 2 already"},
		"no key":              {"csv", "id,tier\n,x\n", "t.x:2: the row has no key"},
		"a short row":         {"csv", "id,tier\nA-1\n", "t.x:2: wrong number of fields"},
		"a stray quote":       {"csv", "id,tier\nA-1,x\"y\n", "t.x:2"},
		"not JSON":            {"jsonl", "{\"id\":\"A-1\",\"tier\":\"x\"}\n{\n", "t.x:2"},
		"a member twice":      {"jsonl", `{"id":"A-1","id":"A-2"}`, "t.x:1"},
		"no key in a line":    {"jsonl", `{"tier":"x"}`, "t.x:1: the row has no key"},
		"an object as key":    {"jsonl", `{"id":{},"tier":"x"}`, "t.x:1: the row has no key"},
		"a key in two shapes": {"jsonl", "{\"id\":7}\n{\"id\":\"7\"}", "t.x:2: the key stands in line 1 already"},
	} {
		t.Run(name, func(t *testing.T) {
			key, take := "id", "tier"
			if c.format == "jsonl" {
				key, take = "/id", "/tier"
			}
			s := stage.TableLookup{File: "t.x", Format: c.format, Key: key, By: "/account", Take: map[string]string{"tier": take}}
			if _, err := s.ReadTable([]byte(c.data)); pipeline.CodeOf(err) != pipeline.CodeInputInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
		})
	}
}

func TestSettingsThatCannotWorkAreProblems(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "the stage adds nothing",
		`{http: {url: "https://{/host}/x", take: {a: /a}}}`:                                                         "a record must not say which server",
		`{http: {url: "https://a/{/x}"}}`:                                                                           "http.take",
		`{http: {url: "https://a/{/x}", take: {a: a}}}`:                                                             "a path starts with '/'",
		`{http: {url: "https://a/{/x}", take: {reprieve-tenant: /a}}}`:                                              "the platform's own",
		`{http: {url: "https://a/{/x}", take: {a: /a}, into: /b}}`:                                                  "the name of a member",
		`{table: {by: /a, take: {a: /a}}}`:                                                                          "it is required, or topic",
		`{table: {file: t.csv, topic: t, key: id, by: /a, take: {a: /a}}}`:                                          "a file or a topic, not both",
		`{table: {topic: t, by: /a, take: {a: /a}, format: csv}}`:                                                   "json or avro",
		`{table: {topic: t, by: /a, take: {a: /a}, format: avro}}`:                                                  "needs a schema registry",
		`{table: {topic: t, by: /a, take: {a: /a}, registry: main}}`:                                                "json has no schema",
		`{table: {topic: t, by: /a, take: {a: /a}, key: id}}`:                                                       "by the record's key",
		`{table: {topic: t, by: /a, take: {a: a}}}`:                                                                 "a path starts with '/'",
		`{table: {file: t.csv, key: id, by: /a, into: row}}`:                                                        "columns of csv have no types",
		`{table: {file: t.csv, key: id, by: /a, take: {a: a}, cluster: main}}`:                                      "only read beside topic",
		`{table: {file: t.csv, by: /a, take: {a: a}}}`:                                                              "it is required beside file",
		`{http: {url: "https://a/{/x}", take: {a: /a}, missing: default}}`:                                          "has no default",
		`{http: {url: "https://a/{/x}", take: {a: /a}, missing: default, default: {a: x, b: y}}}`:                   "no header of take",
		`{http: {url: "https://a/{/x}", take: {a: /a}, default: {a: x}}}`:                                           "only read with missing: default",
		`{http: {url: "https://a/{/x}", take: {a: /a}, missing: perhaps}}`:                                          "missing",
		`{http: {url: "https://a/{/x}", take: {a: /a}, timeout: 0s}}`:                                               "more than nothing",
		`{http: {url: "https://a/{/x}", take: {a: /a}, headers: {Host: evil}}}`:                                     "it frames the message",
		`{http: {url: "https://a/{/x}", take: {a: /a}, concurrency: 0}}`:                                            "between 1 and 1000",
		`{http: {url: "https://user:pw@a/{/x}", take: {a: /a}}}`:                                                    "credentials in a URL",
		`{table: {file: t, key: id, by: /a, take: {a: a}}}`:                                                         "does not say what it is",
		`{table: {file: t.csv, key: id, by: account, take: {a: a}}}`:                                                "neither a path, a header nor the key",
		`{table: {file: t.jsonl, key: id, by: /account, take: {a: a}}}`:                                             "a path starts with '/'",
		`{http: {url: "https://a/{/x}", take: {a: /a}, headers: {Authorization: "Bearer secret-of-somebody\n x"}}}`: "control character",
	} {
		doc, ps := config.Parse("stage.yaml", []byte(text), config.Options{})
		if len(ps) == 0 {
			ps = doc.Decode(&stage.EnrichSettings{})
		}
		all := ""
		for _, p := range ps {
			all += p.String() + " " + p.Code + "\n"
		}
		if !strings.Contains(all, want) {
			t.Errorf("%s:\n%swant %s", text, all, want)
		}
		if strings.Contains(all, "secret-of-somebody") || strings.Contains(all, "user:pw") {
			t.Errorf("a secret is shown: %s", all)
		}
	}
}

func TestARememberedAnswerCostsARecordNothing(t *testing.T) {
	var asked atomic.Int32
	for name, enrich := range map[string]string{
		"http":  `{http: {url: "` + accounts(t, &asked) + `/v1/{/account}", take: {tier: /tier}}}`,
		"table": `{table: {file: a.csv, key: id, by: /account, take: {tier: tier}}}`,
	} {
		l := newLane(t, enrich, map[string]string{"a.csv": "id,tier\nA-1,gold\n"})
		recs := make([]pipeline.Record, 100)
		for i := range recs {
			recs[i] = pipeline.Record{Value: []byte(`{"account":"A-1"}`)}
		}
		ctx := context.Background()
		round := func() {
			b := l.pool.Get()
			b.Recs = append(b.Recs, recs...)
			b.Begin(l.policy)
			for _, s := range l.stages {
				if err := s.Process(ctx, b); err != nil {
					t.Fatal(err)
				}
			}
			b.Release()
		}
		round()
		if n := testing.AllocsPerRun(20, round); n > 0 && !raceEnabled {
			t.Errorf("%s: %v allocations for 100 records", name, n)
		}
	}
}

// All partitions share the calls that a service is asked at once.
func TestPartitionsShareTheBulkheadOfALookup(t *testing.T) {
	const most = 2
	var now, peak atomic.Int32
	came, gate := make(chan struct{}, 100), make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
		}
		came <- struct{}{}
		<-gate
		fmt.Fprint(w, `{"tier":"gold"}`)
	}))
	t.Cleanup(s.Close)
	l := newLane(t, fmt.Sprintf(`{http: {url: "%s/{/account}", timeout: 60s, concurrency: %d, take: {tier: /tier}}}`, s.URL, most), nil)
	var wg sync.WaitGroup
	for p := range 3 {
		wg.Go(func() {
			var values []string
			for i := range 4 {
				values = append(values, fmt.Sprintf(`{"account":"A-%d-%d"}`, p, i))
			}
			for _, got := range l.run(values...) {
				if got != "tier=gold" {
					t.Errorf("partition %d: %s", p, got)
				}
			}
		})
	}
	for range most {
		<-came
	}
	select {
	case <-came:
		t.Errorf("more than %d calls at once", most)
	case <-time.After(100 * time.Millisecond): // time for one that should not come
	}
	close(gate)
	wg.Wait()
	if peak.Load() > most {
		t.Errorf("%d calls at once, want %d at most", peak.Load(), most)
	}
}
