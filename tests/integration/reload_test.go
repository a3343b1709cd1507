package integration

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/lab"
)

// A changed file is in force after SIGHUP, wholly; one with a problem changes nothing; nothing is lost on the way.
func TestReloadAppliesWhollyOrNotAtAll(t *testing.T) {
	c := startCluster(t)
	l := lab.New(t, c.Properties["bootstrap.servers"])
	g := billing.Generator{Seed: 3, Count: 3000, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	for m := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
	}
	region := func() map[string]int {
		out := map[string]int{}
		for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
			l.Each(l.Topic(topic), func(_ pipeline.TP, r *pipeline.Record) {
				v, _ := r.Header("region")
				out[string(v)]++
			})
		}
		return out
	}
	total := func() (n int) {
		for _, k := range region() {
			n += k
		}
		return n
	}
	w := l.Start()
	l.Write(msgs[:1000])
	l.Until(time.Minute, "the first thousand", func() bool { return total() == 1000 })

	l.Edit("pipelines/billing.yaml", `"eu" : "row"'`, `"europe" : "elsewhere"'`)
	w.Reload()
	l.Until(time.Minute, "the changed files in force", func() bool { return strings.Contains(w.Log(), "the changed files are in force") })
	l.Write(msgs[1000:2000])
	l.Until(time.Minute, "the second thousand", func() bool { return total() == 2000 })

	l.Edit("pipelines/adjustments.yaml", `"eu" : "row"'`, `"half" : "half"'`) // is right by itself
	l.Edit("pipelines/billing.yaml", "quarantine: {topic:", "quarantien: {topic:")
	w.Reload()
	l.Until(time.Minute, "the refusal", func() bool { return strings.Contains(w.Log(), "did you mean quarantine") })
	others := billing.Generator{Seed: 4, Count: 100}
	for m := range others.Adjustments() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
	}
	l.Write(msgs[2000:])
	l.Until(time.Minute, "the last thousand, and a hundred of the other pipeline", func() bool { return total() == 3100 })
	got := region()
	if got["eu"]+got["row"] != 1100 || got["europe"]+got["elsewhere"] != 2000 {
		t.Errorf("regions %v", got)
	}

	address := w.Address()
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 200, "/metrics": 200, "/v1/pipelines": 200, "/version": 200, "/nothing": 404} {
		r, err := http.Get(address + path)
		if err != nil {
			t.Fatal(err)
		}
		_ = r.Body.Close()
		if r.StatusCode != want {
			t.Errorf("%s: %s", path, r.Status)
		}
	}
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
}

// Ctrl-C ends a demo that stayed open; its servers end with it.
func TestDemoStaysOpenUntilInterrupted(t *testing.T) {
	dir := t.TempDir()
	d := lab.StartDemo(t, dir)
	d.Await("Ctrl-C ends it.")
	if code := d.Interrupt(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// the folder is free again: nobody holds its broker
	lock, err := os.Stat(filepath.Join(dir, "data", "broker"))
	if err != nil || !lock.IsDir() {
		t.Errorf("no data: %v", err)
	}
	again := lab.StartDemo(t, dir, "--once")
	if code := again.Wait(); code != 0 {
		t.Errorf("the second run in the folder ended with %d:\n%s", code, again.Output())
	}
}
