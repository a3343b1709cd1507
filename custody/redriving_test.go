package custody_test

import (
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// A window of a redrive, from the intent to what became of each item, as the manifest's rows see it.
func TestAWindowOfARedriveIsToldInItsManifest(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		ids := e.Admit(t, 0, 6)
		e.Confirm(t, 0, 5) // the last one is not confirmed
		e.Triage(t, ids...)
		who := custodytest.Operator
		within := func(f func(tx *ledger.Tx) error) {
			t.Helper()
			if err := e.Items.Within(e.Ctx, f); err != nil {
				t.Fatal(err)
			}
		}
		within(func(tx *ledger.Tx) error {
			var rows [][]any
			for i, id := range ids {
				rows = append(rows, []any{manifest, i + 1, "acme", id, "planned", "", "", "", "", 0, "", "", 0, 0, 0})
			}
			return tx.Insert("manifest_items", []string{"manifest", "n", "tenant", "item", "state", "code", "repair", "digest", "order_key", "attempts", "measures", "sent_topic", "sent_partition", "sent_offset", "sent_ms"}, rows)
		})
		in := &custody.Intent{Manifest: manifest, Run: "r1", Tenant: "acme", FromN: 1, ToN: 6, Offsets: map[pipeline.TP]int64{{Topic: "retry"}: 100}}
		within(func(tx *ledger.Tx) error {
			lease, ok, err := tx.Lease("redrive", "me", time.Minute)
			if err != nil || !ok {
				t.Fatal(ok, err)
			}
			in.Lease = lease
			ready, skips, err := e.Items.Intend(tx, who, in, ids, custody.Accept{})
			if err != nil || len(ready) != 5 || len(skips) != 1 || skips[0].Code != pipeline.CodeItemUnconfirmed || skips[0].Item != ids[5] {
				t.Fatal(ready, skips, err)
			}
			return nil
		})
		// Somebody else cannot send under the lease, nor the same items again.
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			stale := in.Lease
			stale.Epoch--
			_, _, err := e.Items.Intend(tx, who, &custody.Intent{Manifest: manifest, Lease: stale}, ids, custody.Accept{})
			return err
		}); pipeline.CodeOf(err) != pipeline.CodeRedriveState {
			t.Fatal(err)
		}
		within(func(tx *ledger.Tx) error {
			var sent []custody.SentAt
			for i, id := range ids[:3] {
				sent = append(sent, custody.SentAt{N: int64(i + 1), Item: id, At: pipeline.Position{TP: pipeline.TP{Topic: "retry", Partition: 1}, Offset: 9007199254740993 + int64(i)}})
			}
			if err := e.Items.Sent(tx, manifest, "acme", sent); err != nil {
				return err
			}
			if err := e.Items.CloseIntent(tx, in.ID, "sent"); err != nil {
				return err
			}
			if _, skips, err := e.Items.Withdraw(tx, who, manifest, ids[3:4], "absent"); len(skips) > 0 || err != nil {
				t.Error(skips, err)
			}
			skips, err := e.Items.FailRedrive(tx, who, manifest, ids[4:6], pipeline.CodeSendTopicMissing, func(pipeline.ID) map[string]string { return map[string]string{"topic": "gone"} })
			if len(skips) != 1 {
				t.Error(skips)
			}
			return err
		})
		o := func(i int, r pipeline.Result) custody.TakenOutcome {
			return custody.TakenOutcome{Outcome: pipeline.Outcome{Item: ids[i], Redrive: manifest, Try: 1, Result: r, Writer: "w"}}
		}
		// Two that disagree in one batch: the first decides, the second is a note.
		if err := e.Items.Outcomes(e.Ctx, custodytest.Worker, []custody.TakenOutcome{o(0, pipeline.Forwarded), o(0, pipeline.Applied), o(0, pipeline.FailedOutcome), o(1, pipeline.Forwarded)}); err != nil {
			t.Fatal(err)
		}
		want := []struct {
			state custody.State
			row   string
		}{{custody.Reconciled, "reconciled"}, {custody.Redriving, "forwarded"}, {custody.Redriving, "sent"}, {custody.Triaged, "withdrawn"}, {custody.Triaged, "failed"}, {custody.Triaged, "planned"}}
		for i, id := range ids {
			var row string
			var offset int64
			within(func(tx *ledger.Tx) error {
				_, err := tx.Row("SELECT state, sent_offset FROM manifest_items WHERE manifest = ? AND item = ?", []any{manifest, id}, &row, &offset)
				return err
			})
			if it := e.Show(t, id).Item; it.State != want[i].state || row != want[i].row {
				t.Errorf("%d: %s %s, want %v", i, it.State, row, want[i])
			}
			if i < 3 && offset != 9007199254740993+int64(i) {
				t.Errorf("%d: sent to %d", i, offset)
			}
		}
		if s := e.Show(t, ids[3]); s.Item.Try != 0 {
			t.Error("the try of a withdrawn item is not taken back")
		}
		mustVerify(t, e)
	})
}
