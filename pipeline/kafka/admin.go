package kafka

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	client "github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"reprieve.dev/pipeline"
)

// Admin asks and changes a cluster. It is safe for concurrent use.
type Admin struct {
	a     *client.AdminClient
	c     *client.Consumer // below a
	place string
}

// TopicSpec is a topic to create. Replicas 0 is the broker's default.
type TopicSpec struct {
	Name       string
	Partitions int
	Replicas   int
	Configs    map[string]string
}

const adminTimeout = 15 * time.Second

// NewAdmin opens an administration client; no broker need be there yet. Codes: ERR_BROKER_CONFIG.
//
// It stands on a consumer that never joins a group: on any other client, librdkafka 2.11.1 ends the process when a broker
// answers a question about a group's offsets with "not the coordinator" (it refreshes the coordinator of a group that the
// client does not have).
func NewAdmin(c Cluster) (*Admin, error) {
	a := &Admin{place: c.place()}
	m, err := c.settings(forConsumer, map[string]string{"group.id": "reprieve-admin", "enable.auto.commit": "false"})
	if err != nil {
		return nil, err
	}
	if a.c, err = client.NewConsumer(forClient(m)); err == nil {
		a.a, err = client.NewAdminClientFromConsumer(a.c)
	}
	if err != nil {
		if a.c != nil {
			_ = a.c.Close()
		}
		return nil, pipeline.Errorf(pipeline.CodeBrokerConfig, "clusters."+c.Name, "%w", err)
	}
	return a, nil
}

// Close frees the client.
func (a *Admin) Close() {
	a.a.Close()
	_ = a.c.Close() // it has no group to leave
}

// failed wraps an error of a call. Brokers that turn us away look like ones that do not answer: the library says it apart.
func (a *Admin) failed(err error, place, doing string) *pipeline.Error {
	e := failed(err, place, doing)
	if e.Code == pipeline.CodeBrokerUnreachable {
		if why := denied(a.c); why != nil {
			return failed(why, place, doing)
		}
	}
	return e
}

// denied is why brokers turn a client away, or nil: what the library has reported since it was asked last. c reads nothing.
func denied(c *client.Consumer) error {
	for {
		switch e := c.Poll(0).(type) {
		case nil:
			return nil
		case client.Error:
			if credentials(e) {
				return e
			}
		}
	}
}

// within repeats a call that takes a number of milliseconds instead of a context, in slices short enough for ctx to count, until
// brokers answer or turn the client away.
func within(ctx context.Context, c *client.Consumer, call func(ms int) error) error {
	const slice = time.Second
	for n := adminTimeout / slice; ; n-- {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := call(int(slice / time.Millisecond))
		e, ok := errors.AsType[clientError](err)
		late := errors.Is(err, context.DeadlineExceeded) // of a slice
		if n <= 1 || !late && (!ok || e.IsFatal() || codeOf(e) != pipeline.CodeBrokerUnreachable) {
			return err
		}
		if why := denied(c); why != nil {
			return why
		}
	}
}

func (a *Admin) metadata(ctx context.Context, topic *string) (m *client.Metadata, err error) {
	err = within(ctx, a.c, func(ms int) error {
		m, err = a.a.GetMetadata(topic, topic == nil, ms)
		return err
	})
	return m, err
}

