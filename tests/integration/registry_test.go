package integration

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

const lanes = 4 // partitions

// registryLab is a lab with a pipeline over four partitions and two schemas: known is asked for before the test begins, late is not.
func registryLab(t *testing.T, registry string) (l *lab.Lab, known, late int32) {
	t.Helper()
	c := startCluster(t)
	l = lab.New(t, c.Properties["bootstrap.servers"])
	addPipeline(t, l, "meters", "{format: avro, registry: main}", "", "topic", lanes)
	reg, err := codec.NewRegistry(codec.RegistryConfig{URL: registry}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range []*int32{&known, &late} {
		schema := `{"type":"record","name":"Reading","namespace":"grid","fields":[{"name":"n","type":"string"},{"name":"v` + strconv.Itoa(i) + `","type":["null","long"],"default":null}]}`
		if *id, err = reg.Register(t.Context(), l.ID+".meters-"+strconv.Itoa(i), schema, "avro"); err != nil {
			t.Fatal(err)
		}
	}
	return l, known, late
}

// readings writes n records of a schema to one partition; their first field is their name.
func readings(l *lab.Lab, partition, schema int32, name string, n int) {
	l.T.Helper()
	var msgs []pipeline.Message
	for i := range n {
		id := name + strconv.Itoa(i)
		body := append([]byte{byte(2 * len(id))}, id...)
		msgs = append(msgs, pipeline.Message{Topic: l.ID + ".meters", Partition: partition, Key: []byte(id), Value: codec.Frame(schema, append(body, 0))})
	}
	l.Write(msgs)
}

// delivered are the names of the records that arrived, each once.
func delivered(l *lab.Lab) map[string]bool {
	l.T.Helper()
	got := map[string]bool{}
	l.Each(l.ID+".meters.out", func(_ pipeline.TP, r *pipeline.Record) {
		name := string(r.Value[6 : 6+int(r.Value[5])/2])
		if got[name] {
			l.T.Errorf("%s was delivered twice", name)
		}
		got[name] = true
	})
	return got
}

// passed tells which partitions of the source are committed to their end.
func passed(l *lab.Lab) (out [lanes]bool) {
	l.T.Helper()
	points, err := l.Admin.Checkpoints(l.T.Context(), l.ID+".meters")
	if err != nil {
		return out
	}
	ends, err := l.Admin.EndOffsets(l.T.Context(), l.ID+".meters")
	if err != nil {
		l.T.Fatal(err)
	}
	for p, end := range ends {
		out[p] = points[pipeline.TP{Topic: l.ID + ".meters", Partition: p}].Next == end
	}
	return out
}

// holding stands before a registry and keeps requests for one schema until it is opened.
type holding struct {
	*httptest.Server
	mu    sync.Mutex
	asked int
	open  chan struct{}
}

func hold(t *testing.T, registry string) (h *holding, of func(id int32)) {
	t.Helper()
	target, err := url.Parse(registry)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Director = func(r *http.Request) { // the address alone is another: a path may be escaped
		r.URL.Scheme, r.URL.Host = target.Scheme, target.Host
	}
	h = &holding{open: make(chan struct{})}
	held := ""
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.mu.Lock()
		mine := held != "" && strings.HasSuffix(r.URL.Path, held)
		if mine {
			h.asked++
		}
		h.mu.Unlock()
		if mine {
			select {
			case <-h.open:
			case <-r.Context().Done():
				return
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(h.Close)
	return h, func(id int32) {
		h.mu.Lock()
		defer h.mu.Unlock()
		held = "/schemas/ids/" + strconv.Itoa(int(id))
	}
}

// A registry that hangs: while it is asked for the schema of one record, the record's own partition waits and nobody else does.
func onlyItsPartitionWaits(t *testing.T, registry string) {
	h, of := hold(t, registry)
	l, known, late := registryLab(t, registry)
	l.Registry = h.URL + strings.TrimPrefix(registry, "http://"+strings.SplitN(strings.TrimPrefix(registry, "http://"), "/", 2)[0])
	l.Edit("reprieve.yaml", "timeout: 800ms", "timeout: 2m") // so that what waits, waits until the test says so
	for p := range int32(lanes) {
		readings(l, p, known, "warm"+strconv.Itoa(int(p))+"-", 5)
	}
	l.Start("pipelines/meters.yaml")
	everywhere := [lanes]bool{true, true, true, true}
	l.Until(2*time.Minute, "the schema that is known", func() bool { return passed(l) == everywhere })

	of(late)
	readings(l, 2, late, "late", 1)
	l.Until(time.Minute, "the question", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return h.asked > 0
	})
	for p := range int32(lanes) {
		readings(l, p, known, "after"+strconv.Itoa(int(p))+"-", 200)
	}
	others := [lanes]bool{true, true, false, true}
	l.Until(2*time.Minute, "every other partition", func() bool { return passed(l) == others })
	if got := delivered(l); len(got) != 5*lanes+200*(lanes-1) || got["late0"] {
		t.Errorf("%d records were delivered while one waited", len(got))
	}
	if h.mu.Lock(); h.asked != 1 {
		t.Errorf("the registry was asked %d times at once", h.asked)
	}
	h.mu.Unlock()
	close(h.open)
	l.Until(2*time.Minute, "the partition that waited", func() bool { return passed(l) == everywhere })
	if got := delivered(l); len(got) != 5*lanes+200*lanes+1 || !got["late0"] {
		t.Errorf("%d records were delivered in the end", len(got))
	}
	if dead := letters(l, l.ID+".meters.dlq"); len(dead) != 0 {
		t.Errorf("dead letters %v", dead)
	}
}

func TestOnlyTheRecordsOwnPartitionWaitsForTheRegistry(t *testing.T) {
	t.Run("embedded", func(t *testing.T) {
		r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = r.Close() })
		onlyItsPartitionWaits(t, r.URL())
	})
	t.Run("real", func(t *testing.T) { onlyItsPartitionWaits(t, services.Registry(t)) })
}

