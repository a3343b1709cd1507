package integration

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
)

// cases are the inputs of the decode cases, as the codec's own tests use them.
const cases = "../../pipeline/codec/testdata/cases"

func caseFile(t *testing.T, name string, into any) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cases, name))
	if err == nil {
		err = json.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// caseLab is a lab with one pipeline more, of one partition, whose topics are named after it.
// With a policy it classifies by that; header is what enrich adds.
func caseLab(t *testing.T, name, decode, policy, header string) *lab.Lab {
	t.Helper()
	c := startCluster(t)
	l := lab.New(t, c.Properties["bootstrap.servers"])
	addPipeline(t, l, name, decode, policy, header, 1)
	return l
}

// addPipeline gives a lab one pipeline more, whose topics are named after it.
func addPipeline(t *testing.T, l *lab.Lab, name, decode, policy, header string, partitions int) {
	t.Helper()
	write := func(file, text string) {
		if err := os.WriteFile(filepath.Join(l.Dir, file), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	classify := ""
	if policy != "" {
		write("policies/"+name+".yaml", policy)
		classify = "  - classify: {policy: ../policies/" + name + ".yaml}"
	}
	write("pipelines/"+name+".yaml", strings.NewReplacer("ID", l.ID, "NAME", name, "DECODE", decode, "CLASSIFY", classify, "HEADER", header).Replace(`apiVersion: reprieve/v1
pipeline: NAME
owner: finance-operations
source:
  cluster: main
  topics: [ID.NAME]
  group: ID.NAME
  tenant: {from: fixed, value: acme}
stages:
  - decode: DECODE
CLASSIFY
  - redact: {detectors: [pan, cvv, authorization]}
  - enrich: {headers: {amount: 'HEADER'}}
  - route: {default: {topic: ID.NAME.out}}
quarantine: {topic: ID.NAME.dlq, cluster: main, encrypt: false}
`))
	l.Must("topics", "apply", "pipelines/"+name+".yaml", "--partitions", strconv.Itoa(partitions))
}

// letters are the dead letters of a topic by the offset of their record.
func letters(l *lab.Lab, topic string) map[int64][]*deadletter.Letter {
	l.T.Helper()
	out := map[int64][]*deadletter.Letter{}
	l.Each(topic, func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		rec := r.Clone()
		letter, err := deadletter.Parse(topic, &rec, l.Ring)
		if err != nil {
			l.T.Fatal(err)
		}
		out[letter.Original.Offset] = append(out[letter.Original.Offset], letter)
	})
	return out
}

// outputs are the values of a topic, in order of arrival: its pipeline has one partition.
func outputs(l *lab.Lab, topic string) (out []pipeline.Record) {
	l.T.Helper()
	l.Each(topic, func(_ pipeline.TP, r *pipeline.Record) { out = append(out, r.Clone()) })
	return out
}

// A record whose schema cannot be resolved is dead-lettered once, whatever kind it is of, and the pipeline goes on: nobody polls
// it again, nobody asks for its schema again, the group does not change.
func TestCaseC20AnUnresolvableRecordIsLeftBehind(t *testing.T) {
	l := caseLab(t, "charges", "{format: avro, registry: main}", "", "topic")
	const schema = `{"type":"record","name":"Charge","namespace":"pay","fields":[{"name":"ref","type":"string"},{"name":"cents","type":"long"}]}`
	reg, err := codec.NewRegistry(codec.RegistryConfig{URL: l.Registry}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	id, err := reg.Register(t.Context(), l.ID+".charges-value", schema, "avro")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	asked := map[string]int{}
	target, err := url.Parse(l.Registry)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	counting := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked[r.URL.Path]++
		mu.Unlock()
		proxy.ServeHTTP(w, r)
	}))
	defer counting.Close()
	l.Registry = counting.URL

	var records []struct {
		Key    string      `json:"key_hex"`
		Value  string      `json:"value_hex"`
		Head   [][2]string `json:"headers"`
		Expect string
	}
	caseFile(t, "C20/records.json", &records)
	var msgs []pipeline.Message
	good := 0
	for range 20 { // the case, again and again: what is once may not be twice
		for _, r := range records {
			key, _ := hex.DecodeString(r.Key)
			value, err := hex.DecodeString(r.Value)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.HasPrefix(value, []byte{0, 0, 0, 0, 1}) {
				value[4] = byte(id)
			}
			m := pipeline.Message{Topic: l.ID + ".charges", Partition: 0, Key: key, Value: value}
			for _, h := range r.Head {
				v, _ := hex.DecodeString(h[1])
				m.Headers = append(m.Headers, pipeline.Header{Name: h[0], Value: v})
			}
			msgs = append(msgs, m)
			if r.Expect == "OK" {
				good++
			}
		}
	}
	l.Write(msgs)
	w := l.Start("pipelines/charges.yaml")
	l.Until(time.Minute, "the end of the source", func() bool { return l.Settled(l.ID+".charges", l.ID+".charges") })
	dead := letters(l, l.ID+".charges.dlq")
	if out := outputs(l, l.ID+".charges.out"); len(out) != good || len(dead) != len(msgs)-good {
		t.Errorf("%d delivered, %d dead-lettered of %d", len(out), len(dead), len(msgs))
	}
	for off, ls := range dead {
		m := msgs[off]
		if len(ls) != 1 || !bytes.Equal(ls[0].Value, m.Value) || len(ls[0].Attempts) != 1 || ls[0].Decision.Attempt != 0 {
			t.Errorf("offset %d: %d letters, value %x, attempts %v", off, len(ls), ls[0].Value, ls[0].Attempts)
		}
	}
	points, err := l.Admin.Checkpoints(t.Context(), l.ID+".charges")
	if err != nil || points[pipeline.TP{Topic: l.ID + ".charges"}].Next != int64(len(msgs)) {
		t.Errorf("committed %v, %v", points, err)
	}
	if n := strings.Count(w.Log(), "partitions assigned"); n != 1 {
		t.Errorf("%d assignments", n)
	}
	mu.Lock()
	defer mu.Unlock()
	for path, n := range asked {
		if strings.HasPrefix(path, "/schemas/ids/") && n != 1 {
			t.Errorf("%d requests for %s", n, path)
		}
	}
	if len(asked) != 2 {
		t.Errorf("asked for %v", asked)
	}
}

