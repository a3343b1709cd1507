package kafka_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/tests/conformance"
	"reprieve.dev/tests/services"
)

// cluster starts n brokers with options that the embedded one does not have.
func cluster(t *testing.T, n int, opts ...kfake.Opt) (*kfake.Cluster, string) {
	t.Helper()
	c, err := kfake.NewCluster(append(opts, kfake.NumBrokers(n), kfake.DataDir(t.TempDir()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c, strings.Join(c.ListenAddrs(), ",")
}

// certificate makes one for 127.0.0.1, signed by itself.
func certificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	about := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "127.0.0.1"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, about, about, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key},
		string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func TestConformsOverThreeBrokersWithTLSAndPasswords(t *testing.T) {
	cert, ca := certificate(t)
	_, at := cluster(t, 3, kfake.TLS(&tls.Config{Certificates: []tls.Certificate{cert}}), kfake.EnableSASL(),
		kfake.Superuser("SCRAM-SHA-256", "root", "right"))
	properties := map[string]string{"security.protocol": "SASL_SSL", "ssl.ca.pem": ca, "sasl.mechanism": "SCRAM-SHA-256",
		"sasl.username": "root", "sasl.password": "right"}
	a := newAdapter(at, properties)
	a.lacks = conformance.RefusesKeyless
	before := inventory()
	t.Run("source", func(t *testing.T) { conformance.RunSource(tt{t}, a) })
	t.Run("sink", func(t *testing.T) { conformance.RunSink(tt{t}, a) })
	t.Run("tx", func(t *testing.T) { conformance.RunTx(tt{t}, a) })
	if got := inventory(); got != before {
		t.Errorf("there is %s, before there was %s", got, before)
	}
}

// The same against the real broker, whose clients say who they are inside of TLS.
func TestConformsOverApacheKafkaWithTLSAndPasswords(t *testing.T) {
	if testing.Short() {
		t.Skip("short: a real broker is left out")
	}
	cert, ca := certificate(t)
	der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	property := func(name, text string) string {
		return name + "=" + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\\n") + "\n"
	}
	k, err := services.StartKafka(services.KafkaOptions{Properties: strings.Replace(guarded, "SASL_PLAINTEXT", "SASL_SSL", 1) +
		property("ssl.keystore.type", "PEM") + property("ssl.keystore.certificate.chain", ca) +
		property("ssl.keystore.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))) +
		property("ssl.truststore.type", "PEM") + property("ssl.truststore.certificates", ca)})
	if err != nil {
		t.Skipf("no Apache Kafka: %v", err)
	}
	t.Cleanup(func() { _ = k.Stop() })
	a := newAdapter(k.Bootstrap, map[string]string{"security.protocol": "SASL_SSL", "ssl.ca.pem": ca, "sasl.mechanism": "PLAIN",
		"sasl.username": "root", "sasl.password": "right"})
	t.Run("source", func(t *testing.T) { conformance.RunSource(tt{t}, a) })
	t.Run("sink", func(t *testing.T) { conformance.RunSink(tt{t}, a) })
	t.Run("tx", func(t *testing.T) { conformance.RunTx(tt{t}, a) })
}

// onBoth runs a test over the embedded broker, and over the real one unless tests are to be short.
func onBoth(t *testing.T, run func(t *testing.T, at string)) {
	t.Run("embedded", func(t *testing.T) { run(t, startEmbedded(t)) })
	t.Run("real", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: a real broker is left out")
		}
		run(t, services.Kafka(t))
	})
}

func TestEveryCompressionCarriesRecordsUnchanged(t *testing.T) { onBoth(t, everyCompression) }

func everyCompression(t *testing.T, at string) {
	for _, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(codec, func(t *testing.T) {
			a := newAdapter(at, map[string]string{"compression.type": codec, "batch.num.messages": "100"})
			topic := a.CreateTopic(tt{t}, 1, nil)
			var want []pipeline.Record
			var msgs []pipeline.Message
			for i := range 1000 {
				m := pipeline.Message{Topic: topic, Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, strings.Repeat("the same again ", i%40)), TimeMS: 1_700_000_000_000 + int64(i),
					Headers: []pipeline.Header{{Name: "n", Value: fmt.Append(nil, i)}, {Name: "n"}, {Name: "", Value: []byte{}}}, From: -1}
				msgs = append(msgs, m)
				want = append(want, pipeline.Record{Offset: int64(i), TimeMS: m.TimeMS, TimeType: pipeline.TimeCreate, Key: m.Key, Value: m.Value, Headers: m.Headers})
			}
			conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), msgs...)
			got := conformance.Read(tt{t}, open(t, a, topic), len(want))[pipeline.TP{Topic: topic}]
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("records changed on their way (-written +read):\n%s", d)
			}
		})
	}
}

