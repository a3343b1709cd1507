package ledger

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
)

// Entry is one row of the history: what happened to an item (or, with an empty Item, in the ledger). It is only ever appended.
type Entry struct {
	Seq      int64  `json:"seq,string"`
	Tenant   string `json:"tenant"`
	Item     string `json:"item,omitempty"`
	Event    string `json:"event"`
	From     string `json:"from,omitempty"`
	To       string `json:"to,omitempty"` // the state afterwards; empty when the row is not about a state
	AtMS     int64  `json:"at_ms,string"` // 0: the transaction's time
	Evidence []byte `json:"evidence,omitempty"`
	// Actor and Detail can be erased; the chain holds only a salted commitment to them.
	Actor  string            `json:"actor,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
	Erased bool              `json:"erased,omitempty"`
}

const historyTable = "dlq_message_custody_ledger"

var (
	historyColumns = []string{"seq", "tenant", "item", "event", "from_state", "to_state", "at_ms", "evidence", "commitment", "prev_hash", "hash"}
	privateColumns = []string{"seq", "tenant", "salt", "actor", "detail"}
)

// Append adds a row to the history when the transaction commits.
func (t *Tx) Append(e Entry) {
	if e.AtMS == 0 {
		e.AtMS = t.nowMS
	}
	t.hist = append(t.hist, e)
}

// flush writes what was kept until the end: roll-ups in key order, then the history under the lock of its head. The head row
// exists from the first migration on, so there is always a row to lock: locking "the last entry" would not order the first two
// writers of an empty ledger. INV-CHAIN: prev_hash of an entry is the hash of the entry before it, and no two share one.
func (t *Tx) flush() error {
	if err := t.flushRolls(); err != nil {
		return err
	}
	if len(t.hist) == 0 {
		return nil
	}
	var seq int64
	var prev []byte
	found, err := t.Row("SELECT seq, hash FROM history_head WHERE id = 1"+t.ForUpdate(), nil, &seq, &prev)
	if err != nil {
		return err
	}
	if !found {
		return corrupt(t.db.place, "the head of the history is missing")
	}
	salts := make([]byte, 16*len(t.hist))
	rand.Read(salts)
	rows := make([][]any, len(t.hist))
	private := make([][]any, len(t.hist))
	for i := range t.hist {
		e := &t.hist[i]
		seq++
		e.Seq = seq
		detail := detailText(e.Detail)
		tidy(e)
		salt := salts[16*i : 16*i+16 : 16*i+16]
		commitment := commit(salt, e, detail)
		hash := chain(prev, e, commitment)
		rows[i] = []any{seq, e.Tenant, e.Item, e.Event, e.From, e.To, e.AtMS, e.Evidence, commitment, prev, hash}
		private[i] = []any{seq, e.Tenant, salt, e.Actor, detail}
		prev = hash
	}
	if err := t.Insert(historyTable, historyColumns, rows); err != nil {
		return err
	}
	if err := t.Insert("custody_ledger_private", privateColumns, private); err != nil {
		return err
	}
	_, err = t.Exec("UPDATE history_head SET seq = ?, hash = ? WHERE id = 1", seq, prev)
	return err
}

// tidy makes the texts of e what the store will return, before they are hashed.
func tidy(e *Entry) {
	for _, s := range []*string{&e.Tenant, &e.Item, &e.Event, &e.From, &e.To, &e.Actor} {
		*s = Clean(*s)
	}
}

func detailText(d map[string]string) string {
	if len(d) == 0 {
		return ""
	}
	clean := make(map[string]string, len(d))
	for k, v := range d {
		if v != "" {
			clean[Clean(k)] = Clean(v)
		}
	}
	text, _ := json.Marshal(clean) // keys are sorted; clean strings always marshal
	return string(text)
}

// commit is HMAC(salt, the row): without the salt it tells nothing about what was erased.
func commit(salt []byte, e *Entry, detail string) []byte {
	m := hmac.New(sha256.New, salt)
	m.Write(canonical(e))
	m.Write(lp(nil, []byte(e.Actor), []byte(detail)))
	return m.Sum(nil)
}

// chain is sha256(prev, the columns that are never erased, the commitment).
func chain(prev []byte, e *Entry, commitment []byte) []byte {
	h := sha256.New()
	h.Write(lp(nil, []byte("reprieve history 1"), prev))
	h.Write(canonical(e))
	h.Write(lp(nil, commitment))
	return h.Sum(nil)
}

func canonical(e *Entry) []byte {
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(e.Seq))
	binary.BigEndian.PutUint64(n[8:], uint64(e.AtMS))
	return lp(make([]byte, 0, 160), n[:], []byte(e.Tenant), []byte(e.Item), []byte(e.Event), []byte(e.From), []byte(e.To), e.Evidence)
}

// lp appends fields with their 4-byte lengths.
func lp(dst []byte, fields ...[]byte) []byte {
	for _, f := range fields {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(f)))
		dst = append(dst, f...)
	}
	return dst
}

// History returns the entries of one item, oldest first.
func (t *Tx) History(item string) ([]Entry, error) {
	var out []Entry
	err := t.Each(`SELECT h.seq, h.tenant, h.item, h.event, h.from_state, h.to_state, h.at_ms, h.evidence, p.actor, p.detail
		FROM dlq_message_custody_ledger h LEFT JOIN custody_ledger_private p ON p.seq = h.seq WHERE h.item = ? ORDER BY h.seq`,
		[]any{item}, func(scan func(...any) error) error {
			e, err := scanEntry(scan)
			out = append(out, e)
			return err
		})
	return out, err
}

// Events returns entries after seq that are not about a state (refusals, reveals, notes of the ledger) or all of them,
// oldest first, at most limit; of the given tenants only (nil: all).
func (t *Tx) Events(after int64, limit int, tenants []string) ([]Entry, error) {
	q := `SELECT h.seq, h.tenant, h.item, h.event, h.from_state, h.to_state, h.at_ms, h.evidence, p.actor, p.detail
		FROM dlq_message_custody_ledger h LEFT JOIN custody_ledger_private p ON p.seq = h.seq WHERE h.seq > ?`
	args := []any{after}
	if tenants != nil {
		in, arg := t.In("h.tenant", tenants)
		q += " AND " + in
		args = append(args, arg)
	}
	var out []Entry
	err := t.Each(q+" ORDER BY h.seq LIMIT ?", append(args, limit), func(scan func(...any) error) error {
		e, err := scanEntry(scan)
		out = append(out, e)
		return err
	})
	return slices.Clip(out), err
}

func scanEntry(scan func(...any) error) (Entry, error) {
	var e Entry
	var actor, detail *string
	if err := scan(&e.Seq, &e.Tenant, &e.Item, &e.Event, &e.From, &e.To, &e.AtMS, &e.Evidence, &actor, &detail); err != nil {
		return e, err
	}
	if actor == nil || detail == nil {
		e.Erased = true
		return e, nil
	}
	e.Actor = *actor
	if *detail != "" {
		return e, json.Unmarshal([]byte(*detail), &e.Detail)
	}
	return e, nil
}
