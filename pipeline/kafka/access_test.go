package kafka_test

import (
	"context"
	"strings"
	"testing"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/services"
)

// guarded is what makes a broker ask for passwords and hold permissions. Its listener keeps its name: only the protocol changes.
const guarded = `listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="root" password="right" user_root="right" user_ann="right";
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:root;User:ANONYMOUS
`

// allow gives ann a permission.
func allow(t *testing.T, root adapter, resource client.ResourceType, name string, ops ...client.ACLOperation) {
	t.Helper()
	m := client.ConfigMap{"bootstrap.servers": root.cluster.Properties["bootstrap.servers"], "log_level": 0}
	for _, k := range []string{"security.protocol", "sasl.mechanism", "sasl.username", "sasl.password"} {
		m[k] = root.cluster.Properties[k]
	}
	a, err := client.NewAdminClient(&m)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var acls client.ACLBindings
	for _, op := range ops {
		acls = append(acls, client.ACLBinding{Type: resource, Name: name, ResourcePatternType: client.ResourcePatternTypeLiteral, Principal: "User:ann",
			Host: "*", Operation: op, PermissionType: client.ACLPermissionTypeAllow})
	}
	out, err := a.CreateACLs(within(tt{t}), acls)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range out {
		if r.Error.Code() != client.ErrNoError {
			t.Fatal(r.Error)
		}
	}
}

// refusedBy checks that an answer says at once what a person has to mend, and where.
func refusedBy(t *testing.T, what string, err error, code pipeline.Code, place string) {
	t.Helper()
	e, ok := err.(*pipeline.Error)
	switch {
	case !ok || e.Code != code:
		t.Errorf("%s: %v, want %s", what, err, code)
	case !strings.Contains(e.Place, place):
		t.Errorf("%s: the place is %q, want %q in it", what, e.Place, place)
	case e.Fix() == "":
		t.Errorf("%s: no remedy", what)
	case strings.Contains(e.Error(), "wrong-password"):
		t.Errorf("%s: the text holds the password: %s", what, e.Error())
	}
}

// polled polls until a source ends.
func polled(t *testing.T, a adapter, topic, group string) (err error) {
	t.Helper()
	s, err := kafka.NewSource(kafka.SourceConfig{Cluster: a.cluster, Group: group, Topics: []string{topic}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	deadline(t, "the source gives up", func() bool {
		_, err = s.Poll(100 * time.Millisecond)
		return err != nil
	})
	return err
}

// sent sends until a sink has refused a message or itself.
func sent(t *testing.T, a adapter, topic string) (bad pipeline.Failure, err error) {
	t.Helper()
	k, err := kafka.NewSink(kafka.SinkConfig{Cluster: a.cluster})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Close(ended{})
	s := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, Value: []byte("v"), From: -1}}}
	if err := k.Send(s); err != nil {
		return bad, err
	}
	select {
	case <-k.Done():
	case <-time.After(time.Minute):
		t.Fatal("the sink tries for ever")
	}
	if len(s.Bad) == 0 {
		t.Fatal("a message was taken")
	}
	deadline(t, "the sink is at its end", func() bool {
		err = k.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, From: -1}}})
		return err != nil && err != pipeline.ErrFull
	})
	return s.Bad[0].Failure, err
}

type ended struct{ context.Context }

func (ended) Done() <-chan struct{} { c := make(chan struct{}); close(c); return c }
func (ended) Err() error            { return context.Canceled }
func (ended) Value(any) any         { return nil }

// Whoever may not do what a pipeline does is told so, by the real thing: which cluster or topic, why, what to mend. Nobody tries in
// silence for ever.
func TestApacheKafkaRefusesUsAndSaysWhy(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a real broker is left out")
	}
	k, err := services.StartKafka(services.KafkaOptions{Properties: guarded})
	if err != nil {
		t.Skipf("no Apache Kafka: %v", err)
	}
	t.Cleanup(func() { _ = k.Stop() })
	as := func(user, password, mechanism string) adapter {
		return newAdapter(k.Bootstrap, map[string]string{"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism,
			"sasl.username": user, "sasl.password": password, "message.timeout.ms": "3000"})
	}
	root := as("root", "right", "PLAIN")
	topic := root.CreateTopic(tt{t}, 1, nil)

	for what, a := range map[string]adapter{
		"a wrong password":  as("ann", "wrong-password", "PLAIN"),
		"an unknown user":   as("nobody", "right", "PLAIN"),
		"a wrong mechanism": as("ann", "right", "SCRAM-SHA-512"),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ad := a.admin(tt{t})
			_, err := ad.Topics(within(tt{t}))
			refusedBy(t, "list topics", err, pipeline.CodeBrokerAuth, "main (")
			_, err = ad.ClusterID(within(tt{t}))
			refusedBy(t, "cluster id", err, pipeline.CodeBrokerAuth, "main (")
			refusedBy(t, "poll", polled(t, a, topic, a.Name("group")), pipeline.CodeBrokerAuth, "main (")
			bad, err := sent(t, a, topic)
			if bad.Code != pipeline.CodeSendTimeout { // the message is not at fault: it is not its record that is quarantined
				t.Errorf("the message was refused as %s", bad.Code)
			}
			refusedBy(t, "send", err, pipeline.CodeBrokerAuth, "main (")
			_, err = kafka.NewTx(within(tt{t}), kafka.TxConfig{Cluster: a.cluster, TransactionalID: a.Name("tx")})
			refusedBy(t, "open a transactional id", err, pipeline.CodeBrokerAuth, "")
		})
	}

	t.Run("a missing permission", func(t *testing.T) {
		ann := as("ann", "right", "PLAIN")
		group := ann.Name("group")
		// nothing at all: a broker says of a topic that one may not see that it is not there, or that it is not allowed
		_, err := ann.admin(tt{t}).Offsets(within(tt{t}), topic)
		refusedBy(t, "offsets of a hidden topic", err, pipeline.CodeBrokerAuth, topic)
		refusedBy(t, "poll a hidden topic", polled(t, ann, topic, group), pipeline.CodeBrokerAuth, "main (")
		allow(t, root, client.ResourceTopic, topic, client.ACLOperationDescribe)
		refusedBy(t, "poll without the group", polled(t, ann, topic, group), pipeline.CodeBrokerAuth, "main (")
		allow(t, root, client.ResourceGroup, group, client.ACLOperationRead)
		refusedBy(t, "poll without reading", polled(t, ann, topic, group), pipeline.CodeBrokerAuth, topic)
		bad, err := sent(t, ann, topic)
		if bad.Code != pipeline.CodeSendDenied || !strings.Contains(bad.Reason(), topic) {
			t.Errorf("a write without permission: %s", bad.Reason())
		}
		refusedBy(t, "send", err, pipeline.CodeBrokerAuth, "main (")
		_, err = kafka.NewTx(within(tt{t}), kafka.TxConfig{Cluster: ann.cluster, TransactionalID: ann.Name("tx")})
		refusedBy(t, "open a transactional id", err, pipeline.CodeBrokerAuth, "")
	})
}