// CreateTopics creates topics; one that exists already is left as it is and no error. It returns when the cluster knows
// them. Codes: ERR_BROKER_*.
func (a *Admin) CreateTopics(ctx context.Context, specs ...TopicSpec) error {
	list := make([]client.TopicSpecification, 0, len(specs))
	for _, s := range specs {
		replicas := s.Replicas
		if replicas == 0 {
			replicas = -1
		}
		list = append(list, client.TopicSpecification{Topic: s.Name, NumPartitions: max(1, s.Partitions),
			ReplicationFactor: replicas, Config: s.Configs})
	}
	out, err := a.a.CreateTopics(ctx, list, client.SetAdminOperationTimeout(adminTimeout))
	if err != nil {
		return a.failed(err, a.place, "create topics")
	}
	for _, r := range out {
		if c := r.Error.Code(); c != client.ErrNoError && c != client.ErrTopicAlreadyExists {
			return failed(r.Error, r.Topic+" on "+a.place, "create the topic")
		}
	}
	known, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	for _, s := range specs { // the controller has it: a client that asks another broker too early would call it missing
		for {
			_, err := a.partitions(known, s.Name)
			if err == nil {
				break
			}
			if pipeline.CodeOf(err) != pipeline.CodeTopicMissing || known.Err() != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteTopics deletes topics; one that is not there is no error. Codes: ERR_BROKER_*.
func (a *Admin) DeleteTopics(ctx context.Context, topics ...string) error {
	out, err := a.a.DeleteTopics(ctx, topics, client.SetAdminOperationTimeout(adminTimeout))
	if err != nil {
		return a.failed(err, a.place, "delete topics")
	}
	for _, r := range out {
		if c := r.Error.Code(); c != client.ErrNoError && c != client.ErrUnknownTopicOrPart {
			return failed(r.Error, r.Topic+" on "+a.place, "delete the topic")
		}
	}
	return nil
}

// Topics maps the name of each topic to its number of partitions. Codes: ERR_BROKER_*.
func (a *Admin) Topics(ctx context.Context) (map[string]int, error) {
	m, err := a.metadata(ctx, nil)
	if err != nil {
		return nil, a.failed(err, a.place, "list topics")
	}
	out := make(map[string]int, len(m.Topics))
	for name, t := range m.Topics {
		if t.Error.Code() == client.ErrNoError {
			out[name] = len(t.Partitions)
		}
	}
	return out, nil
}

// partitions lists a topic's partitions. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) partitions(ctx context.Context, topic string) ([]int32, error) {
	m, err := a.metadata(ctx, &topic)
	if err != nil {
		return nil, a.failed(err, topic+" on "+a.place, "describe the topic")
	}
	t, ok := m.Topics[topic]
	if ok && t.Error.Code() != client.ErrNoError && t.Error.Code() != client.ErrUnknownTopicOrPart { // one that may not be seen, above all
		return nil, failed(t.Error, topic+" on "+a.place, "describe the topic")
	}
	if len(t.Partitions) == 0 {
		return nil, pipeline.Errorf(pipeline.CodeTopicMissing, topic+" on "+a.place, "the topic does not exist")
	}
	out := make([]int32, 0, len(t.Partitions))
	for _, p := range t.Partitions {
		out = append(out, p.ID)
	}
	slices.Sort(out)
	return out, nil
}

// Offsets returns the first and the next offset of each partition. Next counts what is written, committed or not. Codes:
// ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) Offsets(ctx context.Context, topic string) (map[int32]pipeline.Range, error) {
	ids, err := a.partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	first, err := a.listOffsets(ctx, topic, ids, client.EarliestOffsetSpec)
	if err != nil {
		return nil, err
	}
	next, err := a.listOffsets(ctx, topic, ids, client.LatestOffsetSpec)
	if err != nil {
		return nil, err
	}
	out := make(map[int32]pipeline.Range, len(ids))
	for _, id := range ids {
		out[id] = pipeline.Range{First: first[id], Next: next[id]}
	}
	return out, nil
}

func (a *Admin) listOffsets(ctx context.Context, topic string, ids []int32, at client.OffsetSpec) (map[int32]int64, error) {
	ask := make(map[client.TopicPartition]client.OffsetSpec, len(ids))
	for _, id := range ids {
		ask[client.TopicPartition{Topic: &topic, Partition: id}] = at
	}
	res, err := a.a.ListOffsets(ctx, ask, client.SetAdminIsolationLevel(client.IsolationLevelReadUncommitted))
	if err != nil {
		return nil, a.failed(err, topic+" on "+a.place, "list offsets")
	}
	out := make(map[int32]int64, len(ids))
	for tp, r := range res.ResultInfos {
		if r.Error.Code() != client.ErrNoError {
			return nil, failed(r.Error, topic+" on "+a.place, "list offsets")
		}
		out[tp.Partition] = int64(r.Offset)
	}
	return out, nil
}

// EndOffsets is the next offset of each partition. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) EndOffsets(ctx context.Context, topic string) (map[int32]int64, error) {
	ids, err := a.partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	return a.listOffsets(ctx, topic, ids, client.LatestOffsetSpec)
}

// ClusterID is the id that the cluster gave itself. Codes: ERR_BROKER_*.
func (a *Admin) ClusterID(ctx context.Context) (string, error) {
	var id string
	err := within(ctx, a.c, func(ms int) (err error) {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(ms)*time.Millisecond)
		defer cancel()
		id, err = a.a.ClusterID(ctx)
		return err
	})
	if err != nil {
		return "", a.failed(err, a.place, "ask for the cluster id")
	}
	return id, nil
}

// DeleteRecords removes what lies before an offset of each partition. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) DeleteRecords(ctx context.Context, before map[pipeline.TP]int64) error {
	list := make([]client.TopicPartition, 0, len(before))
	for tp, off := range before {
		list = append(list, clientTP(tp, client.Offset(off)))
	}
	out, err := a.a.DeleteRecords(ctx, list)
	if err != nil {
		return a.failed(err, a.place, "delete records")
	}
	for _, r := range out.DeleteRecordsResults {
		if r.TopicPartition.Error != nil {
			return failed(r.TopicPartition.Error, topicOf(r.TopicPartition)+" on "+a.place, "delete records")
		}
	}
	return nil
}

// Info describes a topic, settings and offsets. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) Info(ctx context.Context, topic string) (pipeline.TopicInfo, error) {
	info := pipeline.TopicInfo{Topic: topic}
	var err error
	if info.Partitions, err = a.Offsets(ctx, topic); err != nil {
		return info, err
	}
	configs, err := a.Configs(ctx, topic)
	if err != nil {
		return info, err
	}
	cleanup := strings.Split(configs["cleanup.policy"], ",")
	info.Compacted = slices.Contains(cleanup, "compact")
	info.LogAppend = configs["message.timestamp.type"] == "LogAppendTime"
	info.RetentionMS = number(configs["retention.ms"], -1)
	info.KeepBytes = number(configs["retention.bytes"], -1)
	info.MaxMessage = number(configs["max.message.bytes"], 0)
	if !slices.Contains(cleanup, "delete") {
		info.RetentionMS, info.KeepBytes = -1, -1 // what is only compacted does not age
	}
	return info, nil
}

