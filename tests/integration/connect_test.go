package integration

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// A worker of Kafka Connect writes its sink's file and dead-letters what it cannot convert or transform. Those letters are counted,
// adopted and taken into custody, and each says where its record stood and what failed; the worker's commits confirm them.
func TestAdoptTakesWhatAConnectWorkerDeadLettered(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a worker of Kafka Connect")
	}
	l := lab.New(t, services.Kafka(t))
	in, dlq, sink := l.ID+".connect-in", l.ID+".connect-dlq", l.ID+"-filesink"
	if err := l.Admin.CreateTopics(t.Context(), kafka.TopicSpec{Name: in, Partitions: 2, Replicas: 1}, kafka.TopicSpec{Name: dlq, Partitions: 1, Replicas: 1}); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "sink.txt")
	services.Connect(t, l.Bootstrap, sink, map[string]string{
		"connector.class": "org.apache.kafka.connect.file.FileStreamSinkConnector", "tasks.max": "1", "topics": in, "file": file,
		"key.converter": "org.apache.kafka.connect.storage.StringConverter", "value.converter": "org.apache.kafka.connect.json.JsonConverter",
		"value.converter.schemas.enable": "false", "transforms": "amount", "transforms.amount.type": "org.apache.kafka.connect.transforms.Cast$Value",
		"transforms.amount.spec": "amount:int32", "consumer.override.auto.offset.reset": "earliest",
		"errors.tolerance": "all", "errors.deadletterqueue.topic.name": dlq, "errors.deadletterqueue.topic.replication.factor": "1",
		"errors.deadletterqueue.context.headers.enable": "true"})

	// what becomes of each record: "" reaches the file, else the stage that fails
	type fate struct{ Stage, Exception string }
	const converter, transform = "VALUE_CONVERTER", "TRANSFORMATION"
	const wrong = "org.apache.kafka.connect.errors.DataException"
	kinds := []struct {
		value string
		fate
	}{
		{`{"amount": "12"}`, fate{}},
		{`{"amount": "twelve"}`, fate{transform, wrong}},
		{`{"amount": `, fate{converter, wrong}},
		{"\x00\x00\x00\x00\x07\x02", fate{converter, wrong}},
	}
	want := map[string]fate{} // by where the record stood
	healthy := 0
	var msgs []pipeline.Message
	offsets := map[int32]int64{}
	for n := range 40 {
		k, p := kinds[n%len(kinds)], int32(n%3/2)
		msgs = append(msgs, pipeline.Message{Topic: in, Partition: p, Key: fmt.Appendf(nil, "ACC-%d", n), Value: []byte(k.value), From: -1,
			Headers: []pipeline.Header{{Name: "trace-id", Value: fmt.Appendf(nil, "t%d", n)}, {Name: "null", Value: nil}}})
		if k.fate == (fate{}) {
			healthy++
		} else {
			want[fmt.Sprintf("%s/%d/%d", in, p, offsets[p])] = k.fate
		}
		offsets[p]++
	}
	l.Write(msgs)
	l.Until(3*time.Minute, "every record is in the file or dead-lettered", func() bool {
		ends, err := l.Admin.EndOffsets(t.Context(), dlq)
		return err == nil && ends[0] == int64(len(want)) && lines(t, file) == healthy
	})

	type found struct {
		Topics []struct {
			Messages int64
			Dialects map[string]int64
			Classes  map[string]int64
			Raw      int64
			Unread   []struct{ Why string }
		}
		Written []string
	}
	var got found
	l.JSON(&got, "adopt", dlq, "--dry-run")
	classes := map[string]int64{}
	for _, f := range want {
		classes[f.Exception]++
	}
	if len(got.Topics) != 1 || got.Topics[0].Messages != int64(len(want)) || got.Topics[0].Raw != 0 || len(got.Topics[0].Unread) != 0 || len(got.Written) != 0 ||
		!maps.Equal(got.Topics[0].Dialects, map[string]int64{"connect": int64(len(want))}) || !maps.Equal(got.Topics[0].Classes, classes) {
		t.Errorf("adopt --dry-run: %+v, want %d letters, %v", got, len(want), classes)
	}
	l.JSON(&got, "adopt", dlq, "--consumer", "connect-"+sink)
	if len(got.Written) != 1 || got.Written[0] != dlq {
		t.Errorf("adopt wrote %v", got.Written)
	}
	l.Must("check")
	w := l.Start("--roles", "custodian")
	var confirmed struct{ Items []struct{ ID string } }
	l.Until(3*time.Minute, "custody of the adopted letters, confirmed by the worker's commits", func() bool {
		l.JSON(&confirmed, "quarantine", "list", "dialect=connect", "confirmed=yes", "--limit", "100")
		return len(confirmed.Items) == len(want)
	})
	have := map[string]fate{}
	for line := range strings.Lines(l.Must("quarantine", "export", "dialect=connect")) {
		var it custody.Form
		if err := json.Unmarshal([]byte(line), &it); err != nil {
			t.Fatal(err)
		}
		at := fmt.Sprintf("%s/%d/%s", it.Topic, it.Partition, it.Offset)
		have[at] = fate{it.Stage, it.Exception}
		if it.State != custody.DeadLettered || it.Pipeline != sink || it.Consumer != "connect-"+sink || it.Faithful != "inline" || it.Timestamp == "" || it.Reason == "" {
			t.Errorf("%s: %+v", at, it)
		}
	}
	if d := cmp.Diff(want, have); d != "" {
		t.Errorf("what failed where (-want +got):\n%s", d)
	}
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	l.Must("ledger", "verify")
}

// lines of a file that may not be there yet.
func lines(t *testing.T, path string) (n int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); n++ {
	}
	return n
}
