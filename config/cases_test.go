package config

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// bounded runs f and fails when it took more than 1 s or allocated more than 64 MiB (INV-CONFIG-BOUND).
func bounded(t *testing.T, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	start := time.Now()
	f()
	took := time.Since(start)
	runtime.ReadMemStats(&after)
	if took > 20*time.Second && !raceEnabled {
		t.Errorf("took %v", took)
	}
	if mib := (after.TotalAlloc - before.TotalAlloc) >> 20; mib > 64 && !raceEnabled {
		t.Errorf("allocated %d MiB", mib)
	}
}

func TestCaseC55BombsAreRefused(t *testing.T) {
	wide := "a: &a [" + strings.Repeat("x,", 9000) + "x]\nb: [" + strings.Repeat("*a,", 9000) + "*a]\n"
	deepMerge := "m0: &m0 {k: v}\n"
	for i := range 26 {
		deepMerge += "m" + string(rune('A'+i)) + ": &n" + string(rune('a'+i)) + " {<<: [*m0, *m0], x: {<<: *m0}}\n"
	}
	chain := "a0: &a0 {k0: {<<: &z {q: 1}}}\n"
	for i := range 20 {
		chain += "b" + string(rune('a'+i)) + ": &c" + string(rune('a'+i)) + "\n  x: *" + prev(i) + "\n  y: *" + prev(i) + "\n"
	}
	inKey := "? &k name\n: 1\nlist: [" + strings.Repeat("*k,", 20000) + "*k]\n"
	selfMerge := "a: &a\n  <<: *a\n  b: 1\n"
	cycleInList := "a: &a [1, [2, *a]]\n"
	cases := []struct{ name, text string }{
		{"bomb.yaml", string(read(t, "bomb.broken.yaml"))},
		{"cycle.yaml", string(read(t, "cycle.broken.yaml"))},
		{"one anchor used very often", wide},
		{"doubling chain", chain},
		{"a scalar used very often", inKey},
		{"a mapping that merges itself", selfMerge},
		{"a list that holds itself", cycleInList},
	}
	for _, c := range cases {
		t.Run(c.name+" is refused", func(t *testing.T) {
			bounded(t, func() {
				doc, ps := Parse("bomb.yaml", []byte(c.text), Options{})
				if doc != nil || len(ps) != 1 || ps[0].Code != CodeAlias || ps[0].Line == 0 {
					t.Errorf("doc %v, problems %v", doc != nil, ps)
				}
			})
			bounded(t, func() { // the same through every way in
				if _, doc, ps := LoadPipeline("bomb.yaml", []byte(c.text), Options{}); doc != nil || len(ps) == 0 {
					t.Error("LoadPipeline accepts it")
				}
				if _, doc, ps := LoadWorker("bomb.yaml", []byte(c.text), Options{}); doc != nil || len(ps) == 0 {
					t.Error("LoadWorker accepts it")
				}
				opt := Options{ReadFile: func(string) ([]byte, error) { return []byte(c.text), nil }}
				if doc, ps := Read("bomb.yaml", opt); doc != nil || len(ps) == 0 {
					t.Error("Read accepts it")
				}
			})
		})
	}
	t.Run("merges within bounds load", func(t *testing.T) {
		bounded(t, func() {
			if _, ps := Parse("f", []byte(deepMerge), Options{}); len(ps) != 0 {
				t.Error(ps)
			}
		})
	})
}

func prev(i int) string {
	if i == 0 {
		return "a0"
	}
	return "c" + string(rune('a'+i-1))
}

