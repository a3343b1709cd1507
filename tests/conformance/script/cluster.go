package script

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"sync"

	"reprieve.dev/pipeline"
)

// Cluster is the brokers.
type Cluster struct {
	mu      sync.Mutex
	topics  map[string]*topic
	groups  map[string]*group
	writers map[string]*Tx // who holds a transactional id
	refuse  map[string]*refusal
	changed chan struct{} // closed and replaced at every change
	nowMS   int64
}

type topic struct {
	parts   [][]entry
	configs map[string]string
	round   int32 // next partition of a record without a key
	first   []int64
}

// entry is one offset of a partition.
type entry struct {
	rec    pipeline.Record
	marker bool // of a transaction: takes an offset, is never read
	tx     *transaction
}

type transaction struct{ open, aborted bool }

// New makes a cluster without topics. Its time stands still at nowMS, which records get that say no other.
func New(nowMS int64) *Cluster {
	return &Cluster{topics: map[string]*topic{}, groups: map[string]*group{}, writers: map[string]*Tx{},
		refuse: map[string]*refusal{}, changed: make(chan struct{}), nowMS: nowMS}
}

// SetNow moves the cluster's time.
func (c *Cluster) SetNow(ms int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nowMS = ms
}

// CreateTopic makes a topic. Of the settings, cleanup.policy, max.message.bytes, message.timestamp.type and retention.ms
// have an effect.
func (c *Cluster) CreateTopic(name string, partitions int, configs map[string]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.topics[name] == nil {
		c.topics[name] = &topic{parts: make([][]entry, partitions), first: make([]int64, partitions), configs: maps.Clone(configs)}
		for _, g := range c.groups {
			c.plan(g)
		}
		c.wake()
	}
}

// DeleteTopic removes a topic: writing to it is then refused.
func (c *Cluster) DeleteTopic(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.topics, name)
	for _, g := range c.groups {
		c.plan(g)
	}
	c.wake()
}

// Append writes records to a partition as a producer would; their offsets are set. A time of 0 is the cluster's.
func (c *Cluster) Append(tp pipeline.TP, recs ...pipeline.Record) (next int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range recs {
		next = c.append(tp, r, nil) + 1
	}
	c.wake()
	return next
}

// Give is Append of records that are the cluster's from then on: it does not copy them.
func (c *Cluster) Give(tp pipeline.TP, recs []pipeline.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range recs {
		c.keep(tp, r, nil)
	}
	c.wake()
}

// append adds a copy of one record; mu is held.
func (c *Cluster) append(tp pipeline.TP, r pipeline.Record, tx *transaction) int64 {
	return c.keep(tp, r.Clone(), tx)
}

// keep adds one record as it is; mu is held.
func (c *Cluster) keep(tp pipeline.TP, r pipeline.Record, tx *transaction) int64 {
	t := c.topics[tp.Topic]
	r.Offset, r.TimeType, r.Trail = t.first[tp.Partition]+int64(len(t.parts[tp.Partition])), pipeline.TimeCreate, nil
	if t.configs["message.timestamp.type"] == "LogAppendTime" {
		r.TimeType, r.TimeMS = pipeline.TimeLogAppend, c.nowMS
	}
	if r.TimeMS == 0 {
		r.TimeMS = c.nowMS
	}
	t.parts[tp.Partition] = append(t.parts[tp.Partition], entry{rec: r, tx: tx})
	return r.Offset
}

// Records returns what a reader of committed data sees of a partition.
func (c *Cluster) Records(tp pipeline.TP) []pipeline.Record {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []pipeline.Record
	c.walk(tp, 0, func(r *pipeline.Record) bool {
		out = append(out, r.Clone())
		return true
	})
	return out
}

// All returns the committed records of all partitions of a topic, by partition and offset.
func (c *Cluster) All(topic string) []pipeline.Record {
	var out []pipeline.Record
	for p := range c.Partitions(topic) {
		out = append(out, c.Records(pipeline.TP{Topic: topic, Partition: int32(p)})...)
	}
	return out
}

