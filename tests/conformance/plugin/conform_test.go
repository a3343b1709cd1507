package plugin

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// conform judges a plugin. Times are long, since a busy machine must not be the reason of a finding; only who never answers is
// asked for a shorter one.
func conform(t *testing.T, dir string, start, call time.Duration) *plugins.Conformance {
	t.Helper()
	rep, err := plugins.Conform(context.Background(), plugins.Options{Start: start, Call: call, Clock: time.Now}, dir)
	if pipeline.CodeOf(err) == pipeline.CodePluginSandbox {
		t.Skip("no sandbox level can be had here")
	}
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

func failed(rep *plugins.Conformance) string {
	var out []string
	for _, c := range rep.Checks {
		if c.Result == "fail" {
			out = append(out, c.Name+": "+c.Evidence)
		}
	}
	return strings.Join(out, "\n")
}

// example builds examples/plugin-go into a folder.
func example(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.Command("go", "build", "-o", filepath.Join(dir, "normalize-currency"), "reprieve.dev/examples/plugin-go")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile("../../../examples/plugin-go/plugin.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTheExampleConforms(t *testing.T) {
	rep := conform(t, example(t), 20*time.Second, 20*time.Second)
	if !rep.OK || len(rep.Checks) < 12 {
		t.Fatal(failed(rep))
	}
	for _, c := range rep.Checks {
		t.Logf("%d %s %s: %s", c.Number, c.Result, c.Name, c.Evidence)
	}
}

// The plugins of the folder wrong are wrong on purpose, each in one way, and say what must be found of them.
func TestEveryPluginThatIsWrongOnPurposeIsFoundByItsCheck(t *testing.T) {
	all, err := filepath.Glob("wrong/*/" + plugins.DescriptorFile)
	if err != nil || len(all) != 5 {
		t.Fatal(all, err)
	}
	for _, file := range all {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			say := map[string]string{}
			for line := range strings.Lines(string(text)) {
				if name, what, ok := strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "# "), ": "); ok {
					say[name] = what
				}
			}
			_, program, _ := strings.Cut(say["artifacts"], "path: ")
			dir := folder(t, strings.TrimRight(program, "}]"))
			if err := os.WriteFile(filepath.Join(dir, plugins.DescriptorFile), []byte(strings.Replace(string(text), "arch: amd64", "arch: "+runtime.GOARCH, 1)), 0o644); err != nil {
				t.Fatal(err)
			}
			call := 20 * time.Second
			if strings.Contains(string(text), "value: 'hang'") {
				call = time.Second
			}
			rep := conform(t, dir, 20*time.Second, call)
			for _, c := range rep.Checks {
				if c.Result == "fail" && c.Name == say["check"] && strings.Contains(c.Evidence, say["evidence"]) && !rep.OK {
					return
				}
			}
			t.Fatalf("%q was to be found by %q; found:\n%s", say["evidence"], say["check"], failed(rep))
		})
	}
}

