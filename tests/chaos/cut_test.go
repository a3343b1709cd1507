package chaos

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/Shopify/toxiproxy/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

// Connections between worker and broker are cut, reset and silenced while records come, and healed again: nothing is lost.
func TestChaosCutsLoseNothing(t *testing.T) { cuts(t, false) }

// With exactly_once nothing is there twice either, for readers of committed records.
func TestChaosCutsExactlyOnce(t *testing.T) { cuts(t, true) }

// faults are what happens to the connections. Each is healed after a while: an idempotent producer may wait for ever on a broker
// that is silent for ever.
var faults = []string{
	"", // the proxy is closed: connections break, new ones are refused
	`{"name": "f", "type": "timeout", "stream": "downstream", "attributes": {"timeout": 0}}`,                  // answers are swallowed
	`{"name": "f", "type": "timeout", "stream": "upstream", "attributes": {"timeout": 0}}`,                    // requests are swallowed
	`{"name": "f", "type": "reset_peer", "stream": "downstream", "attributes": {"timeout": 50}}`,              // connections are reset
	`{"name": "f", "type": "latency", "stream": "downstream", "attributes": {"latency": 300, "jitter": 200}}`, // answers are slow
}

func cuts(t *testing.T, exactly bool) {
	ports := [2]int{}
	for i := range ports {
		ports[i] = freePort(t)
	}
	// A second listener whose address, as clients are told it, is the proxy's.
	broker, err := services.StartKafka(services.KafkaOptions{Properties: fmt.Sprintf("listeners=PLAINTEXT://127.0.0.1:@BROKER@,CONTROLLER://127.0.0.1:@CONTROLLER@,PROXIED://127.0.0.1:%d\n"+
		"advertised.listeners=PLAINTEXT://127.0.0.1:@BROKER@,PROXIED://127.0.0.1:%d\nlistener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,PROXIED:PLAINTEXT", ports[0], ports[1])})
	if err != nil {
		t.Skip("Apache Kafka cannot start here: ", err)
	}
	t.Cleanup(func() { _ = broker.Stop() })
	proxied := fmt.Sprintf("127.0.0.1:%d", ports[1])
	proxy := toxiproxy.NewProxy(toxiproxy.NewServer(toxiproxy.NewMetricsContainer(prometheus.NewRegistry()), zerolog.Nop()), "kafka", proxied, fmt.Sprintf("127.0.0.1:%d", ports[0]))
	if err := proxy.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Stop)

	l := lab.New(t, broker.Bootstrap)
	l.Bootstrap = proxied // of the worker; the test itself writes and counts past the proxy
	if exactly {
		l.Edit("pipelines/billing.yaml", "delivery: at_least_once", "delivery: exactly_once")
		l.Edit("pipelines/billing.yaml", "cluster: dlq", "cluster: main")
	}
	const records = 30_000
	g := billing.Generator{Seed: 13, Count: records, Poison: 0.002, Secrets: 0.01, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	for m := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), -1
		msgs = append(msgs, m)
	}
	w := l.Start("pipelines/billing.yaml", "--instance-id", "cuts-1")
	l.Until(time.Minute, "the partitions of the worker", func() bool { return w.Exited() || strings.Contains(w.Log(), "partitions assigned") })

	// Records come all the time while the connections suffer.
	times := rounds(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d, %d faults", seed, times)
	random := rand.New(rand.NewPCG(seed, 2))
	var writing sync.WaitGroup
	writing.Go(func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		share := max(records/(times*15), 1)
		for at := 0; at < records; at += share {
			l.Write(msgs[at:min(at+share, records)])
			<-tick.C
		}
	})
	for k := range times {
		pass(time.Duration(200+random.IntN(800)) * time.Millisecond)
		fault := faults[k%len(faults)]
		if fault == "" {
			proxy.Stop()
		} else if _, err := proxy.Toxics.AddToxicJson(strings.NewReader(fault)); err != nil {
			t.Fatal(err)
		}
		pass(time.Duration(300+random.IntN(1700)) * time.Millisecond)
		if fault == "" {
			if err := proxy.Start(); err != nil {
				t.Fatal(err)
			}
		} else {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := proxy.Toxics.RemoveToxic(ctx, "f")
			cancel()
			if err != nil {
				t.Fatal(err)
			}
		}
		if w.Exited() {
			t.Fatalf("the worker ended by itself after fault %d", k)
		}
	}
	writing.Wait()
	l.Until(3*time.Minute, "the end of the source topic", func() bool {
		return w.Exited() || l.Settled(l.Group("billing-event-processor"), l.Topic("billing.invoices.v1"), l.Topic("billing.invoices.v1.retry"))
	})
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	l.Bootstrap = broker.Bootstrap
	tally(t, l, records, exactly)
}

// pass lets real time go by: faults need some.
func pass(d time.Duration) {
	timer := time.NewTimer(d)
	<-timer.C
}

// freePort is one below the ephemeral range: nothing takes it meanwhile.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20_000 + rand.IntN(12_000)
		if ln, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			_ = ln.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return 0
}
