package integration

import (
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/embedded"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/worker"
)

// A broker and a registry are asked what open items still need: topics by the cluster id that items carry, schemas by their number, before
// and after the broker has dropped records and the registry a schema; and what is said when both are gone.
func TestABrokerAndARegistryTellWhatItemsOutlive(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, s ledgertest.Store) {
		c := startCluster(t)
		if err := c.admin.CreateTopics(t.Context(),
			kafka.TopicSpec{Name: "short", Partitions: 1, Replicas: 1, Configs: map[string]string{"retention.ms": "1728000000"}},
			kafka.TopicSpec{Name: "state", Partitions: 1, Replicas: 1, Configs: map[string]string{"cleanup.policy": "compact"}},
			kafka.TopicSpec{Name: "for-ever", Partitions: 1, Replicas: 1, Configs: map[string]string{"retention.ms": "-1"}}); err != nil {
			t.Fatal(err)
		}
		var msgs []pipeline.Message
		for _, topic := range []string{"short", "state", "for-ever"} {
			for n := range 4 {
				msgs = append(msgs, pipeline.Message{Topic: topic, Key: fmt.Append(nil, n), Value: []byte("x")})
			}
		}
		c.write(t, msgs)
		reg, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = reg.Close() })
		client, err := codec.NewRegistry(codec.RegistryConfig{Name: "main", URL: reg.URL()}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		schema, err := client.Register(t.Context(), "readings-value", `{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}`, "avro")
		if err != nil {
			t.Fatal(err)
		}

		id, err := c.admin.ClusterID(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e := custodytest.New(t, s)
		list := e.Arrivals(0, 4)
		for n, topic := range []string{"short", "state", "for-ever", ""} {
			l := list[n].Letter
			l.Cluster, l.Schema = id, fmt.Sprintf("avro:%d", schema)
			if topic != "" {
				l.Original = pipeline.Position{TP: pipeline.TP{Topic: topic}, Offset: int64(n)}
				l.At, l.Faithful = l.Original, deadletter.Source
			}
		}
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		look := func(want ...string) custody.Needs {
			t.Helper()
			plan := &worker.Plan{Config: &config.Worker{Clusters: map[string]config.Properties{"main": c.Properties}, Registries: map[string]config.Registry{"main": {URL: reg.URL()}}}}
			logs := plan.Logs(t.Context())
			defer logs.Close()
			items := e.Again(e.DB, func(o *custody.Options) { o.Source, o.Schemas = logs.Of, plan.Schemas(time.Now) })
			got, err := items.Needs(t.Context(), custodytest.Operator, custody.Retention{}, "")
			if err != nil {
				t.Fatal(err)
			}
			var lines []string
			for _, x := range got.Ends {
				lines = append(lines, fmt.Sprintf("%s %s gone %v at %d: %d", x.Need, x.Subject, x.Gone, x.FirstMS, x.Items))
			}
			if !slices.Equal(lines, want) {
				t.Errorf("%q instead of %q", lines, want)
			}
			return got
		}
		in := fmt.Sprint(list[0].Letter.OriginalMS + 20*24*3600*1000)
		if got := look("source state gone false at 0: 1", "source short gone false at "+in+": 1"); len(got.Unchecked) != 0 {
			t.Errorf("%+v", got.Unchecked)
		}

		if err := c.admin.DeleteRecords(t.Context(), map[pipeline.TP]int64{{Topic: "short"}: 2}); err != nil {
			t.Fatal(err)
		}
		if err := c.admin.DeleteTopics(t.Context(), "state"); err != nil {
			t.Fatal(err)
		}
		for _, query := range []string{"", "?permanent=true"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, reg.URL()+"/subjects/readings-value"+query, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultClient.Do(req)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Fatal(resp, err)
			}
			_ = resp.Body.Close()
		}
		schemaLine := fmt.Sprintf("schema avro:%d gone true at 0: ", schema)
		look(schemaLine + "4")

		if err := reg.Close(); err != nil {
			t.Fatal(err)
		}
		got := look("source short gone true at 0: 1", "source state gone true at 0: 1")
		if len(got.Unchecked) != 1 || got.Unchecked[0].Code != pipeline.CodeRegistryUnavailable {
			t.Errorf("%+v", got.Unchecked)
		}
	})
}