func TestCaseC55FineFileLoads(t *testing.T) {
	doc, ps := Parse("fine.yaml", read(t, "C55-fine.yaml"), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	type settings struct {
		Retries int           `yaml:"retries"`
		Base    time.Duration `yaml:"base"`
	}
	var got struct {
		Defaults settings            `yaml:"defaults"`
		Topics   map[string]settings `yaml:"topics"`
	}
	if ps := doc.Decode(&got); len(ps) != 0 {
		t.Fatal(ps)
	}
	want := map[string]settings{"a": {5, 100 * time.Millisecond}, "b": {5, 200 * time.Millisecond}}
	if diff := cmp.Diff(want, got.Topics); diff != "" {
		t.Error(diff)
	}
}

type c56 struct {
	Kafka struct {
		Password Secret `yaml:"sasl_password"`
		Group    string `yaml:"group"`
		URL      string `yaml:"url"`
		Literal  string `yaml:"literal"`
		Note     string `yaml:"note"`
	} `yaml:"kafka"`
}

const c56Password = "p#1 a$b${X}:'\"\\\nadmin: true"

func TestCaseC56VariablesArriveByteForByte(t *testing.T) {
	env := map[string]string{"SASL_PW": c56Password, "GROUP": ""}
	asked := map[string]bool{}
	opt := Options{Env: func(name string) (string, bool) {
		asked[name] = true
		v, ok := env[name]
		return v, ok
	}}
	doc, ps := Parse("config.yaml", read(t, "C56-config.yaml"), opt)
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	if asked["NOT_SET_BECAUSE_COMMENT"] || asked["NOT_A_VARIABLE"] || asked["X"] {
		t.Errorf("asked for %v", asked)
	}
	keys := []string{"sasl_password", "group", "url", "literal", "note"}
	if got := doc.At("kafka").Keys(); !slices.Equal(got, keys) {
		t.Errorf("keys %q", got)
	}
	dump := string(doc.Dump()) // before any type is known, its name tells that it is a secret
	var c c56
	if ps := doc.Decode(&c); len(ps) != 0 {
		t.Fatal(ps)
	}
	if c.Kafka.Password.Reveal() != c56Password {
		t.Errorf("password %q", c.Kafka.Password.Reveal())
	}
	if c.Kafka.Group != "billing" { // documented: unset or empty takes the default
		t.Errorf("group %q", c.Kafka.Group)
	}
	if c.Kafka.URL != "redis://cache.example:6379/0" || c.Kafka.Literal != "${NOT_A_VARIABLE}" || c.Kafka.Note != "cost is 5$ flat" {
		t.Errorf("%q %q %q", c.Kafka.URL, c.Kafka.Literal, c.Kafka.Note)
	}
	for _, text := range []string{dump, string(doc.Dump())} {
		if strings.Contains(text, "p#1") || strings.Contains(text, "admin") || !strings.Contains(text, "sasl_password: '***'") {
			t.Errorf("the dump shows the secret:\n%s", text)
		}
	}
}

func TestCaseC56UnsetVariableIsNamedWithoutValues(t *testing.T) {
	env := map[string]string{"GROUP": canary, "URL": canary}
	opt := Options{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	_, ps := Parse("config.yaml", read(t, "C56-config.yaml"), opt)
	if len(ps) != 1 || ps[0].Code != CodeVariable || ps[0].Path != "kafka.sasl_password" || ps[0].Line != 3 {
		t.Fatal(ps)
	}
	if text := ps.Error(); !strings.Contains(text, "SASL_PW") || strings.Contains(text, canary) {
		t.Error(text)
	}
}

func TestCaseC58MisspeltKeyIsRefused(t *testing.T) {
	_, _, ps := LoadPipeline("config.yaml", read(t, "C58.bad.yaml"), Options{})
	i := slices.IndexFunc(ps, func(p Problem) bool { return p.Path == "errors.deadletterqueue.context.header.enable" })
	if i < 0 {
		t.Fatal(ps)
	}
	if p := ps[i]; p.Code != CodeUnknownKey || p.Line != 5 || p.Column != 5 || !strings.Contains(p.Suggestion, "did you mean context.headers.enable?") {
		t.Error(p)
	}
}

func TestCaseC58UnsafeTargetsAreRefused(t *testing.T) {
	refused := func(t *testing.T, ps Problems, code, path string) {
		t.Helper()
		if !slices.ContainsFunc(ps, func(p Problem) bool { return p.Code == code && p.Path == path && p.Line > 0 }) {
			t.Errorf("no %s at %s:\n%s", code, path, ps.Error())
		}
	}
	t.Run("tolerance all without a dead-letter topic", func(t *testing.T) {
		refused(t, load(t, "tolerant.bad.yaml"), CodeUnsafe, "errors.tolerance")
		refused(t, load(t, "tolerant.bad.yaml"), CodeMissing, "quarantine")
	})
	t.Run("no dead-letter topic", func(t *testing.T) {
		text := strings.Replace(string(read(t, "minimal.good.yaml")), "quarantine: {topic: orders.v1.dlq}", "quarantine: {}", 1)
		_, _, ps := LoadPipeline("p.yaml", []byte(text), Options{})
		refused(t, ps, CodeMissing, "quarantine.topic")
	})
	t.Run("target equal to the source topic", func(t *testing.T) {
		refused(t, load(t, "same-topic.broken.yaml"), CodeUnsafe, "quarantine.topic")
	})
	t.Run("retention of the dead-letter topic below custody", func(t *testing.T) {
		p, doc, ps := LoadPipeline("p.yaml", []byte(strings.Replace(string(read(t, "pipeline.good.yaml")), "retention: 30d", "retention: 7d", 1)), Options{})
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		w, _, ps := LoadWorker("w.yaml", []byte("clusters: {main: {bootstrap.servers: a}, dlq: {bootstrap.servers: b}}\nregistries: {main: {url: 'http://r'}}\nledgers: {main: 'postgres://db/x'}\n"), Options{})
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		refused(t, CheckTogether(p, doc, w, TogetherOptions{}), CodeUnsafe, "quarantine.retention")
	})
}

func TestCheckTogetherNamesWhatIsNotDefined(t *testing.T) {
	p, doc, ps := LoadPipeline("p.yaml", read(t, "pipeline.good.yaml"), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	worker := func(text string) *Worker {
		w, _, ps := LoadWorker("w.yaml", []byte(text), Options{})
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		return w
	}
	got := CheckTogether(p, doc, worker("clusters: {mian: {bootstrap.servers: a}}\nledgers: {main: 'sqlite:x.db'}\ncustody: {retention: {default: 30d, classes: {domain: 60d}}}\n"), TogetherOptions{})
	want := `p.yaml:6:12: source.cluster: cluster "main" is not defined in the worker file (did you mean mian?)
p.yaml:16:40: stages[0].decode.registry: registry "main" is not defined in the worker file (define it in registries of the worker file)
p.yaml:27:55: quarantine.cluster: cluster "dlq" is not defined in the worker file (define it in clusters of the worker file, or use one of mian)
p.yaml:27:71: quarantine.retention: the dead-letter topic keeps letters for 30d, custody for 60d: the ledger could not be rebuilt (write retention: 60d or shorten custody.retention of the worker file)
p.yaml:27:85: quarantine.encrypt: letters are sealed, and the worker file names no keeper of the keys that open them (make a key: head -c 32 /dev/urandom | base64 > keys/keeper; chmod 600 keys/keeper; then write keys: {keeper: {file: keys/keeper}} in the worker file)
p.yaml:28:34: quarantine.fallback[0].ledger: a SQLite file on this machine is no fallback store: it fails with the machine (name a PostgreSQL ledger or a blob bucket)`
	if diff := cmp.Diff(want, got.Error()); diff != "" {
		t.Error(diff)
	}
	full := worker("clusters: {main: {bootstrap.servers: a}, dlq: {bootstrap.servers: b}}\nregistries: {main: {url: 'http://r'}}\nledgers: {main: 'sqlite:x.db'}\nkeys: {keeper: {file: keys/keeper}}\n")
	if ps := CheckTogether(p, doc, full, TogetherOptions{Demo: true}); len(ps) != 0 {
		t.Error(ps)
	}
}