// Configs returns all settings of a topic as the broker applies them. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) Configs(ctx context.Context, topic string) (map[string]string, error) {
	out, err := a.a.DescribeConfigs(ctx, []client.ConfigResource{{Type: client.ResourceTopic, Name: topic}})
	if err != nil {
		return nil, a.failed(err, topic+" on "+a.place, "describe the topic's settings")
	}
	configs := map[string]string{}
	for _, r := range out {
		if r.Error.Code() != client.ErrNoError {
			return nil, failed(r.Error, topic+" on "+a.place, "describe the topic's settings")
		}
		for name, e := range r.Config {
			configs[name] = e.Value
		}
	}
	return configs, nil
}

// SetConfigs changes settings of a topic and leaves the others. Codes: ERR_TOPIC_MISSING, ERR_BROKER_*.
func (a *Admin) SetConfigs(ctx context.Context, topic string, configs map[string]string) error {
	res := client.ConfigResource{Type: client.ResourceTopic, Name: topic}
	for _, k := range slices.Sorted(maps.Keys(configs)) {
		res.Config = append(res.Config, client.ConfigEntry{Name: k, Value: configs[k],
			IncrementalOperation: client.AlterConfigOpTypeSet})
	}
	out, err := a.a.IncrementalAlterConfigs(ctx, []client.ConfigResource{res})
	if err != nil {
		return a.failed(err, topic+" on "+a.place, "change the topic's settings")
	}
	for _, r := range out {
		if r.Error.Code() != client.ErrNoError {
			return failed(r.Error, topic+" on "+a.place, "change the topic's settings")
		}
	}
	return nil
}

// How long is waited for a transaction that commits offsets of a group: one that is ending is over soon.
const (
	unstableFor  = time.Second
	unstablePoll = 20 * time.Millisecond
)

// Checkpoints returns what a group has committed, with metadata. Of a partition whose offset a transaction is committing right
// now it is the new one if that ends within a second, else what was committed before: the transaction of a client that is gone
// stays open until it times out (KIP-447). Codes: ERR_BROKER_*.
func (a *Admin) Checkpoints(ctx context.Context, group string) (map[pipeline.TP]pipeline.Checkpoint, error) {
	for left := unstableFor; ; left -= unstablePoll {
		out, err := a.checkpoints(ctx, group, left > 0)
		if e, ok := errors.AsType[clientError](err); !ok || e.Code() != client.ErrUnstableOffsetCommit || left <= 0 {
			if err != nil {
				return nil, a.failed(err, group+" on "+a.place, "read the group's offsets")
			}
			return out, nil
		}
		select {
		case <-ctx.Done():
			return nil, a.failed(ctx.Err(), group+" on "+a.place, "read the group's offsets")
		case <-time.After(unstablePoll):
		}
	}
}

// checkpoints asks once. stable: offsets that a transaction is committing are an error.
func (a *Admin) checkpoints(ctx context.Context, group string, stable bool) (map[pipeline.TP]pipeline.Checkpoint, error) {
	res, err := a.a.ListConsumerGroupOffsets(ctx, []client.ConsumerGroupTopicPartitions{{Group: group}},
		client.SetAdminRequireStableOffsets(stable))
	if e, ok := errors.AsType[clientError](err); ok && e.Code() == client.ErrGroupIDNotFound {
		return map[pipeline.TP]pipeline.Checkpoint{}, nil // nobody committed yet
	}
	if err != nil {
		return nil, err
	}
	out := map[pipeline.TP]pipeline.Checkpoint{}
	for _, g := range res.ConsumerGroupsTopicPartitions {
		for _, tp := range g.Partitions {
			if tp.Error != nil {
				if e, ok := errors.AsType[clientError](tp.Error); ok && e.Code() == client.ErrUnknownTopicOrPart {
					continue
				}
				return nil, tp.Error
			}
			if tp.Offset < 0 {
				continue
			}
			meta := ""
			if tp.Metadata != nil {
				meta = *tp.Metadata
			}
			out[pipelineTP(tp)] = pipeline.ParseCheckpoint(int64(tp.Offset), meta)
		}
	}
	return out, nil
}

func number(s string, missing int64) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return missing
	}
	return n
}

func clientTP(tp pipeline.TP, off client.Offset) client.TopicPartition {
	return client.TopicPartition{Topic: &tp.Topic, Partition: tp.Partition, Offset: off}
}

func pipelineTP(tp client.TopicPartition) pipeline.TP {
	return pipeline.TP{Topic: topicOf(tp), Partition: tp.Partition}
}

func topicOf(tp client.TopicPartition) string {
	if tp.Topic == nil {
		return ""
	}
	return *tp.Topic
}
