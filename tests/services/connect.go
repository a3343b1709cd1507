package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ConnectWorker is a worker of Kafka Connect in its standalone mode, with one connector.
type ConnectWorker struct {
	URL string // of its REST API

	p *process
}

// connectVersion is the newest that brings a connector of its own; it speaks to newer brokers.
const connectVersion = "4.3.1"

// Connect starts a worker with one connector for this test and waits until its task runs: about 6 s, and a download of 36 MB the
// first time. settings are the connector's. It is skipped by name where it cannot be had.
func Connect(t TB, bootstrap, name string, settings map[string]string) *ConnectWorker {
	t.Helper()
	w, err := startConnect(bootstrap, name, settings)
	if err != nil {
		missing(t, "Kafka Connect", err, false)
	}
	t.Cleanup(func() {
		if err := w.p.stop(); err != nil {
			t.Logf("stop Kafka Connect: %v", err)
		}
	})
	return w
}

func startConnect(bootstrap, name string, settings map[string]string) (*ConnectWorker, error) {
	vm, err := java(17)
	if err != nil {
		return nil, err
	}
	home, err := cached("connect-"+connectVersion, func(dir string) error { return downloadJars(dir, "connect-pom.xml") })
	if err != nil {
		return nil, fmt.Errorf("download Kafka Connect: %w", err)
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "reprieve-connect-")
	if err != nil {
		return nil, err
	}
	worker := map[string]string{"bootstrap.servers": bootstrap, "listeners": "http://127.0.0.1:" + strconv.Itoa(port),
		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "500",
		"key.converter":   "org.apache.kafka.connect.converters.ByteArrayConverter",
		"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter", "plugin.discovery": "service_load"}
	of := map[string]string{"name": name}
	for k, v := range settings {
		of[k] = v
	}
	files := map[string]map[string]string{"worker.properties": worker, "connector.properties": of}
	for file, lines := range files {
		if err := writeProperties(filepath.Join(dir, file), lines); err != nil {
			return nil, err
		}
	}
	w := &ConnectWorker{URL: worker["listeners"]}
	args := append([]string{vm, "-Xmx384m"}, quickStart(vm, home)...)
	args = append(args, "-cp", filepath.Join(home, "lib", "*"), "org.apache.kafka.connect.cli.ConnectStandalone",
		filepath.Join(dir, "worker.properties"), filepath.Join(dir, "connector.properties"))
	if w.p, err = start(spec{name: "connect", dir: dir, remove: true, signal: "TERM", args: args}); err != nil {
		return nil, err
	}
	if err := w.p.await(time.Minute, func() bool { return w.running(name) }); err != nil {
		_ = w.p.stop()
		return nil, err
	}
	return w, nil
}

// running tells whether the connector and its task run.
func (w *ConnectWorker) running(name string) bool {
	r, err := http.Get(w.URL + "/connectors/" + name + "/status")
	if err != nil {
		return false
	}
	defer r.Body.Close()
	var s struct {
		Connector struct{ State string }
		Tasks     []struct{ State string }
	}
	return json.NewDecoder(r.Body).Decode(&s) == nil && s.Connector.State == "RUNNING" && len(s.Tasks) > 0 && s.Tasks[0].State == "RUNNING"
}

// writeProperties writes a file of Java properties. Names and values are ours: none needs an escape.
func writeProperties(path string, of map[string]string) error {
	var lines []string
	for k, v := range of {
		lines = append(lines, k+"="+v)
	}
	slices.Sort(lines)
	return os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644)
}