// Partitions is how many a topic has; 0 if there is none.
func (c *Cluster) Partitions(topic string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.topics[topic]; t != nil {
		return len(t.parts)
	}
	return 0
}

// walk calls each with committed records from off on, and returns the offset after the last one seen. It stops before the
// first open transaction. mu is held.
func (c *Cluster) walk(tp pipeline.TP, off int64, each func(*pipeline.Record) bool) int64 {
	t := c.topics[tp.Topic]
	if t == nil || int(tp.Partition) >= len(t.parts) {
		return off
	}
	es, first := t.parts[tp.Partition], t.first[tp.Partition]
	off = max(off, first)
	for ; off < first+int64(len(es)); off++ {
		e := &es[off-first]
		if e.tx != nil && e.tx.open {
			return off
		}
		if e.marker || e.tx != nil && e.tx.aborted {
			continue
		}
		if !each(&e.rec) {
			return off
		}
	}
	return off
}

// Trim deletes what lies before an offset, as retention does.
func (c *Cluster) Trim(tp pipeline.TP, before int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.topics[tp.Topic]
	n := min(before-t.first[tp.Partition], int64(len(t.parts[tp.Partition])))
	if n > 0 {
		clear(t.parts[tp.Partition][:n])
		t.parts[tp.Partition] = t.parts[tp.Partition][n:]
		t.first[tp.Partition] += n
	}
}

// end is the next offset of a partition. mu is held.
func (t *topic) end(p int32) int64 { return t.first[p] + int64(len(t.parts[p])) }

func (t *topic) number(config string, missing int64) int64 {
	n, err := strconv.ParseInt(t.configs[config], 10, 64)
	if err != nil {
		return missing
	}
	return n
}

// wake tells waiting Polls that something changed. mu is held.
func (c *Cluster) wake() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Committed returns what a group has committed.
func (c *Cluster) Committed(group string) map[pipeline.TP]pipeline.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	out := map[pipeline.TP]pipeline.Checkpoint{}
	for tp, m := range c.group(group).committed {
		out[tp] = pipeline.ParseCheckpoint(m.next, m.metadata)
	}
	return out
}

// group is the consumers of one group id.
type group struct {
	members   []*Source
	owner     map[pipeline.TP]*Source // who reads it now
	target    map[pipeline.TP]*Source // who is to read it
	committed map[pipeline.TP]committed
}

type committed struct {
	next     int64
	metadata string // the text form, so that what is cut from it is lost here as well
}

// group finds or makes a group. mu is held.
func (c *Cluster) group(id string) *group {
	g := c.groups[id]
	if g == nil {
		g = &group{owner: map[pipeline.TP]*Source{}, target: map[pipeline.TP]*Source{}, committed: map[pipeline.TP]committed{}}
		c.groups[id] = g
	}
	return g
}

// plan deals the partitions to the members: each member keeps what it has up to its share, in the order of joining. mu is
// held.
func (c *Cluster) plan(g *group) {
	clear(g.target)
	if len(g.members) == 0 {
		return
	}
	var all []pipeline.TP
	for name, t := range c.topics {
		for p := range t.parts {
			tp := pipeline.TP{Topic: name, Partition: int32(p)}
			if slices.ContainsFunc(g.members, func(s *Source) bool { return s.reads(name) }) {
				all = append(all, tp)
			}
		}
	}
	slices.SortFunc(all, compareTP)
	share := (len(all) + len(g.members) - 1) / len(g.members)
	load := map[*Source]int{}
	var free []pipeline.TP
	for _, tp := range all { // sticky
		if s := g.owner[tp]; s != nil && slices.Contains(g.members, s) && load[s] < share {
			g.target[tp] = s
			load[s]++
		} else {
			free = append(free, tp)
		}
	}
	for _, tp := range free {
		var to *Source
		for _, s := range g.members {
			if s.reads(tp.Topic) && (to == nil || load[s] < load[to]) {
				to = s
			}
		}
		if to != nil {
			g.target[tp] = to
			load[to]++
		}
	}
}

func compareTP(a, b pipeline.TP) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}