// How large a message may be is what its topic says, not what the client library thinks.
func TestATopicSaysHowLargeAMessageMayBe(t *testing.T) { onBoth(t, largeMessages) }

func largeMessages(t *testing.T, at string) {
	a := newAdapter(at, nil)
	for most, size := range map[string]int{"1048588": 1_040_000, "3000000": 2_900_000} {
		topic := a.CreateTopic(tt{t}, 1, map[string]string{"max.message.bytes": most})
		k := a.Sink(tt{t}, conformance.SinkOptions{})
		value := bytes.Repeat([]byte("v"), size)
		conformance.Write(tt{t}, k, pipeline.Message{Topic: topic, Value: value, From: -1}, pipeline.Message{Topic: topic, Value: []byte("small"), From: -1})
		got := conformance.Read(tt{t}, open(t, a, topic), 2)[pipeline.TP{Topic: topic}]
		if len(got) != 2 || !bytes.Equal(got[0].Value, value) {
			t.Errorf("%d records of %s", len(got), topic)
		}
		s := &pipeline.Sending{Msgs: []pipeline.Message{{Topic: topic, Value: bytes.Repeat(value, 2), From: -1}}}
		if err := k.Send(s); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
		if len(s.Bad) != 1 || s.Bad[0].Failure.Code != pipeline.CodeTooLarge {
			t.Errorf("twice as much: %+v", s.Bad)
		}
	}
}

func TestManyTopicsAreReadAndWrittenByOneClient(t *testing.T) { onBoth(t, manyTopics) }

func manyTopics(t *testing.T, at string) {
	const n = 120
	a := newAdapter(at, nil)
	specs := make([]kafka.TopicSpec, n)
	names := make([]string, n)
	var msgs []pipeline.Message
	for i := range specs {
		names[i] = a.Name("many")
		specs[i] = kafka.TopicSpec{Name: names[i], Partitions: 2}
		for p := range int32(2) {
			msgs = append(msgs, numbered(names[i], p, 5)...)
		}
	}
	if err := a.admin(tt{t}).CreateTopics(within(tt{t}), specs...); err != nil {
		t.Fatal(err)
	}
	conformance.Write(tt{t}, a.Sink(tt{t}, conformance.SinkOptions{}), msgs...)
	for tp, recs := range conformance.Read(tt{t}, open(t, a, names...), len(msgs)) {
		for i, r := range recs {
			if r.Offset != int64(i) || string(r.Value) != strconv.Itoa(i) || len(recs) != 5 {
				t.Fatalf("%v: %d records, %q stands at %d", tp, len(recs), r.Value, r.Offset)
			}
		}
	}
}

// numbered makes n messages for one partition whose value is their number.
func numbered(topic string, partition int32, n int) (out []pipeline.Message) {
	for i := range n {
		out = append(out, pipeline.Message{Topic: topic, Partition: partition, Key: fmt.Append(nil, "k", i), Value: strconv.AppendInt(nil, int64(i), 10), From: -1})
	}
	return out
}

