package ledger

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"slices"
	"strings"
)

// Entry is one row of the history: what happened to an item (or, with an empty Item, in the ledger). It is only ever appended.
type Entry struct {
	Seq      int64  `json:"seq,string"`
	Tenant   string `json:"tenant"`
	Item     string `json:"item,omitempty"`
	Event    string `json:"event"`
	From     string `json:"from,omitempty"` // the state before: set by History, not stored, since it is the To of an earlier row
	To       string `json:"to,omitempty"`   // the state afterwards; empty when the row is not about a state
	AtMS     int64  `json:"at_ms,string"`   // 0: the transaction's time
	Evidence []byte `json:"evidence,omitempty"`
	// Actor and Detail can be erased; the chain holds only a salted commitment to them. An actor that starts with SystemActor
	// is no person and stays.
	Actor  string            `json:"actor,omitempty"`
	Detail map[string]string `json:"detail,omitempty"`
	Erased bool              `json:"erased,omitempty"`
}

// SystemActor starts the names of our own parts.
const SystemActor = "system:"

const historyTable = "dlq_message_custody_ledger"

var (
	historyColumns = []string{"seq", "at_ms", "tenant", "item", "event", "to_state", "by_system", "evidence", "hash"}
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
// writers of an empty ledger. INV-CHAIN: the hash of an entry is over the hash of the entry before it, and no two entries have the same one before them.
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
	rows := make([][]any, len(t.hist))
	var private [][]any
	for i := range t.hist {
		e := &t.hist[i]
		seq++
		e.Seq = seq
		tidy(e)
		system, person := split(e.Actor)
		detail := detailText(e.Detail)
		var commitment []byte
		if person != "" || detail != "" {
			salt := make([]byte, 16)
			rand.Read(salt)
			commitment = commit(salt, e.Seq, person, detail)
			private = append(private, []any{seq, e.Tenant, salt, person, detail})
		}
		hash := chain(prev, e, system, commitment)
		evidence := e.Evidence
		if evidence == nil {
			evidence = []byte{} // a byte; a NULL would cost eight in the row's head
		}
		rows[i] = []any{seq, e.AtMS, e.Tenant, e.Item, e.Event, e.To, system, evidence, hash}
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

// split tells our own parts from persons.
func split(actor string) (system, person string) {
	if s, ok := strings.CutPrefix(actor, SystemActor); ok {
		return s, ""
	}
	return "", actor
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

// commit is HMAC(salt, the private columns): without the salt it tells nothing about what was erased.
func commit(salt []byte, seq int64, person, detail string) []byte {
	m := hmac.New(sha256.New, salt)
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(seq))
	m.Write(lp(nil, n[:], []byte(person), []byte(detail)))
	return m.Sum(nil)
}

// chain is sha256(prev, the columns that are never erased, the commitment to the private ones).
func chain(prev []byte, e *Entry, system string, commitment []byte) []byte {
	var n [16]byte
	binary.BigEndian.PutUint64(n[:8], uint64(e.Seq))
	binary.BigEndian.PutUint64(n[8:], uint64(e.AtMS))
	sum := sha256.Sum256(lp(make([]byte, 0, 320), []byte("reprieve history 1"), prev, n[:], []byte(e.Tenant), []byte(e.Item), []byte(e.Event), []byte(e.To), []byte(system), e.Evidence, commitment))
	return sum[:]
}

// lp appends fields with their 4-byte lengths.
func lp(dst []byte, fields ...[]byte) []byte {
	for _, f := range fields {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(f)))
		dst = append(dst, f...)
	}
	return dst
}

const entrySelect = `SELECT h.seq, h.at_ms, h.tenant, h.item, h.event, h.to_state, h.by_system, h.evidence, p.actor, p.detail, c.commitment
	FROM dlq_message_custody_ledger h LEFT JOIN custody_ledger_private p ON p.seq = h.seq LEFT JOIN erased_commitments c ON c.seq = h.seq `

// History returns the entries of one item, oldest first.
func (t *Tx) History(item string) ([]Entry, error) {
	var out []Entry
	state := ""
	err := t.Each(entrySelect+"WHERE h.item = ? ORDER BY h.seq", []any{item}, func(scan func(...any) error) error {
		e, err := scanEntry(scan)
		if e.To != "" {
			e.From, state = state, e.To
		}
		out = append(out, e)
		return err
	})
	return out, err
}

// Events returns entries after seq, oldest first, at most limit; of the given tenants only (nil: all). From is not set.
func (t *Tx) Events(after int64, limit int, tenants []string) ([]Entry, error) {
	q, args := entrySelect+"WHERE h.seq > ?", []any{after}
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
	var system string
	var erased []byte
	if err := scan(&e.Seq, &e.AtMS, &e.Tenant, &e.Item, &e.Event, &e.To, &system, &e.Evidence, &actor, &detail, &erased); err != nil {
		return e, err
	}
	e.Erased = erased != nil
	if system != "" {
		e.Actor = SystemActor + system
	} else if actor != nil {
		e.Actor = *actor
	}
	if detail != nil && *detail != "" {
		return e, json.Unmarshal([]byte(*detail), &e.Detail)
	}
	return e, nil
}

// EraseHistory erases who and why from the history of items, but for some events. The chain keeps their commitments: it
// verifies as before.
func (t *Tx) EraseHistory(items, keepEvents []string) error {
	in, arg := t.In("h.item", items)
	keep, keepArg := t.In("h.event", keepEvents)
	var seqs [][]any
	err := t.Each("SELECT p.seq, p.salt, p.actor, p.detail FROM custody_ledger_private p JOIN dlq_message_custody_ledger h ON h.seq = p.seq WHERE "+in+" AND NOT ("+keep+")", []any{arg, keepArg},
		func(scan func(...any) error) error {
			var seq int64
			var salt []byte
			var person, detail string
			err := scan(&seq, &salt, &person, &detail)
			seqs = append(seqs, []any{seq, commit(salt, seq, person, detail)})
			return err
		})
	if err != nil {
		return err
	}
	if err := t.Insert("erased_commitments", []string{"seq", "commitment"}, seqs); err != nil {
		return err
	}
	for _, s := range seqs {
		if _, err := t.Exec("DELETE FROM custody_ledger_private WHERE seq = ?", s[0]); err != nil {
			return err
		}
	}
	return nil
}
