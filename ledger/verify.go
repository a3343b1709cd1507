package ledger

import (
	"bytes"
	"context"
	"fmt"

	"reprieve.dev/pipeline"
)

// Finding is one thing that does not verify: a code, where it is, and what is wrong.
type Finding struct {
	Code  pipeline.Code `json:"code"`
	Place string        `json:"place"`
	Text  string        `json:"text"`
}

// Head is the end of the history at some time, as it was signed and kept elsewhere.
type Head struct {
	Seq  int64
	Hash []byte
}

func corrupt(place, text string) *pipeline.Error {
	return &pipeline.Error{Code: pipeline.CodeLedgerCorrupt, Place: place, Text: text}
}

// verifyStep is how many rows Verify looks at between two words about it.
const verifyStep = 10_000

// Verify walks the whole history: numbers without gap, each row bound to the one before, salted commitments where the salt is
// still there, the head, and heads that were kept elsewhere. It returns what is wrong, at most 100 findings. progress, if not nil, is
// told how many rows it has looked at since it was told last. Cost: one scan, about 2 us a row.
func (db *DB) Verify(ctx context.Context, heads []Head, progress func(rows int64)) (rows int64, found []Finding, err error) {
	add := func(place, format string, args ...any) {
		if len(found) < 100 {
			found = append(found, Finding{pipeline.CodeLedgerCorrupt, place, fmt.Sprintf(format, args...)})
		}
	}
	want := map[int64][]byte{}
	for _, h := range heads {
		want[h.Seq] = h.Hash
	}
	err = db.Read(ctx, func(t *Tx) error {
		prev := make([]byte, 32)
		next := int64(1)
		e := t.Each(`SELECT h.seq, h.at_ms, h.tenant, h.item, h.event, h.to_state, h.by_system, h.evidence, h.hash, p.salt, p.actor, p.detail, c.commitment
			FROM dlq_message_custody_ledger h LEFT JOIN custody_ledger_private p ON p.seq = h.seq LEFT JOIN erased_commitments c ON c.seq = h.seq ORDER BY h.seq`, nil,
			func(scan func(...any) error) error {
				var e Entry
				var system string
				var hash, salt, commitment []byte
				var person, detail *string
				if err := scan(&e.Seq, &e.AtMS, &e.Tenant, &e.Item, &e.Event, &e.To, &system, &e.Evidence, &hash, &salt, &person, &detail, &commitment); err != nil {
					return err
				}
				rows++
				place := func() string { return fmt.Sprintf("%s/%d", historyTable, e.Seq) }
				if person != nil && detail != nil {
					commitment = commit(salt, e.Seq, *person, *detail)
				}
				switch {
				case e.Seq != next:
					add(place(), "rows %d to %d are missing", next, e.Seq-1)
				case !bytes.Equal(chain(prev, &e, system, commitment), hash):
					add(place(), "the row, its actor or its detail was rewritten, or the row before: its hash does not hold (item %s, event %s)", e.Item, e.Event)
				}
				if h, ok := want[e.Seq]; ok {
					delete(want, e.Seq)
					if !bytes.Equal(h, hash) {
						add(place(), "the row is not the one that was signed")
					}
				}
				prev, next = hash, e.Seq+1
				if progress != nil && rows%verifyStep == 0 {
					progress(verifyStep)
				}
				return nil
			})
		if e != nil {
			return e
		}
		if progress != nil {
			progress(rows % verifyStep)
		}
		var seq int64
		var hash []byte
		ok, e := t.Row("SELECT seq, hash FROM history_head WHERE id = 1", nil, &seq, &hash)
		switch {
		case e != nil:
			return e
		case !ok:
			add("history_head", "the head is missing")
		case seq != next-1:
			add("history_head", "the tail was cut: the head names row %d and the last row is %d", seq, next-1)
		case seq > 0 && !bytes.Equal(hash, prev):
			add("history_head", "the head does not name the last row's hash")
		}
		return nil
	})
	for seq := range want {
		add(fmt.Sprintf("%s/%d", historyTable, seq), "the tail was cut: this row was signed and is gone")
	}
	return rows, found, err
}
