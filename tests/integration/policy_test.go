package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/tests/lab"
)

// policyLab is the billing example whose records come to named partitions.
type policyLab struct {
	*lab.Lab
	t    *testing.T
	next int64
}

// invoices writes n good invoices to each partition.
func (l *policyLab) invoices(n int) {
	l.t.Helper()
	g := billing.Generator{Seed: 11, Count: 12 * n, SchemaID: l.SchemaID}
	var msgs []pipeline.Message
	for m := range g.Invoices() {
		m.Topic, m.Partition = l.Topic(m.Topic), int32(len(msgs)%12)
		msgs = append(msgs, m)
	}
	l.Write(msgs)
	l.next += int64(n)
}

// settled waits until every record is settled.
func (l *policyLab) settled() {
	l.t.Helper()
	l.Until(time.Minute, "the end of the source", func() bool {
		return l.Settled(l.Group("billing-event-processor"), l.Topic("billing.invoices.v1"))
	})
}

// versions reads which policy version settled each partition's offsets from from on.
func (l *policyLab) versions(from int64) map[string][]int32 {
	l.t.Helper()
	out := map[string][]int32{}
	l.Each(deadletter.SettlementsTopic(l.Prefix()), func(_ pipeline.TP, r *pipeline.Record) {
		s, err := deadletter.ParseSettlement(r, l.Ring)
		if err != nil {
			l.t.Fatal(err)
		}
		if s.TP.Topic == l.Topic("billing.invoices.v1") && s.To > from {
			out[string(s.Policy)] = append(out[string(s.Policy)], s.TP.Partition)
		}
	})
	return out
}

func (l *policyLab) policyFile(name, rules string) string {
	l.t.Helper()
	file := filepath.Join(l.Dir, "policies", name+".yaml")
	if err := os.WriteFile(file, []byte("apiVersion: reprieve/v1\npolicy: "+name+"\n"+rules), 0o644); err != nil {
		l.t.Fatal(err)
	}
	return file
}

type change struct {
	Version    string
	Changed    bool
	Partitions map[string][]int32 `json:"canary_partitions"`
}

// A version is activated as a canary for half of the partitions, then for all, then rolled back: the settlements say which
// version worked which partition, and every worker follows without a restart.
func TestAPolicyIsCanariedActivatedAndRolledBack(t *testing.T) {
	c := startCluster(t)
	l := &policyLab{Lab: lab.New(t, c.Properties["bootstrap.servers"]), t: t}
	key := []string{"--credential", l.Key("platform")}
	w := l.Start("pipelines/billing.yaml")
	l.invoices(20)
	l.settled()
	if got := l.versions(0); len(got) != 1 {
		t.Fatalf("before anything: %v", got)
	}

	file := l.policyFile("stricter", "reject:\n  - {name: everything-in-euro, when: 'view.currency == \"EUR\"'}\n")
	var ch change
	l.JSON(&ch, append([]string{"policy", "activate", "billing", file, "--canary", "50%", "--reason", "try it"}, key...)...)
	canary := map[int32]bool{}
	for _, p := range ch.Partitions[l.Topic("billing.invoices.v1")] {
		canary[p] = true
	}
	if !ch.Changed || len(canary) != 6 {
		t.Fatalf("%+v", ch)
	}
	follows := func(version, canary string) {
		l.Until(5*time.Second, "the worker following", func() bool {
			s := l.Policies(w)
			return s.Policy == version && s.Canary == canary
		})
	}
	base := l.Policies(w).Policy
	follows(base, ch.Version)
	from := l.next
	l.invoices(20)
	l.settled()
	got := l.versions(from)
	if len(got) != 2 {
		t.Fatalf("with a canary of half: %v", got)
	}
	for version, partitions := range got {
		for _, p := range partitions {
			if (version == ch.Version) != canary[p] {
				t.Errorf("partition %d was worked by %s", p, version)
			}
		}
	}
	refused := 0
	l.Each(l.Topic("billing.invoices.v1.dlq"), func(_ pipeline.TP, r *pipeline.Record) {
		if deadletter.IsProbe(r) {
			return
		}
		letter, err := deadletter.Parse(l.Topic("billing.invoices.v1.dlq"), r, l.Ring)
		if err != nil {
			t.Fatal(err)
		}
		refused++
		if string(letter.Decision.Policy) != ch.Version || !canary[letter.Original.Partition] {
			t.Errorf("a letter of partition %d by %s", letter.Original.Partition, letter.Decision.Policy)
		}
	})
	if refused == 0 {
		t.Error("the canary refused nothing")
	}

	var back change
	l.JSON(&back, append([]string{"policy", "rollback", "billing", "--reason", "refuses euros"}, key...)...)
	follows(base, "")
	from = l.next
	l.invoices(20)
	l.settled()
	if got := l.versions(from); len(got) != 1 || len(got[base]) == 0 {
		t.Errorf("after the rollback: %v", got)
	}

	// and for all, followed by a worker that starts cold, then back to the file
	l.JSON(&ch, append([]string{"policy", "activate", "billing", ch.Version[7:19], "--reason", "euros are out"}, key...)...)
	if code := w.Stop(); code != 0 && code != 143 {
		t.Errorf("exit code %d", code)
	}
	from = l.next
	l.invoices(20)
	w = l.Start("pipelines/billing.yaml")
	l.settled()
	if got := l.versions(from); len(got) != 1 || len(got[ch.Version]) == 0 {
		t.Errorf("a cold start worked by %v, not by %s", got, ch.Version)
	}
	l.JSON(&back, append([]string{"policy", "rollback", "billing", "--reason", "euros are in"}, key...)...)
	follows(base, "")
}

