package services

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// KafkaOptions says how to start a broker.
type KafkaOptions struct {
	Dir        string // data and log; kept after Stop. "" is a temporary one that goes with it
	Properties string // lines for server.properties, behind ours; @BROKER@ and @CONTROLLER@ are its ports
	Features   []string
}

// KafkaServer is an Apache Kafka node of its own, for tests that restart or kill one. Others share the one of Kafka.
type KafkaServer struct {
	Bootstrap string

	p         *process
	dir       string
	temporary bool
	java, lib string
	conf      string
}

const kafkaVersion = "4.4.0"

// StartKafka starts a broker and waits until it is ready: 3 to 5 s, and a download of 70 MB the first time. A folder that
// was used before is taken up again, with the same port and data.
func StartKafka(o KafkaOptions) (*KafkaServer, error) {
	k := &KafkaServer{dir: o.Dir}
	var err error
	if k.java, err = java(17); err != nil {
		return nil, err
	}
	if k.lib, err = cached("kafka-"+kafkaVersion, func(dir string) error { return downloadJars(dir, "pom.xml") }); err != nil {
		return nil, fmt.Errorf("download Apache Kafka: %w", err)
	}
	if k.dir == "" {
		k.temporary = true
		if k.dir, err = os.MkdirTemp("", "reprieve-kafka-"); err != nil {
			return nil, err
		}
	} else if err := os.MkdirAll(k.dir, 0o755); err != nil {
		return nil, err
	}
	k.conf = filepath.Join(k.dir, "server.properties")
	if _, err := os.Stat(k.conf); err != nil {
		if err := k.format(o); err != nil {
			return nil, err
		}
	}
	return k, k.Start()
}

// downloadJars fills dir with what a project file of ours names, and with our log settings.
func downloadJars(dir, project string) error {
	for _, name := range []string{project, "log4j2.properties"} {
		b, err := files.ReadFile("files/" + name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			return err
		}
	}
	return maven("-f", filepath.Join(dir, project), "dependency:copy-dependencies", "-DincludeScope=runtime",
		"-DoutputDirectory="+filepath.Join(dir, "lib"))
}

// format writes the settings and the empty log folders.
func (k *KafkaServer) format(o KafkaOptions) error {
	broker, err := freePort()
	if err != nil {
		return err
	}
	controller, err := freePort()
	if err != nil {
		return err
	}
	b, err := files.ReadFile("files/server.properties")
	if err != nil {
		return err
	}
	text := strings.NewReplacer("@BROKER@", strconv.Itoa(broker), "@CONTROLLER@", strconv.Itoa(controller),
		"@DATA@", filepath.Join(k.dir, "data")).Replace(string(b) + o.Properties + "\n")
	if err := os.WriteFile(k.conf, []byte(text), 0o644); err != nil {
		return err
	}
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	args := append(k.jvm(), "kafka.tools.StorageTool", "format", "--standalone", "-c", k.conf, "-t",
		"r"+base64.RawURLEncoding.EncodeToString(id)[1:]) // one that starts with a dash would be an option
	for _, f := range o.Features {
		args = append(args, "--feature", f)
	}
	return run(exec.Command(k.java, args...))
}

func (k *KafkaServer) jvm() []string {
	args := append([]string{"-Xms256m", "-Xmx768m"}, quickStart(k.java, k.lib)...)
	return append(args, "-cp", filepath.Join(k.lib, "lib", "*"))
}

// quickStart are the settings of a Java that is started for a test, with the jars of home.
func quickStart(java, home string) []string {
	args := []string{"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
		"-Dlog4j2.configurationFile=" + filepath.Join(home, "log4j2.properties")}
	if javaVersion(filepath.Dir(filepath.Dir(java))) >= 19 { // shared classes halve the start
		args = append(args, "-XX:+AutoCreateSharedArchive", "-XX:SharedArchiveFile="+filepath.Join(home, "classes.jsa"))
	}
	return args
}

// Start starts it again after Stop or Kill, at the same port.
func (k *KafkaServer) Start() error {
	b, err := os.ReadFile(k.conf)
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(b), "listeners=PLAINTEXT://")
	k.Bootstrap, _, _ = strings.Cut(rest, ",")
	size := int64(0)
	if st, err := os.Stat(filepath.Join(k.dir, "log")); err == nil {
		size = st.Size()
	}
	k.p, err = start(spec{name: "kafka", dir: k.dir, remove: k.temporary, signal: "TERM",
		args: append(append([]string{k.java}, k.jvm()...), "kafka.Kafka", k.conf)})
	if err != nil {
		return err
	}
	// an open port says nothing: the broker is ready when it says so
	if err := k.p.await(time.Minute, func() bool { return k.p.logged("Kafka Server started", size) }); err != nil {
		_ = k.p.stop()
		return err
	}
	return nil
}

// Stop shuts it down in an orderly way. A temporary folder goes with it.
func (k *KafkaServer) Stop() error { return k.p.stop() }

// Kill ends it as a crash does. Its folder must not be temporary if it is to start again.
func (k *KafkaServer) Kill() error { return k.p.kill() }

// Pid is its process id, for measuring.
func (k *KafkaServer) Pid() int { return k.p.pid }