// A registry that is gone: records whose schema is known go on in every partition, those that need it wait, none becomes a dead
// letter or is counted as tried too often, and all of them arrive when it is back.
func TestWhatIsKnownGoesOnWhileTheRegistryIsDown(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "registry")
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	l, known, late := registryLab(t, r.URL())
	l.Registry = r.URL()
	for p := range int32(lanes) {
		readings(l, p, known, "warm"+strconv.Itoa(int(p))+"-", 5)
	}
	w := l.Start("pipelines/meters.yaml")
	everywhere := [lanes]bool{true, true, true, true}
	l.Until(2*time.Minute, "the schema that is known", func() bool { return passed(l) == everywhere })

	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	readings(l, 2, late, "late", 3)
	for p := range int32(lanes) {
		readings(l, p, known, "after"+strconv.Itoa(int(p))+"-", 200)
	}
	want := 5*lanes + 200*lanes
	l.Until(2*time.Minute, "what is known", func() bool { return len(delivered(l)) == want })
	l.Until(2*time.Minute, "the registry known as down", func() bool { return strings.Contains(w.Log(), string(pipeline.CodeDependencyDown)) })
	if got := delivered(l); got["late0"] || got["late1"] || got["late2"] {
		t.Error("a record was delivered whose schema nobody knew")
	}
	if dead := letters(l, l.ID+".meters.dlq"); len(dead) != 0 {
		t.Errorf("dead letters during the outage: %v", dead)
	}

	if r, err = embedded.StartRegistry(embedded.RegistryConfig{Dir: dir, Addr: strings.TrimPrefix(r.URL(), "http://")}); err != nil {
		t.Fatal(err)
	}
	l.Until(2*time.Minute, "what had to wait", func() bool { return len(delivered(l)) == want+3 })
	l.Until(2*time.Minute, "the end of the source", func() bool { return l.Settled(l.ID+".meters", l.ID+".meters", l.ID+".meters.retry") })
	if dead := letters(l, l.ID+".meters.dlq"); len(dead) != 0 {
		t.Errorf("dead letters: %v", dead)
	}
}