// A rule that cannot be evaluated pauses its partitions, with an alert; after the rollback they go on by themselves, and
// nothing was lost or blamed.
func TestAPausedPartitionGoesOnAfterTheRollback(t *testing.T) {
	c := startCluster(t)
	l := &policyLab{Lab: lab.New(t, c.Properties["bootstrap.servers"]), t: t}
	key := []string{"--credential", l.Key("platform")}
	w := l.Start("pipelines/billing.yaml")
	l.invoices(5)
	l.settled()
	file := l.policyFile("broken", "reject:\n  - {name: divides, when: '100 / (view.amount_minor - view.amount_minor) > 1'}\n")
	var ch change
	l.JSON(&ch, append([]string{"policy", "activate", "billing", file, "--canary", "50", "--reason", "looks good"}, key...)...)
	l.Until(5*time.Second, "the worker following", func() bool { return l.Policies(w).Canary == ch.Version })
	l.invoices(5)
	l.Until(time.Minute, "the alert", func() bool { return strings.Contains(w.Log(), "ALERT_POLICY_FAILED") })
	delivered := func() (n int) {
		for _, topic := range []string{"billing.ledger.v1", "billing.large.v1"} {
			l.Each(l.Topic(topic), func(pipeline.TP, *pipeline.Record) { n++ })
		}
		return n
	}
	l.Until(time.Minute, "the other half going on", func() bool { return delivered() == 12*5+6*5 })
	l.JSON(&ch, append([]string{"policy", "rollback", "billing", "--reason", "it divides by zero"}, key...)...)
	l.Until(20*time.Second, "the paused half going on", func() bool { return delivered() == 12*10 })
	l.settled()
	l.Each(l.Topic("billing.invoices.v1.dlq"), func(_ pipeline.TP, r *pipeline.Record) {
		if !deadletter.IsProbe(r) {
			t.Error("a record was blamed for the policy")
		}
	})
}

// Somebody who may write to the control topic and has no key changes nothing: an unsigned, a forged and an older entry are
// ignored and alarmed, and a tombstone over the entry in force is healed before a worker that starts later misses it.
func TestHostileControlEntriesChangeNothing(t *testing.T) {
	c := startCluster(t)
	l := &policyLab{Lab: lab.New(t, c.Properties["bootstrap.servers"]), t: t}
	key := []string{"--credential", l.Key("platform")}
	topic := deadletter.ControlTopic(l.Prefix())
	var ch change
	for _, name := range []string{"one", "two"} {
		l.JSON(&ch, append([]string{"policy", "activate", "billing", l.policyFile(name, ""), "--reason", "r"}, key...)...)
	}
	one := change{}
	l.JSON(&one, append([]string{"policy", "rollback", "billing", "--reason", "r"}, key...)...)
	l.JSON(&ch, append([]string{"policy", "activate", "billing", l.policyFile("two", ""), "--reason", "again"}, key...)...)
	w := l.Start("pipelines/billing.yaml")
	l.Until(30*time.Second, "the version in force", func() bool { return l.Policies(w).Policy == ch.Version })

	var entries []pipeline.Record
	l.Each(topic, func(_ pipeline.TP, r *pipeline.Record) {
		if strings.HasPrefix(string(r.Key), "policy/billing/") {
			entries = append(entries, r.Clone())
		}
	})
	if len(entries) != 4 {
		t.Fatalf("%d entries", len(entries))
	}
	latest := entries[3]
	l.Write([]pipeline.Message{
		{Topic: topic, Key: latest.Key, Value: []byte(strings.Replace(string(latest.Value), `"order":"4"`, `"order":"9"`, 1))},
		{Topic: topic, Key: latest.Key, Value: []byte(`{"v":1,"seq":"9","at":"1","by":"x","state":{},"kid":"k"}`)},
		{Topic: topic, Key: entries[0].Key, Value: entries[0].Value},
		{Topic: topic, Key: latest.Key},
	})
	l.Until(30*time.Second, "the alarms", func() bool {
		for _, reason := range []string{"forged", "unsigned", "replayed"} {
			if !strings.Contains(w.Log(), "reason="+reason) {
				return false
			}
		}
		return true
	})
	last := map[string]string{}
	l.Until(30*time.Second, "the healed entries", func() bool {
		clear(last)
		l.Each(topic, func(_ pipeline.TP, r *pipeline.Record) { last[string(r.Key)] = string(r.Value) })
		return last[string(latest.Key)] == string(latest.Value) && last[string(entries[0].Key)] == string(entries[2].Value)
	})
	if s := l.Policies(w); s.Policy != ch.Version {
		t.Errorf("in force: %+v", s)
	}
	var listed struct {
		Pipelines []struct {
			Versions []struct{ Version, State string }
		}
	}
	l.JSON(&listed, "policy", "list", "billing")
	if v := listed.Pipelines[0].Versions[0]; v.Version != ch.Version || v.State != "active" {
		t.Errorf("listed %+v", listed)
	}
	for who, code := range map[string]int{"operator": 4, "finance": 4} {
		if _, errs, got := l.Run("policy", "activate", "billing", "--reason", "r", "--credential", l.Key(who)); got != code {
			t.Errorf("%s: exit %d, %s", who, got, errs)
		}
	}
	if t.Failed() {
		t.Log(fmt.Sprint(last))
	}
}
