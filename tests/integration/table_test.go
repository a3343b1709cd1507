package integration

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/worker"
)

const tablePipeline = `
apiVersion: reprieve/v1
pipeline: rated
owner: finance
source:
  topics: [orders]
  group: rater
  tenant: {from: fixed, value: acme}
  identity: {event_id: /id, idempotency_token: /id}
stages:
  - decode: {format: json}
  - redact: {detectors: [pan]}
  - enrich: {table: {topic: accounts, by: /account, take: {tier: /tier}, into: row, missing: skip}}
  - route: {default: {topic: rated}, encode: json}
retry: {topic: orders.retry}
quarantine: {topic: orders.dlq}
breaker: {off: true}
reconcile: here
`

// A compacted topic is a table: what stands there is known before the first record is read, and what changes is seen while the
// pipeline runs.
func TestACompactedTopicIsFollowedAsATable(t *testing.T) {
	c := startCluster(t)
	c.create(t, 2, "orders", "orders.retry", "orders.dlq", "rated", "accounts")
	c.platform(t, "orders.dlq")
	plan := loadFiles(t, strings.ReplaceAll(effectsWorker, "BOOTSTRAP", c.Properties["bootstrap.servers"]), tablePipeline)

	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		t.Fatal(err)
	}
	env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: time.Now}
	if _, _, err := plan.Pipelines[0].Assemble(t.Context(), plan, keys, env, nil); pipeline.CodeOf(err) != pipeline.CodeTopicUnsafe || !strings.Contains(err.Error(), "accounts") {
		t.Fatalf("a table whose rows expire: %v", err)
	}
	if err := c.admin.SetConfigs(t.Context(), "accounts", map[string]string{"cleanup.policy": "compact"}); err != nil {
		t.Fatal(err)
	}

	row := func(account, value string) {
		m := pipeline.Message{Topic: "accounts", Partition: -1, Key: []byte(account), Value: []byte(value)}
		if value == "" {
			m.Value = nil
		}
		c.write(t, []pipeline.Message{m})
	}
	n := 0
	order := func(account string) int {
		c.write(t, []pipeline.Message{{Topic: "orders", Partition: -1, Key: []byte(account), Value: fmt.Appendf(nil, `{"id":"o%d","account":%q}`, n, account)}})
		n++
		return n - 1
	}
	// rated is what became of an order: its header and its value.
	rated := func(id int) (tier, value string) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
			for _, r := range c.read(t, "rated") {
				if strings.Contains(string(r.Value), fmt.Sprintf(`"o%d"`, id)) {
					h, _ := r.Header("tier")
					return string(h), string(r.Value)
				}
			}
		}
		t.Fatalf("order %d did not arrive", id)
		return "", ""
	}
	var others []pipeline.Message
	for i := range 5000 {
		others = append(others, pipeline.Message{Topic: "accounts", Partition: -1, Key: fmt.Append(nil, "B-", i), Value: []byte(`{"tier":"bronze"}`)})
	}
	c.write(t, others)
	row("A-1", `{"tier":"silver"}`)
	row("A-1", `{"tier":"gold"}`)
	row("A-2", `{"tier":"gone"}`)
	row("A-2", "")
	known, deleted := order("A-1"), order("A-2")
	stop := runWorker(t, plan)
	defer stop()
	if tier, value := rated(known); tier != "gold" || value != `{"id":"o0","account":"A-1","row":{"tier":"gold"}}` {
		t.Errorf("the first order: %q, %s", tier, value)
	}
	if tier, value := rated(deleted); tier != "" || value != `{"id":"o1","account":"A-2"}` {
		t.Errorf("an order of a row that was deleted: %q, %s", tier, value)
	}
	sees := func(account, want string) {
		t.Helper()
		for limit := time.Now().Add(time.Minute); ; {
			if tier, _ := rated(order(account)); tier == want {
				return
			}
			if time.Now().After(limit) {
				t.Fatalf("%s was not seen as %q", account, want)
			}
		}
	}
	row("A-2", `{"tier":"back"}`)
	sees("A-2", "back")
	row("A-1", `{"tier":"platinum"}`)
	sees("A-1", "platinum")
	row("A-1", "")
	sees("A-1", "")
}

// A topic that is written in transactions: rows of one that was aborted are none.
func TestRowsOfAnAbortedTransactionAreNone(t *testing.T) {
	c := startCluster(t)
	c.create(t, 2, "orders", "orders.retry", "orders.dlq", "rated")
	c.platform(t, "orders.dlq")
	if err := c.admin.CreateTopics(t.Context(), kafka.TopicSpec{Name: "accounts", Partitions: 1, Replicas: 1, Configs: map[string]string{"cleanup.policy": "compact"}}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tx, err := kafka.NewTx(ctx, kafka.TxConfig{Cluster: c.Cluster, TransactionalID: "accounts"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Close(ctx) }()
	for _, kept := range []bool{true, false} {
		if err := tx.Begin(); err != nil {
			t.Fatal(err)
		}
		if err := tx.Send(&pipeline.Sending{Msgs: []pipeline.Message{{Topic: "accounts", Key: []byte("A-1"), Value: fmt.Appendf(nil, `{"tier":"%v"}`, kept), From: -1}}}); err != nil {
			t.Fatal(err)
		}
		<-tx.Done()
		end := tx.Abort
		if kept {
			end = func(ctx context.Context) error { return tx.Commit(ctx, nil, nil) }
		}
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
	}
	c.write(t, []pipeline.Message{{Topic: "orders", Partition: 0, Key: []byte("A-1"), Value: []byte(`{"id":"o1","account":"A-1"}`)}})
	stop := runWorker(t, loadFiles(t, strings.ReplaceAll(effectsWorker, "BOOTSTRAP", c.Properties["bootstrap.servers"]), tablePipeline))
	defer stop()
	for limit := time.Now().Add(time.Minute); ; {
		if got := c.read(t, "rated"); len(got) == 1 {
			if tier, _ := got[0].Header("tier"); string(tier) != "true" {
				t.Errorf("the row is %q", tier)
			}
			return
		}
		if time.Now().After(limit) {
			t.Fatal("the order did not arrive")
		}
	}
}
