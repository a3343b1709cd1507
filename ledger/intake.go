package ledger

import "reprieve.dev/pipeline"

// Intake is how far a custodian has read one partition into the ledger.
type Intake struct {
	Cluster string
	pipeline.TP
	Next  int64
	Epoch int64
}

// Advance writes intake offsets in the transaction that writes what was read. INV-INTAKE: only if next grows and the epoch
// is not older, so a custodian that lost a partition cannot undo its successor. False: some were not written, roll back.
func (t *Tx) Advance(list []Intake) (bool, error) {
	const into, merge = "INSERT INTO intake_offsets (cluster, topic, partition, next, epoch) ", ` ON CONFLICT (cluster, topic, partition) DO UPDATE
		SET next = excluded.next, epoch = excluded.epoch WHERE excluded.epoch >= intake_offsets.epoch AND excluded.next > intake_offsets.next`
	if len(list) == 0 {
		return true, nil
	}
	if t.db.dialect == Postgres { // one statement: a round trip for each of many partitions would be the pace
		var clusters, topics []string
		var partitions []int32
		var nexts, epochs []int64
		for _, in := range list {
			clusters, topics, partitions = append(clusters, Clean(in.Cluster)), append(topics, Clean(in.Topic)), append(partitions, in.Partition)
			nexts, epochs = append(nexts, in.Next), append(epochs, in.Epoch)
		}
		n, err := t.Exec(into+"SELECT * FROM unnest(?::text[], ?::text[], ?::int[], ?::bigint[], ?::bigint[])"+merge, clusters, topics, partitions, nexts, epochs)
		return n == int64(len(list)), err
	}
	all := true
	for _, in := range list {
		n, err := t.Exec(into+"VALUES (?, ?, ?, ?, ?)"+merge, in.Cluster, in.Topic, in.Partition, in.Next, in.Epoch)
		if err != nil {
			return false, err
		}
		all = all && n == 1
	}
	return all, nil
}

// TakeOver makes epoch the newest of a partition and returns where to read on; next is -1 when nothing was read yet. It is
// called when a partition is assigned: from then on an older custodian's Advance writes nothing.
func (t *Tx) TakeOver(cluster string, tp pipeline.TP) (next, epoch int64, err error) {
	if _, err = t.Exec(`INSERT INTO intake_offsets (cluster, topic, partition, next, epoch) VALUES (?, ?, ?, -1, 1)
		ON CONFLICT (cluster, topic, partition) DO UPDATE SET epoch = intake_offsets.epoch + 1`, cluster, tp.Topic, tp.Partition); err != nil {
		return 0, 0, err
	}
	_, err = t.Row("SELECT next, epoch FROM intake_offsets WHERE cluster = ? AND topic = ? AND partition = ?",
		[]any{cluster, tp.Topic, tp.Partition}, &next, &epoch)
	return next, epoch, err
}

// Intakes are all offsets of a cluster.
func (t *Tx) Intakes(cluster string) (map[pipeline.TP]int64, error) {
	out := map[pipeline.TP]int64{}
	err := t.Each("SELECT topic, partition, next FROM intake_offsets WHERE cluster = ?", []any{cluster}, func(scan func(...any) error) error {
		var tp pipeline.TP
		var next int64
		if err := scan(&tp.Topic, &tp.Partition, &next); err != nil {
			return err
		}
		out[tp] = next
		return nil
	})
	return out, err
}

// LockIntakes reads where partitions stand, locked in the order of their names: no other custodian moves them before the transaction
// ends. One that nobody has taken over is missing.
func (t *Tx) LockIntakes(cluster string, tps []pipeline.TP) (map[pipeline.TP]Intake, error) {
	out := make(map[pipeline.TP]Intake, len(tps))
	read := func(scan func(...any) error) error {
		in := Intake{Cluster: cluster}
		err := scan(&in.Topic, &in.Partition, &in.Next, &in.Epoch)
		out[in.TP] = in
		return err
	}
	const q = "SELECT topic, partition, next, epoch FROM intake_offsets WHERE cluster = ? AND "
	if t.db.dialect == Postgres {
		topics, partitions := make([]string, len(tps)), make([]int32, len(tps))
		for i, tp := range tps {
			topics[i], partitions[i] = Clean(tp.Topic), tp.Partition
		}
		err := t.Each(q+`(topic, partition) IN (SELECT * FROM unnest(?::text[], ?::int[])) ORDER BY topic COLLATE "C", partition FOR UPDATE`,
			[]any{cluster, topics, partitions}, read)
		return out, err
	}
	for _, tp := range tps {
		if err := t.Each(q+"topic = ? AND partition = ?", []any{cluster, tp.Topic, tp.Partition}, read); err != nil {
			return nil, err
		}
	}
	return out, nil
}
