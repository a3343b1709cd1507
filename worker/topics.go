package worker

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/kafka"
)

// TopicPlan is one topic that the files need.
type TopicPlan struct {
	Cluster    string            `json:"cluster"`
	Topic      string            `json:"topic"`
	What       string            `json:"what"` // source, destination, retry, dead letters, ...
	Partitions int               `json:"partitions"`
	Configs    map[string]string `json:"configs,omitempty"`
	Exists     bool              `json:"exists"`
}

// Topics are all topics that the files name or need, with the settings that they should have, sorted. sources says how many
// partitions a source topic has that does not exist yet; retry topics follow their source.
func (p *Plan) Topics(sources int) []TopicPlan {
	type key struct{ cluster, topic string }
	all := map[key]TopicPlan{}
	add := func(cluster, topic, what string, partitions int, configs map[string]string) {
		k := key{cluster, topic}
		if _, known := all[k]; topic != "" && !known {
			all[k] = TopicPlan{Cluster: cluster, Topic: topic, What: what, Partitions: partitions, Configs: configs}
		}
	}
	days := func(ms int64) map[string]string {
		return map[string]string{"cleanup.policy": "delete", "retention.ms": strconv.FormatInt(ms, 10)}
	}
	prefix := p.Config.Topics.Prefix
	custody := p.Config.Custody.Retention.Longest().Std().Milliseconds()
	for _, pp := range p.Pipelines {
		c := pp.Config
		for _, t := range c.Source.Topics {
			add(c.Source.Cluster, t, "source", sources, nil)
		}
		for _, t := range pp.Targets {
			add(c.Source.Cluster, t, "destination", sources, nil)
		}
		add(c.Source.Cluster, c.Retry.Topic, "retry", sources, map[string]string{"cleanup.policy": "delete"})
		add(c.Quarantine.Cluster, c.Quarantine.Topic, "dead letters", c.Quarantine.Partitions, days(c.Quarantine.Retention.Std().Milliseconds()))
		if p.Vaulted() {
			add(c.Quarantine.Cluster, c.Quarantine.VaultTopic(), "sealed records", c.Quarantine.Partitions, days(c.Quarantine.Retention.Std().Milliseconds()))
		}
		add(c.Source.Cluster, deadletter.SettlementsTopic(prefix), "settlements", 3, days(custody))
		add(c.Source.Cluster, deadletter.OutcomesTopic(prefix), "outcomes", 3, days(custody))
		add(c.Source.Cluster, deadletter.ControlTopic(prefix), "control", 1, map[string]string{"cleanup.policy": "compact"})
	}
	if c := p.auditCluster(); c != "" {
		add(c, deadletter.AuditTopic(prefix), "signed heads of the history", 1, days(p.Config.Custody.Retention.History.Std().Milliseconds()))
	}
	out := slices.Collect(maps.Values(all))
	slices.SortFunc(out, func(a, b TopicPlan) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Topic, b.Topic))
	})
	return out
}

// LookTopics asks the clusters which of the topics exist. A retry topic takes the partitions of an existing source. Codes:
// ERR_BROKER_*, ERR_CONFIG_REFERENCE.
func (p *Plan) LookTopics(ctx context.Context, topics []TopicPlan) error {
	have := map[string]map[string]int{}
	for i := range topics {
		t := &topics[i]
		if have[t.Cluster] == nil {
			c, err := p.Cluster(t.Cluster)
			if err != nil {
				return err
			}
			a, err := kafka.NewAdmin(c)
			if err != nil {
				return err
			}
			have[t.Cluster], err = a.Topics(ctx)
			a.Close()
			if err != nil {
				return err
			}
		}
		if n, ok := have[t.Cluster][t.Topic]; ok {
			t.Exists, t.Partitions = true, n
		}
	}
	for _, pp := range p.Pipelines {
		n := have[pp.Config.Source.Cluster][pp.Config.Source.Topics[0]]
		for i := range topics {
			if t := &topics[i]; n > 0 && !t.Exists && t.What == "retry" && t.Topic == pp.Config.Retry.Topic {
				t.Partitions = n
			}
		}
	}
	return nil
}

// CreateTopics creates those topics that do not exist. Codes: ERR_BROKER_*, ERR_CONFIG_REFERENCE.
func (p *Plan) CreateTopics(ctx context.Context, topics []TopicPlan) (made []TopicPlan, err error) {
	for _, cluster := range p.clusterNames() {
		var specs []kafka.TopicSpec
		for _, t := range topics {
			if t.Cluster == cluster && !t.Exists {
				specs = append(specs, kafka.TopicSpec{Name: t.Topic, Partitions: t.Partitions, Configs: t.Configs})
				made = append(made, t)
			}
		}
		if len(specs) == 0 {
			continue
		}
		c, err := p.Cluster(cluster)
		if err != nil {
			return nil, err
		}
		a, err := kafka.NewAdmin(c)
		if err != nil {
			return nil, err
		}
		err = a.CreateTopics(ctx, specs...)
		a.Close()
		if err != nil {
			return nil, err
		}
	}
	return made, nil
}

func (p *Plan) clusterNames() []string { return slices.Sorted(maps.Keys(p.Config.Clusters)) }

// Pipeline returns a pipeline by name. Codes: ERR_CONFIG_REFERENCE.
func (p *Plan) Pipeline(name string) (*PipelinePlan, error) {
	for _, pp := range p.Pipelines {
		if pp.Config.Name == name {
			return pp, nil
		}
	}
	return nil, pipeline.Errorf(pipeline.CodeConfigReference, p.File, "there is no pipeline %q", name)
}
