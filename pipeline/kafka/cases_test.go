package kafka_test

import (
	"encoding/csv"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/tests/services"
)

func TestCaseC26PauseIsNotInherited(t *testing.T) {
	at := startEmbedded(t)
	for name, properties := range protocols {
		t.Run(name, func(t *testing.T) { conformance.CaseC26(tt{t}, newAdapter(at, properties)) })
	}
}

func TestCaseC28LateCommitIsDropped(t *testing.T) {
	at := startEmbedded(t)
	for name, properties := range protocols {
		t.Run(name, func(t *testing.T) { conformance.CaseC28(tt{t}, newAdapter(at, properties)) })
	}
}

// caseRecord is a record of a case's file.
type caseRecord struct {
	TimeMS  int64       `json:"timestamp_ms"`
	Key     *string     `json:"key_hex"`
	Value   *string     `json:"value_hex"`
	Headers [][]*string `json:"headers"`
}

func unhex(t *testing.T, s *string) []byte {
	t.Helper()
	if s == nil {
		return nil
	}
	b, err := hex.DecodeString(*s)
	if err != nil {
		t.Fatal(err)
	}
	if b == nil {
		b = []byte{}
	}
	return b
}

// roundTrip writes records and reads them back.
func roundTrip(t *testing.T, recs []caseRecord) {
	a := newAdapter(startEmbedded(t), nil)
	topic := a.CreateTopic(tt{t}, 1, nil)
	var want []pipeline.Record
	var msgs []pipeline.Message
	for i, c := range recs {
		r := pipeline.Record{Offset: int64(i), TimeMS: c.TimeMS, TimeType: pipeline.TimeCreate, Key: unhex(t, c.Key), Value: unhex(t, c.Value)}
		for _, h := range c.Headers {
			r.Headers = append(r.Headers, pipeline.Header{Name: *h[0], Value: unhex(t, h[1])})
		}
		want = append(want, r)
		msgs = append(msgs, pipeline.Message{Topic: topic, Key: r.Key, Value: r.Value, Headers: r.Headers, TimeMS: r.TimeMS, From: -1})
	}
	conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), msgs...)
	got := conformance.Read(tt{t}, a.Source(tt{t}, conformance.SourceOptions{Group: a.Name("case"), Topics: []string{topic}}), len(want))
	if d := cmp.Diff(want, got[pipeline.TP{Topic: topic}]); d != "" {
		t.Errorf("records changed on their way (-written +read):\n%s", d)
	}
}

func load(t *testing.T, into any, name string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, into); err != nil {
		t.Fatal(err)
	}
}

func TestCaseC32NullStaysNull(t *testing.T) {
	var recs []caseRecord
	load(t, &recs, "C32/records.json")
	roundTrip(t, recs)
}

func TestCaseC61SevenHeadersInOrder(t *testing.T) {
	var rec caseRecord
	load(t, &rec, "C61/record.json")
	if len(rec.Headers) != 7 {
		t.Fatalf("%d headers in the case", len(rec.Headers))
	}
	roundTrip(t, []caseRecord{rec})
}

func TestCaseC41KeysGoWhereJavaPutsThem(t *testing.T) {
	f, err := os.Open("testdata/C41/table.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	a := newAdapter(startEmbedded(t), nil)
	topics := map[string]string{}
	var msgs []pipeline.Message
	for _, row := range rows[1:] {
		n, err := strconv.Atoi(row[1])
		if err != nil {
			t.Fatal(err)
		}
		if topics[row[1]] == "" {
			topics[row[1]] = a.CreateTopic(tt{t}, n, nil)
		}
		msgs = append(msgs, pipeline.Message{Topic: topics[row[1]], Partition: -1, Key: []byte(row[0]), From: -1})
	}
	s := conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), msgs...)
	for i, row := range rows[1:] {
		if got := strconv.Itoa(int(s.Msgs[i].Partition)); got != row[2] {
			t.Errorf("%s of %s partitions went to %s, want %s", row[0], row[1], got, row[2])
		}
	}
}

func TestCaseC44CompactedTopicRefusesOnlyTheKeyless(t *testing.T) {
	if testing.Short() {
		t.Skip("short: only a real broker refuses it")
	}
	conformance.CaseC44(tt{t}, newAdapter(services.Kafka(t), nil))
}
