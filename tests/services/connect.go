package services

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
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
	dir, err := os.MkdirTemp("", "reprieve-connect-")
	if err != nil {
		return nil, err
	}
	args, url, err := connectArgs(dir, ConnectOptions{Bootstrap: bootstrap, Name: name, Settings: settings})
	if err != nil {
		return nil, err
	}
	w := &ConnectWorker{URL: url}
	if w.p, err = start(spec{name: "connect", dir: dir, remove: true, signal: "TERM", args: args}); err != nil {
		return nil, err
	}
	if err := w.p.await(time.Minute, func() bool { return w.running(name) }); err != nil {
		_ = w.p.stop()
		return nil, err
	}
	return w, nil
}

// ConnectOptions says what a worker of Kafka Connect runs.
type ConnectOptions struct {
	Bootstrap string
	Name      string            // of its connector
	Settings  map[string]string // of its connector
	Classes   string            // folder of classes that it may use beside its own; "" is none
	JVM       []string          // settings of its Java; nil are those of a quick start
}

// ConnectCommand writes the files of a worker into dir and returns the command that runs it, for who measures it.
func ConnectCommand(dir string, o ConnectOptions) (*exec.Cmd, error) {
	args, _, err := connectArgs(dir, o)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = dir
	return cmd, nil
}

// ConnectClasses compiles Java sources (file name to text) against a worker's own classes into dir. Other files go there as they
// are. It needs the compiler of a Java 17 or newer.
func ConnectClasses(dir string, files map[string]string) error {
	vm, err := java(17)
	if err != nil {
		return err
	}
	home, err := connectHome()
	if err != nil {
		return err
	}
	args := []string{"-nowarn", "-d", dir, "-cp", filepath.Join(home, "lib", "*")}
	for name, text := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return err
		}
		if strings.HasSuffix(name, ".java") {
			args = append(args, path)
		}
	}
	return run(exec.Command(filepath.Join(filepath.Dir(vm), "javac"), args...))
}

func connectHome() (string, error) {
	home, err := cached("connect-mirror-"+connectVersion, func(dir string) error { return downloadJars(dir, "connect-pom.xml") })
	if err != nil {
		return "", fmt.Errorf("download Kafka Connect: %w", err)
	}
	return home, nil
}

// connectArgs writes the files of a worker into dir and returns the command line that runs it, and the URL of its REST API.
func connectArgs(dir string, o ConnectOptions) (args []string, url string, err error) {
	vm, err := java(17)
	if err != nil {
		return nil, "", err
	}
	home, err := connectHome()
	if err != nil {
		return nil, "", err
	}
	port, err := freePort()
	if err != nil {
		return nil, "", err
	}
	url = "http://127.0.0.1:" + strconv.Itoa(port)
	worker := map[string]string{"bootstrap.servers": o.Bootstrap, "listeners": url,
		"offset.storage.file.filename": filepath.Join(dir, "offsets"), "offset.flush.interval.ms": "500",
		"key.converter":   "org.apache.kafka.connect.converters.ByteArrayConverter",
		"value.converter": "org.apache.kafka.connect.converters.ByteArrayConverter", "plugin.discovery": "service_load"}
	of := map[string]string{"name": o.Name}
	for k, v := range o.Settings {
		of[k] = v
	}
	for file, lines := range map[string]map[string]string{"worker.properties": worker, "connector.properties": of} {
		if err := writeProperties(filepath.Join(dir, file), lines); err != nil {
			return nil, "", err
		}
	}
	jvm := o.JVM
	if jvm == nil {
		jvm = append([]string{"-Xmx384m"}, quickStart(vm, home)...)
	}
	classes := filepath.Join(home, "lib", "*")
	if o.Classes != "" {
		classes = o.Classes + string(os.PathListSeparator) + classes
	}
	args = append(append([]string{vm}, jvm...), "-cp", classes, "org.apache.kafka.connect.cli.ConnectStandalone",
		filepath.Join(dir, "worker.properties"), filepath.Join(dir, "connector.properties"))
	return args, url, nil
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