// withVectors is the hostile plugin under a name, with vectors of these values.
func withVectors(t *testing.T, name string, values ...string) string {
	t.Helper()
	dir := folder(t, name)
	f, err := os.OpenFile(filepath.Join(dir, plugins.DescriptorFile), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	text := "vectors:\n"
	for _, v := range values {
		text += "  - {name: v, value: '" + v + "', expect: fixed}\n"
	}
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	return dir
}

const elsewhere = "gives the same answers at another time and on another machine"

// skips tells whether this machine cannot have what a check needs.
func skips(rep *plugins.Conformance, check string) bool {
	for _, c := range rep.Checks {
		if c.Name == check && c.Result == "skip" {
			return true
		}
	}
	return false
}

// Who waits without the cookie for what will never come is ended, and found (the limit is that of a start).
func TestAPluginThatStaysSilentWithoutTheCookieIsFound(t *testing.T) {
	rep := conform(t, folder(t, "quiet-without-cookie"), 10*time.Second, 20*time.Second)
	if rep.OK || !strings.Contains(failed(rep), "refuses to run without the cookie: it ran on") {
		t.Fatalf("found only:\n%s", failed(rep))
	}
	if left := children(t, os.Getpid()); len(left) != 0 {
		t.Errorf("processes left: %v", left)
	}
}

// A server whose settings nobody looked at breaks more than one promise.
func TestACarelessServerIsFound(t *testing.T) {
	rep := conform(t, withVectors(t, "careless", "same"), 20*time.Second, 20*time.Second)
	for _, want := range []string{"says what plugin.yaml says: it asks for 600 records a call", "answers for its health: grpc.health.v1.Health/Check of the service plugin: rpc error: code = Unimplemented",
		"refuses a call that it does not know: it answered", "takes a message of 5 MiB: rpc error: code = ResourceExhausted"} {
		if rep.OK || !strings.Contains(failed(rep), want) {
			t.Errorf("%q was to be found; found only:\n%s", want, failed(rep))
		}
	}
}

// A clean plugin is not blamed for where it is: the same suite finds nothing in one that asks for nothing.
func TestAnotherTimeAndAnotherMachineAreHadHere(t *testing.T) {
	rep := conform(t, withVectors(t, "hostile", "same"), 20*time.Second, 20*time.Second)
	for _, c := range rep.Checks {
		if c.Name == elsewhere {
			if c.Result == "skip" {
				t.Skip(c.Evidence)
			}
			if c.Result != "pass" {
				t.Error(c.Evidence)
			}
			return
		}
	}
	t.Fatal("it was not asked")
}

func TestWhatDoesNotConformIsFoundByTheRightCheck(t *testing.T) {
	for value, check := range map[string]string{"big": "gives the same answers", "lie: path": "stands any record"} {
		t.Run(value, func(t *testing.T) {
			rep := conform(t, withVectors(t, "hostile", value), 20*time.Second, 20*time.Second)
			if rep.OK || !strings.Contains(failed(rep), check) {
				t.Fatalf("found only:\n%s", failed(rep))
			}
		})
	}
	// What is found only by who looks at another place than usual: at order and pairing, after many records, at another time, beside
	// the answers.
	for name, c := range map[string]struct {
		values []string
		found  []string
	}{
		"in the order of another batch": {[]string{"lie: backwards"}, []string{"gives the same answers", "results have the order of the records"}},
		"with another record's answer":  {[]string{"lie: pairs", "value: a", "value: b"}, []string{"gives the same answers", "it gives another answer for record"}},
		"after many honest answers":     {[]string{"late-lie"}, []string{"gives the same answers", "a long run in any order: it gives another answer for record"}},
		"as a crash without a word":     {[]string{"exit"}, []string{`stands any record: record 14 of 54, "exit": ERR_PLUGIN_CRASHED: exit: exit status 7`}},
		"as a crash that says why":      {[]string{"panic"}, []string{"gives the same answers", `it last wrote "panic: the card is `, "stands any record"}},
		"on standard output":            {[]string{"stdout"}, []string{"writes nothing to standard output while it works"}},
		"beside its answers": {[]string{"silent rejection", "raw-stdout"}, []string{"says why it rejects a record: \"silent rejection\"",
			"writes nothing to standard output while it works"}},
		"by the year":    {[]string{"year"}, []string{elsewhere + ": in "}},
		"by the machine": {[]string{"where"}, []string{elsewhere + ": in "}},
	} {
		t.Run(name, func(t *testing.T) {
			rep := conform(t, withVectors(t, "hostile", c.values...), 20*time.Second, 20*time.Second)
			for _, want := range c.found {
				if strings.HasPrefix(want, elsewhere) && skips(rep, elsewhere) {
					continue
				}
				if rep.OK || !strings.Contains(failed(rep), want) {
					t.Errorf("%q was to be found; found only:\n%s", want, failed(rep))
				}
			}
			noCard(t, "the report", failed(rep))
		})
	}
	for name, check := range map[string]string{"silent": "start limit", "mute": "does not say"} {
		t.Run(name, func(t *testing.T) {
			if rep := conform(t, folder(t, name), 2*time.Second, 20*time.Second); rep.OK || !strings.Contains(failed(rep), check) && !strings.Contains(failed(rep), "start limit") {
				t.Fatalf("found only:\n%s", failed(rep))
			}
		})
	}
	t.Run("another name", func(t *testing.T) {
		dir := folder(t, "hostile")
		file := filepath.Join(dir, plugins.DescriptorFile)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(strings.Replace(string(text), "acme/hostile", "acme/kind", 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		if rep := conform(t, dir, 20*time.Second, 20*time.Second); rep.OK || !strings.Contains(failed(rep), "says that it is acme/hostile@1.0.0") {
			t.Fatalf("found only:\n%s", failed(rep))
		}
	})
}

func TestARepairThroughThePluginPassesTheChecksOfEveryRepair(t *testing.T) {
	w := open(t, nil)
	pkg, _, err := w.Install(context.Background(), example(t))
	if err != nil {
		t.Fatal(err)
	}
	lock := &plugins.Lock{APIVersion: "reprieve/v1"}
	lock.Set(pkg.Pin(sandbox.Restricted))
	if err := lock.Write(w.o.Lock); err != nil {
		t.Fatal(err)
	}
	lib := transforms.NewLibrary(transforms.Options{})
	kinds, err := w.Kinds(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds {
		if err := lib.Add(k); err != nil {
			t.Fatal(err)
		}
	}
	tr, err := lib.Parse("acme/normalize-currency@1.4.2", []byte(`{"names":{"kroner":"NOK"}}`))
	if err != nil {
		t.Fatal(err)
	}
	out, err := transforms.Run(context.Background(), tr, nil, envelopes(`{"currency":"Kroner","net_minor":1}`, `{"currency":"?"}`))
	if err != nil {
		t.Fatal(err)
	}
	if string(out[0].Value) != `{"currency":"NOK","net_minor":1}` || len(out[0].Report.Changed) != 1 || out[0].Report.Changed[0] != "/currency" {
		t.Fatalf("%+v", out[0])
	}
	if code(&out[1]) != pipeline.CodeTransformFailed {
		t.Fatalf("%+v", out[1])
	}
}