// carry copies from in to out until n records were acknowledged, each batch sent from where it stands; trouble is called after
// each batch.
func carry(t *testing.T, a adapter, in, out string, n int, trouble func(done int)) {
	t.Helper()
	s := open(t, a, in)
	k := a.Sink(tt{t}, conformance.SinkOptions{})
	for done := 0; done < n; {
		b := mustBatch(t, s)
		sending := &pipeline.Sending{Batch: b}
		for i := range b.Recs {
			r := &b.Recs[i]
			sending.Msgs = append(sending.Msgs, pipeline.Message{Topic: out, Partition: b.TP.Partition, Key: r.Key, Value: r.Value, From: int32(i)})
		}
		if err := k.Send(sending); err != nil {
			t.Fatal(err)
		}
		trouble(done)
		if <-k.Done(); len(sending.Bad) > 0 {
			t.Fatalf("%d of %d refused: %v", len(sending.Bad), len(sending.Msgs), sending.Bad[0].Failure.Reason())
		}
		done += b.Len()
		b.Release()
	}
}

// inOrder checks that every partition of out has the numbers from 0 on, once each.
func inOrder(t *testing.T, a adapter, out string, partitions, each int) {
	t.Helper()
	for tp, recs := range conformance.Read(tt{t}, open(t, a, out), partitions*each) {
		for i, r := range recs {
			if string(r.Value) != strconv.Itoa(i) {
				t.Fatalf("%v: %q stands at %d", tp, r.Value, i)
			}
		}
	}
}

func TestLeadersMoveAndNothingIsLost(t *testing.T) {
	const each = 3000
	c, at := cluster(t, 3)
	a := newAdapter(at, nil)
	in, out := a.CreateTopic(tt{t}, 6, nil), a.CreateTopic(tt{t}, 6, nil)
	k := a.Sink(tt{t}, conformance.SinkOptions{})
	for p := range int32(6) {
		conformance.Write(tt{t}, k, numbered(in, p, each)...)
	}
	next := 0
	carry(t, a, in, out, 6*each, func(done int) {
		if done >= next {
			c.ShufflePartitionLeaders()
			next += each
		}
	})
	inOrder(t, a, out, 6, each)
}

func TestABrokerIsRestartedAndNothingIsLost(t *testing.T) {
	const each = 2000
	run := func(t *testing.T, at string, restart func()) {
		a := newAdapter(at, map[string]string{"message.timeout.ms": "60000"})
		in, out := a.CreateTopic(tt{t}, 2, nil), a.CreateTopic(tt{t}, 2, nil)
		k := a.Sink(tt{t}, conformance.SinkOptions{})
		for p := range int32(2) {
			conformance.Write(tt{t}, k, numbered(in, p, each)...)
		}
		done := false
		carry(t, a, in, out, 2*each, func(n int) {
			if n >= each/2 && !done {
				restart()
				done = true
			}
		})
		inOrder(t, a, out, 2, each)
	}
	t.Run("embedded", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		l.Close()
		dir := t.TempDir()
		var b *embedded.Broker
		start := func() {
			deadline(t, "the broker starts", func() bool {
				b, err = embedded.StartBroker(embedded.BrokerConfig{Dir: dir, Port: port})
				return err == nil
			})
		}
		start()
		t.Cleanup(func() { _ = b.Close() })
		run(t, b.Bootstrap(), func() {
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			start()
		})
	})
	t.Run("real", func(t *testing.T) {
		if testing.Short() {
			t.Skip("short: a real broker is left out")
		}
		k, err := services.StartKafka(services.KafkaOptions{Dir: t.TempDir()})
		if err != nil {
			t.Skipf("no Apache Kafka: %v", err)
		}
		t.Cleanup(func() { _ = k.Stop() })
		run(t, k.Bootstrap, func() {
			if err := k.Kill(); err != nil {
				t.Fatal(err)
			}
			if err := k.Start(); err != nil {
				t.Fatal(err)
			}
		})
	})
}
