package custody_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
)

// One flipped byte, a cut tail, a rewritten row: each is found and named.
func TestVerifyFindsAndNamesWhatWasDone(t *testing.T) {
	for i, open := range []func(testing.TB) ledgertest.Store{ledgertest.SQLite, ledgertest.Postgres} {
		t.Run([]string{"sqlite", "postgres"}[i], func(t *testing.T) { verifyFinds(t, open) })
	}
}

func verifyFinds(t *testing.T, open func(testing.TB) ledgertest.Store) {
	setup := func(t *testing.T) (*custodytest.Env, []pipeline.ID, custody.SignedHead) {
		t.Helper()
		e := custodytest.New(t, open(t))
		ids := e.Admit(t, 0, 5)
		e.Triage(t, ids[:3]...)
		e.Turn(2 * time.Minute)
		if ok, err := e.Items.SignHead(e.Ctx, "reprieve.audit"); !ok || err != nil {
			t.Fatal(ok, err)
		}
		if ok, err := e.Items.SignHead(e.Ctx, "reprieve.audit"); ok || err != nil {
			t.Fatal("a head was signed that was signed before", err)
		}
		var value []byte
		if err := e.Store.SQL(t).QueryRow("SELECT value FROM outbox").Scan(&value); err != nil {
			t.Fatal(err)
		}
		head, err := custody.ParseHead(value)
		if err != nil || head.Seq != 13 {
			t.Fatal(head, err)
		}
		mustVerify(t, e)
		return e, ids, head
	}
	e, ids, _ := setup(t)
	id := string(ids[1])
	bytesOf := func(hex string) string {
		if e.Store.Dialect == ledger.Postgres {
			return `'\x` + hex + `'`
		}
		return "x'" + hex + "'"
	}
	cut := []string{"DELETE FROM dlq_message_custody_ledger WHERE seq = 13", "UPDATE history_head SET seq = 12, hash = (SELECT hash FROM dlq_message_custody_ledger WHERE seq = 12)", "DELETE FROM signed_heads", "UPDATE items SET state = 'DEAD_LETTERED' WHERE id = '" + string(ids[2]) + "'"}
	for _, c := range []struct {
		name string
		do   []string
		want []string // places
	}{
		{"one flipped byte of a payload", []string{"UPDATE payloads SET value = " + bytesOf("7a") + " WHERE item = '" + id + "'"}, []string{"payloads/" + id}},
		{"a payload that is gone", []string{"DELETE FROM payloads WHERE item = '" + id + "'"}, []string{"payloads/" + id}},
		{"a dropped partition", []string{"DELETE FROM payloads"}, []string{"payloads/", "payloads_w2958"}},
		{"a null that became empty", []string{"UPDATE payloads SET record_key = NULL WHERE item = '" + id + "'"}, []string{"payloads/" + id}},
		{"a rewritten reason", []string{"UPDATE items SET reason = 'all is well' WHERE id = '" + id + "'"}, []string{"items/" + id}},
		{"a rewritten position", []string{"UPDATE items SET source_offset = 99 WHERE id = '" + id + "'"}, []string{"items/" + id}},
		{"a rewritten state", []string{"UPDATE items SET state = 'DISCARDED' WHERE id = '" + id + "'"}, []string{"items/" + id, "group_rollup/acme", "age_rollup/acme"}},
		{"an item that is gone", []string{"DELETE FROM items WHERE id = '" + id + "'"}, []string{"items/" + id, "group_rollup/acme", "age_rollup/acme"}},
		{"a roll-up that lies", []string{"UPDATE group_rollup SET n = n + 1 WHERE state = 'TRIAGED'"}, []string{"group_rollup/acme"}},
		{"a rewritten history row", []string{"UPDATE dlq_message_custody_ledger SET to_state = 'DISCARDED' WHERE seq = 11"}, []string{"dlq_message_custody_ledger/11", "items/"}},
		{"a rewritten actor", []string{"UPDATE custody_ledger_private SET actor = 'nobody' WHERE seq = 11"}, []string{"dlq_message_custody_ledger/11"}},
		{"a cut tail", []string{"DELETE FROM dlq_message_custody_ledger WHERE seq = 13"}, []string{"dlq_message_custody_ledger/13", "history_head", "items/"}},
		{"a forged head", []string{"UPDATE signed_heads SET hash = (SELECT hash FROM dlq_message_custody_ledger WHERE seq = 12)"}, []string{"signed_heads/13"}},
		{"a cut tail with all that names it, against the audit topic", cut, []string{"dlq_message_custody_ledger/13"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, _, head := setup(t)
			for _, q := range c.do {
				if _, err := s.Store.SQL(t).Exec(q); err != nil {
					t.Fatal(err)
				}
			}
			v, err := s.Items.Verify(s.Ctx, custodytest.Admin, []custody.SignedHead{head}, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, want := range c.want {
				found := false
				for _, f := range v.Findings {
					found = found || strings.HasPrefix(f.Place, want)
				}
				if !found {
					t.Errorf("%s is not named: %+v", want, v.Findings)
				}
			}
			for _, f := range v.Findings {
				known := false
				for _, want := range c.want {
					known = known || strings.HasPrefix(f.Place, want)
				}
				if !known && !strings.Contains(c.name, "state") && !strings.Contains(c.name, "cut") {
					t.Errorf("and this is named too: %+v", f)
				}
			}
		})
	}
}

func TestVerifySaysHowFarItIs(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		e.Triage(t, e.Admit(t, 0, 30)...)
		last, of := int64(0), int64(0)
		v, err := e.Items.Verify(e.Ctx, custodytest.Admin, nil, func(done, total int64) {
			if done < last || total < done {
				t.Errorf("%d of %d after %d", done, total, last)
			}
			last, of = done, total
		})
		if err != nil || last != v.HistoryRows+v.Items || of != last || v.Items != 30 {
			t.Errorf("%d of %d: %+v %v", last, of, v, err)
		}
	})
}

func TestVerifyNeedsThePermission(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		if _, err := e.Items.Verify(e.Ctx, custodytest.Viewer, nil, nil); err == nil {
			t.Fatal("a viewer may not")
		}
	})
}

func TestHeadersSurviveTheLedger(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		l := e.Letter(0)
		l.Headers = nil
		for i := range 300 {
			l.Headers = append(l.Headers, headerOf(i))
		}
		l.Key = nil
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 0)}); err != nil {
			t.Fatal(err)
		}
		b, err := e.Items.Open(e.Ctx, custodytest.Owner, l.Item, "look")
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(l.Headers, b.Headers); d != "" || b.Key != nil {
			t.Fatal(d, fmt.Sprint(b.Key))
		}
	})
}
