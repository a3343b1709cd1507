package kafka

import (
	"strings"
	"testing"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// known asks the linked library whether it has a property. Two of the settings contradict each other, so that no client is
// ever made of values that mean nothing.
func known(name string) bool {
	m := client.ConfigMap{"transactional.id": "x", "max.in.flight": 1000, "enable.idempotence": true}
	m[name] = "\x01"
	p, err := client.NewProducer(&m)
	if err == nil {
		p.Close()
		return true
	}
	return !strings.Contains(err.Error(), "No such configuration property")
}

func TestEveryNameIsKnownToTheLibrary(t *testing.T) {
	seen := map[string]bool{}
	for n := range strings.FieldsSeq(namesAll + namesConsumer + namesProducer) {
		if seen[n] {
			t.Errorf("%s stands twice", n)
		}
		seen[n] = true
		if !known(n) {
			t.Errorf("the library knows no %s", n)
		}
	}
	if known("bootstrap.server") {
		t.Error("the question cannot tell a wrong name")
	}
	for n := range ours {
		if kindOf(n) == 0 {
			t.Errorf("%s is refused as ours but not known", n)
		}
	}
}

func TestPropertiesAreChecked(t *testing.T) {
	for name, c := range map[string]struct {
		properties map[string]string
		want       []string // parts of what is said, one problem each
	}{
		"good":         {map[string]string{"bootstrap.servers": "a:1", "ssl.ca.location": "x", "linger.ms": "1"}, nil},
		"misspelt":     {map[string]string{"bootstrap.servers": "a:1", "sasl.mechanim": "PLAIN"}, []string{"did you mean sasl.mechanism?"}},
		"java's name":  {map[string]string{"bootstrap.servers": "a:1", "max.block.ms": "1"}, []string{"librdkafka knows no property \"max.block.ms\""}},
		"far from all": {map[string]string{"bootstrap.servers": "a:1", "zzzzzzzz": "1"}, []string{"zzzzzzzz"}},
		"ours":         {map[string]string{"bootstrap.servers": "a:1", "enable.auto.commit": "true"}, []string{"remove it: offsets"}},
		"all at once": {map[string]string{"group.id": "x", "acks": "1", "compresion.type": "lz4"},
			[]string{"every write waits", "did you mean compression.type?", "set source.group", "bootstrap.servers is missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad := Cluster{Name: "main", Properties: c.properties}.Check()
			if len(bad) != len(c.want) {
				t.Fatalf("%d problems, want %d: %v", len(bad), len(c.want), bad)
			}
			for i, want := range c.want {
				if got := bad[i].Error() + " " + bad[i].Remedy; !strings.Contains(got, want) || bad[i].Code != pipeline.CodeBrokerConfig {
					t.Errorf("problem %d is %s %q, want %q in it", i, bad[i].Code, got, want)
				}
			}
		})
	}
}

func TestAPropertyOfTheFileWinsUnderBothItsNames(t *testing.T) {
	c := Cluster{Properties: map[string]string{"bootstrap.servers": "a:1", "queue.buffering.max.ms": "7", "delivery.timeout.ms": "9",
		"fetch.min.bytes": "3"}}
	m, err := c.settings(forProducer, map[string]string{"acks": "all"})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"queue.buffering.max.ms": "7", "linger.ms": "", "delivery.timeout.ms": "9",
		"message.timeout.ms": "", "fetch.min.bytes": "", "acks": "all"} {
		if got := m[name]; got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func TestAValueThatTheLibraryRefusesIsAConfigProblem(t *testing.T) {
	c := Cluster{Name: "main", Properties: map[string]string{"bootstrap.servers": "a:1", "security.protocol": "carrier-pigeon"}}
	if _, err := NewSink(SinkConfig{Cluster: c}); pipeline.CodeOf(err) != pipeline.CodeBrokerConfig {
		t.Errorf("NewSink: %v", err)
	}
	if _, err := NewSource(SourceConfig{Cluster: c, Group: "g", Topics: []string{"t"}}); pipeline.CodeOf(err) != pipeline.CodeBrokerConfig {
		t.Errorf("NewSource: %v", err)
	}
	if _, err := NewAdmin(c); pipeline.CodeOf(err) != pipeline.CodeBrokerConfig {
		t.Errorf("NewAdmin: %v", err)
	}
}

func TestCodesOfTheClientAreSorted(t *testing.T) {
	keyed, keyless := &pipeline.Message{Topic: "t", Key: []byte{}}, &pipeline.Message{Topic: "t"}
	for _, c := range []struct {
		code client.ErrorCode
		m    *pipeline.Message
		want pipeline.Code
	}{
		{client.ErrMsgSizeTooLarge, keyed, pipeline.CodeTooLarge},
		{client.ErrUnknownTopicOrPart, keyed, pipeline.CodeSendTopicMissing},
		{client.ErrUnknownTopic, keyed, pipeline.CodeSendTopicMissing},
		{client.ErrTopicAuthorizationFailed, keyed, pipeline.CodeSendDenied},
		{client.ErrMsgTimedOut, keyed, pipeline.CodeSendTimeout},
		{client.ErrPurgeInflight, keyed, pipeline.CodeSendTimeout},
		{client.ErrInvalidRecord, keyless, pipeline.CodeSendKeyless},
		{client.ErrInvalidMsg, keyless, pipeline.CodeSendKeyless},
		{client.ErrInvalidRecord, keyed, pipeline.CodeSendFailed},
		{client.ErrNotEnoughReplicas, keyed, pipeline.CodeSendFailed},
	} {
		f := refusal(client.NewError(c.code, "x", false), c.m)
		if f.Code != c.want {
			t.Errorf("%v with key %v is %s, want %s", c.code, c.m.Key, f.Code, c.want)
		}
		if f.Params[0] != pipeline.Str("topic", "t") {
			t.Errorf("%v: the first param is %v, want the topic", c.code, f.Params[0])
		}
	}
}
