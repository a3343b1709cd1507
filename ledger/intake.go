package ledger

import "reprieve.dev/pipeline"

// Intake is how far a custodian has read one partition into the ledger.
type Intake struct {
	Cluster string
	pipeline.TP
	Next  int64
	Epoch int64
}

// Advance writes an intake offset in the transaction that writes what was read. INV-INTAKE: only if next grows and the epoch
// is not older, so a custodian that lost a partition cannot undo its successor. False: nothing was written, roll back.
func (t *Tx) Advance(in Intake) (bool, error) {
	n, err := t.Exec(`INSERT INTO intake_offsets (cluster, topic, partition, next, epoch) VALUES (?, ?, ?, ?, ?)
		ON CONFLICT (cluster, topic, partition) DO UPDATE SET next = excluded.next, epoch = excluded.epoch
		WHERE excluded.epoch >= intake_offsets.epoch AND excluded.next > intake_offsets.next`,
		in.Cluster, in.Topic, in.Partition, in.Next, in.Epoch)
	return n == 1, err
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

// Intake reads where a partition stands, locked: no other custodian moves it before the transaction ends.
func (t *Tx) Intake(cluster string, tp pipeline.TP) (next, epoch int64, err error) {
	_, err = t.Row("SELECT next, epoch FROM intake_offsets WHERE cluster = ? AND topic = ? AND partition = ?"+t.ForUpdate(), []any{cluster, tp.Topic, tp.Partition}, &next, &epoch)
	return next, epoch, err
}
