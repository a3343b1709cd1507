package integration

import (
	"encoding/base64"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/tests/lab"
)

// captured reads dead letters that other systems wrote.
func captured(t *testing.T, dialect, topic string) (out []pipeline.Message) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "deadletter", "testdata", "dialects", dialect+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var records []struct {
		Key, Value *string
		Headers    [][2]*string
	}
	if err := json.Unmarshal(text, &records); err != nil {
		t.Fatal(err)
	}
	decode := func(s *string) []byte {
		if s == nil {
			return nil
		}
		b, err := base64.StdEncoding.DecodeString(*s)
		if err != nil {
			t.Fatal(err)
		}
		return append([]byte{}, b...)
	}
	for _, r := range records {
		m := pipeline.Message{Topic: topic, Partition: -1, Key: decode(r.Key), Value: decode(r.Value), From: -1}
		for _, h := range r.Headers {
			m.Headers = append(m.Headers, pipeline.Header{Name: *h[0], Value: decode(h[1])})
		}
		out = append(out, m)
	}
	return out
}

// Dead letters of other systems are counted, named in the worker file, and taken into custody like our own.
func TestAdoptTakesWhatOthersDeadLettered(t *testing.T) {
	c := startCluster(t)
	l := lab.New(t, c.Properties["bootstrap.servers"])
	total := 0
	for _, dialect := range []string{"connect", "streams", "share", "spring"} {
		topic := l.ID + "." + dialect
		c.create(t, 2, topic)
		msgs := captured(t, dialect, topic)
		l.Write(msgs)
		total += len(msgs)

		var got struct {
			Topics []struct {
				Messages int64
				Dialects map[string]int64
				Raw      int64
			}
			Written []string
		}
		l.JSON(&got, "adopt", topic, "--dry-run")
		if n := int64(len(msgs)); got.Topics[0].Messages != n || got.Topics[0].Dialects[dialect] != n || got.Topics[0].Raw != 0 || len(got.Written) != 0 {
			t.Errorf("%s: %+v", dialect, got)
		}
		l.JSON(&got, "adopt", topic, "--dialect", dialect)
		if len(got.Written) != 1 {
			t.Errorf("%s was not written to the worker file", topic)
		}
		l.JSON(&got, "adopt", topic)
		if len(got.Written) != 0 {
			t.Errorf("%s was written twice", topic)
		}
	}
	text, err := os.ReadFile(filepath.Join(l.Dir, "reprieve.yaml"))
	if err != nil || !strings.Contains(string(text), "make them once") {
		t.Errorf("the comments of the worker file are gone: %v", err)
	}
	l.Must("check")
	w := l.Start("--roles", "custodian")
	var found struct {
		Items []struct{ ID, State string }
	}
	l.Until(time.Minute, "custody of the adopted letters", func() bool {
		l.JSON(&found, "quarantine", "list", "dialect=connect|streams|share|spring", "--limit", "100")
		return len(found.Items) == total
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	l.Must("ledger", "verify")
}