// Every number and every text keeps its spelling through decode, enrich, quarantine and whatever shows it.
func TestCaseC10TextsSurviveTheWholeLane(t *testing.T) {
	l := caseLab(t, "numbers", "{format: json}", "apiVersion: reprieve/v1\npolicy: numbers\nreject:\n  - {name: marked, when: has(view.reject)}\n", `has(view.amount) ? view.amount : "none"`)
	value, err := os.ReadFile(filepath.Join(cases, "C10", "value.json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected struct {
		Keep  []string    `json:"must_keep_text"`
		Not   []string    `json:"must_not_appear"`
		Pairs [][2]string `json:"pairs_that_differ"`
	}
	caseFile(t, "C10/expected.json", &expected)
	msgs := []pipeline.Message{{Value: value}, {Value: append([]byte(`{"reject":1,`), value[1:]...)}}
	numbers := []string{"-0", "0.10", "1e400", "1E-400", "123456789012345678901234567890.5", "-0.0", "1e+2", "9223372036854775808", "0.30000000000000004"}
	for _, p := range expected.Pairs {
		numbers = append(numbers, p[:]...)
	}
	for _, n := range numbers {
		msgs = append(msgs, pipeline.Message{Value: []byte(`{"amount": ` + n + ` ,"s":"\u003ca\/b\u00e9é` + n + `"}`)})
	}
	for i := range msgs {
		msgs[i].Topic, msgs[i].Partition = l.ID+".numbers", 0
	}
	l.Write(msgs)
	l.Start("pipelines/numbers.yaml")
	l.Until(time.Minute, "the end of the source", func() bool { return l.Settled(l.ID+".numbers", l.ID+".numbers") })
	out := outputs(l, l.ID+".numbers.out")
	if len(out) != len(msgs)-1 {
		t.Fatalf("%d of %d delivered", len(out), len(msgs))
	}
	for i, r := range out {
		want := msgs[i].Value
		if i > 0 {
			want = msgs[i+1].Value
			if h, _ := r.Header("amount"); string(h) != numbers[i-1] {
				t.Errorf("the header of %s is %s", numbers[i-1], h)
			}
		}
		if !bytes.Equal(r.Value, want) {
			t.Errorf("%s left as %s", want, r.Value)
		}
	}
	dead := letters(l, l.ID+".numbers.dlq")
	if len(dead[1]) != 1 || !bytes.Equal(dead[1][0].Value, msgs[1].Value) {
		t.Errorf("dead letters %v", dead)
	}
	var found struct{ Items []struct{ ID string } }
	l.Until(time.Minute, "custody", func() bool {
		l.JSON(&found, "quarantine", "list", "confirmed=yes")
		return len(found.Items) == 1
	})
	shown := l.Must("quarantine", "reveal", found.Items[0].ID, "--reason", "to see it", "--credential", l.Key("finance"))
	var record struct{ Value struct{ Text string } }
	if err := json.Unmarshal([]byte(shown), &record); err != nil || record.Value.Text != string(msgs[1].Value) {
		t.Errorf("shown as %s (%v)", shown, err)
	}
	for _, s := range expected.Not {
		if strings.Contains(shown, s) {
			t.Errorf("%s appears", s)
		}
	}
	for _, s := range expected.Keep {
		if !strings.Contains(record.Value.Text, s) {
			t.Errorf("%s is lost", s)
		}
	}
}

// What is strict JSON passes byte for byte; what is not becomes a letter with the bytes as they came.
func TestCaseC13EvidenceIsTheSourceBytes(t *testing.T) {
	l := caseLab(t, "strict", "{format: json, limits: {bytes: 1MiB, depth: 1000}}", "", "topic")
	var rows []struct {
		N      int
		Hex    string `json:"value_hex"`
		Expect string
		What   string
	}
	caseFile(t, "C13/table.json", &rows)
	var msgs []pipeline.Message
	for _, row := range rows {
		value, err := hex.DecodeString(row.Hex)
		switch {
		case row.N == 19:
			value = []byte(strings.Repeat("[", 9999) + strings.Repeat("]", 9999))
		case row.N == 20:
			value = []byte(strings.Repeat("[", 100_000))
		case err != nil:
			t.Fatal(err)
		}
		msgs = append(msgs, pipeline.Message{Topic: l.ID + ".strict", Partition: 0, Value: value})
	}
	l.Write(msgs)
	l.Start("pipelines/strict.yaml")
	l.Until(time.Minute, "the end of the source", func() bool { return l.Settled(l.ID+".strict", l.ID+".strict") })
	dead := letters(l, l.ID+".strict.dlq")
	out := outputs(l, l.ID+".strict.out")
	for i, row := range rows {
		fatal := len(dead[int64(i)]) == 1
		want := !strings.HasPrefix(row.Expect, "OK") || row.N == 19 // deeper than this pipeline allows
		if fatal != want {
			t.Errorf("%d %s: dead-lettered %v, want %v (%s)", row.N, row.What, fatal, want, row.Expect)
			continue
		}
		got := []byte(nil)
		if fatal {
			got = dead[int64(i)][0].Value
		} else if len(out) > 0 {
			got, out = out[0].Value, out[1:]
		}
		if !bytes.Equal(got, msgs[i].Value) || got == nil {
			t.Errorf("%d %s: %x came as %x", row.N, row.What, msgs[i].Value[:min(40, len(msgs[i].Value))], got[:min(40, len(got))])
		}
	}
	if len(out) != 0 {
		t.Errorf("%d delivered beside them", len(out))
	}
}
