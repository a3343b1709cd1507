package custody_test

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

const plantedCard = "4111111111111111"

// sealing is custody with keys, and what a worker and a topic would have.
type sealing struct {
	*custodytest.Env
	keys   *custody.Keys
	sealer *seal.Sealer
	opener *seal.Opener
	items  *custody.Items
	n      int64
}

func newSealing(t *testing.T, e *custodytest.Env) *sealing {
	s := &sealing{Env: e, keys: custody.NewKeys(e.Items, newKeeper(t), "local")}
	if _, err := s.keys.Current(e.Ctx, "acme"); err != nil {
		t.Fatal(err)
	}
	s.sealer = seal.NewSealer(func(tenant string) (*seal.PublicKey, error) { return s.keys.Known(e.Ctx, tenant) }, seal.SealerOptions{Clock: e.Clock})
	s.opener = seal.NewOpener(func(tenant, kid string) (*seal.PrivateKey, error) { return s.keys.Private(e.Ctx, tenant, kid) }, seal.OpenerOptions{Clock: e.Clock})
	s.items = e.Again(e.DB, func(o *custody.Options) { o.Opener, o.Sealer = s.opener, s.sealer })
	return s
}

// withheld is the placeholder of source offset n, and the vault message of its record, read back from the wire.
func (s *sealing) withheld(t *testing.T, n int64, value string) (custody.Arrival, custody.TakenVault) {
	t.Helper()
	l := s.Letter(n)
	l.Kind, l.Value, l.Faithful = deadletter.KindSealed, nil, deadletter.Vault
	l.Key = []byte(s.Identity.Digest([]byte(plantedCard)))
	l.DigestFaithful, l.DigestRedacted = pipeline.Digest(s.Identity.Digest([]byte(value))), "sha256:null"
	return custodytest.Arrival(l, n), s.vaulted(t, l, value)
}

func (s *sealing) vaulted(t *testing.T, l *deadletter.Letter, value string) custody.TakenVault {
	t.Helper()
	v := &deadletter.Vaulted{Item: l.Item, Tenant: l.Identity.Tenant, Pipeline: l.Pipeline, Original: l.Original, Cluster: l.Cluster, TimeType: pipeline.TimeNone,
		Digest: pipeline.Digest(s.Identity.Digest([]byte(value)))}
	var err error
	plain := deadletter.PackRecord([]byte(plantedCard), []byte(value), []pipeline.Header{{Name: "h", Value: []byte("1")}, {Name: "null"}})
	if v.Sealed, v.Enc, err = s.sealer.Seal(v.Tenant, plain, []byte(v.Item)); err != nil {
		t.Fatal(err)
	}
	m := pipeline.Message{Topic: "billing.invoices.v1.dlq.vault"}
	deadletter.AppendVaulted(&m, v, s.Ring)
	r := pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers}
	read, err := deadletter.ParseVaulted(m.Topic, &r, s.Ring)
	if err != nil {
		t.Fatal(err)
	}
	s.n++
	return custody.TakenVault{Vaulted: read, Stands: pipeline.Position{TP: pipeline.TP{Topic: m.Topic}, Offset: s.n}, TimeMS: s.Clock().UnixMilli(), Cluster: "cluster-1"}
}

func (s *sealing) take(t *testing.T, letters []custody.Arrival, vault []custody.TakenVault) {
	t.Helper()
	if err := s.items.Within(s.Ctx, func(tx *ledger.Tx) error {
		if err := s.items.VaultTx(tx, vault); err != nil {
			return err
		}
		_, err := s.items.AdmitTx(tx, custodytest.Worker, letters)
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

func TestAWithheldRecordIsRepairedFromTheVault(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		const value = `{"card":"` + plantedCard + `"}`
		letter, vault := s.withheld(t, 1, value)
		id := letter.Letter.Item
		s.take(t, nil, []custody.TakenVault{vault}) // the vault may come first
		s.take(t, []custody.Arrival{letter}, []custody.TakenVault{vault})

		if b, err := s.items.Open(e.Ctx, custodytest.Owner, id, "look"); err != nil || b.Value != nil || bytes.Contains(b.Key, []byte(plantedCard)) {
			t.Fatalf("%q %q %v", b.Key, b.Value, err)
		}
		if _, err := s.items.OpenOriginal(e.Ctx, custodytest.Operator, id, "look"); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		if _, err := s.items.OpenOriginal(e.Ctx, custodytest.Owner, id, ""); pipeline.CodeOf(err) != pipeline.CodeReasonMissing {
			t.Fatal(err)
		}
		b, err := s.items.OpenOriginal(e.Ctx, custodytest.Owner, id, "look")
		if err != nil || string(b.Value) != value || string(b.Key) != plantedCard || !b.Faithful || len(b.Headers) != 2 || b.Headers[1].Value != nil {
			t.Fatalf("%q %q %v", b.Key, b.Value, err)
		}
		reveals := 0
		for _, h := range e.Show(t, id).History {
			if h.Event == "revealed" && h.Detail["bytes"] == "original" {
				reveals++
			}
		}
		if reveals != 1 {
			t.Errorf("%d reveals of the original are in the history", reveals)
		}
		it := e.Show(t, id).Item
		if f, err := s.items.Faithful(e.Ctx, it); err != nil || string(f.Value) != value || !f.Faithful {
			t.Fatalf("%q %v", f.Value, err)
		}
		if _, err := e.Items.Faithful(e.Ctx, it); pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
			t.Fatal("without keys:", err)
		}
		// Its repair holds what the letter hides: it is sealed too, key and headers with it.
		e.Triage(t, id)
		const mended = `{"card":"` + plantedCard + `","currency":"EUR"}`
		if err := s.items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, skips, err := s.items.StoreRepairs(tx, custodytest.Operator, []custody.NewRepair{{StoredRepair: custody.StoredRepair{Item: id}, Bytes: custody.Bytes{Key: b.Key, Value: []byte(mended), Headers: b.Headers}}})
			if len(skips) > 0 || err != nil {
				t.Error(skips, err)
			}
			m, err := s.items.Lock(tx, []pipeline.ID{id})
			if err != nil {
				return err
			}
			r, _, err := s.items.RepairedBytes(tx, m[id])
			if err != nil || string(r.Value) != mended || string(r.Key) != plantedCard || len(r.Headers) != 2 {
				t.Errorf("%q %q %v", r.Key, r.Value, err)
			}
			found, failed, err := s.items.WindowBytes(tx, []*custody.Item{m[id]}, map[pipeline.ID]string{id: m[id].Repair})
			if w := found[id]; err != nil || len(failed) > 0 || string(w.Value) != mended || string(w.Key) != plantedCard {
				t.Errorf("%q %q %v %v", w.Key, w.Value, failed, err)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, _, err := e.Items.StoreRepairs(tx, custodytest.Operator, []custody.NewRepair{{StoredRepair: custody.StoredRepair{Item: id}, Bytes: custody.Bytes{Value: []byte(mended)}}})
			return err
		}); pipeline.CodeOf(err) != pipeline.CodeSealFailed {
			t.Fatal("a repair was stored in clear:", err)
		}
		s.inTheClear(t, plantedCard)
		mustVerify(t, e)
	})
}

// inTheClear fails when a text stands anywhere in the ledger's file.
func (s *sealing) inTheClear(t *testing.T, text string) {
	t.Helper()
	path, ok := strings.CutPrefix(s.Store.URL, "sqlite:")
	if !ok {
		return // a server's files are not ours to read; it stores the same columns
	}
	for _, name := range []string{path, path + "-wal"} {
		all, err := os.ReadFile(name)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if bytes.Contains(all, []byte(text)) {
			t.Errorf("%s holds %q", name, text)
		}
	}
}

func TestWhatWasErasedDoesNotComeBackToTheVault(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		letter, vault := s.withheld(t, 1, "secret")
		kept, keptVault := s.withheld(t, 2, "kept")
		s.take(t, []custody.Arrival{letter, kept}, []custody.TakenVault{vault, keptVault})
		id := letter.Letter.Item
		sum, err := s.items.EraseItems(e.Ctx, custodytest.Admin, []pipeline.ID{id}, "request 1")
		if err != nil || sum.Items != 1 {
			t.Fatal(sum, err)
		}
		topics := map[string]int64{}
		for _, c := range sum.Topics {
			topics[c.Topic] += c.N
		}
		if topics["billing.invoices.v1.dlq.vault"] != 1 || topics["billing.invoices.v1.dlq"] != 1 {
			t.Errorf("copies %v", topics)
		}
		s.take(t, nil, []custody.TakenVault{vault}) // the topic is read again
		if _, err := s.items.Faithful(e.Ctx, e.Show(t, id).Item); pipeline.CodeOf(err) != pipeline.CodeErased {
			t.Fatal(err)
		}
		if n := s.rows(t, "vault"); n != 1 {
			t.Errorf("%d sealed records are left", n)
		}
		mustVerify(t, e)
		// A rebuilt ledger knows of the erasure by its log alone.
		log, err := e.Items.Erasures(e.Ctx, custodytest.Admin)
		if err != nil || len(log) != 1 {
			t.Fatal(log, err)
		}
		if _, err := e.Store.SQL(t).Exec("UPDATE items SET flags = 0 WHERE id = '" + string(id) + "'"); err != nil {
			t.Fatal(err)
		}
		s.take(t, nil, []custody.TakenVault{vault})
		if n := s.rows(t, "vault"); n != 1 {
			t.Errorf("%d sealed records are left", n)
		}
	})
}

func (s *sealing) rows(t *testing.T, table string) (n int) {
	t.Helper()
	if err := s.Store.SQL(t).QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// What a tenant's destroyed key closes: the ledger's payload, the vault, the bytes of both topics, and a backup that is brought back.
func TestADestroyedKeyClosesEveryCopy(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		letter, vault := s.withheld(t, 1, "withheld")
		sealedLetter := s.Letter(2)
		var err error
		if sealedLetter.Value, sealedLetter.Enc, err = s.sealer.Seal("acme", sealedLetter.Value, []byte(sealedLetter.Item)); err != nil {
			t.Fatal(err)
		}
		s.take(t, []custody.Arrival{letter, custodytest.Arrival(sealedLetter, 2)}, []custody.TakenVault{vault})
		type row struct {
			id, tenant, keeper string
			version, created   int64
			public, private    []byte
		}
		var backup row
		if err := e.Store.SQL(t).QueryRow("SELECT id, tenant, version, public_key, private_wrapped, keeper, created_ms FROM tenant_keys WHERE tenant = 'acme'").
			Scan(&backup.id, &backup.tenant, &backup.version, &backup.public, &backup.private, &backup.keeper, &backup.created); err != nil {
			t.Fatal(err)
		}
		next, err := s.keys.Rotate(e.Ctx, custodytest.Admin, "acme")
		if err != nil {
			t.Fatal(err)
		}
		if kids, err := s.keys.Destroy(e.Ctx, custodytest.Admin, "acme", next.ID(), "left"); err != nil || len(kids) != 1 || kids[0] != backup.id {
			t.Fatal(kids, err)
		}
		closed := func(where string, code pipeline.Code) {
			t.Helper()
			s.opener.Forget("acme")
			s.sealer.Forget("acme")
			_, ledgerErr := s.items.Open(e.Ctx, custodytest.Owner, sealedLetter.Item, "look")
			_, vaultErr := s.items.OpenOriginal(e.Ctx, custodytest.Owner, letter.Letter.Item, "look")
			_, faithfulErr := s.items.Faithful(e.Ctx, e.Show(t, letter.Letter.Item).Item)
			_, topicErr := s.opener.Open("acme", sealedLetter.Enc, sealedLetter.Value, []byte(sealedLetter.Item))
			_, vaultTopicErr := s.opener.Open("acme", vault.Enc, vault.Sealed, []byte(vault.Item))
			for what, err := range map[string]error{"the ledger's payload": ledgerErr, "the vault": vaultErr, "faithful bytes": faithfulErr, "the letter on its topic": topicErr, "the vault topic": vaultTopicErr} {
				if pipeline.CodeOf(err) != code {
					t.Errorf("%s: %s: %v", where, what, err)
				}
			}
		}
		closed("destroyed", pipeline.CodeKeyDestroyed)
		// Nothing that comes later is lost.
		if _, enc, err := s.sealer.Seal("acme", []byte("later"), []byte("q")); err != nil || !strings.Contains(enc, next.ID()) {
			t.Errorf("sealed to %s: %v", enc, err)
		}
		// A backup of the ledger brings the key back; the erasure log, kept apart, takes it away again.
		log, err := e.Items.Erasures(e.Ctx, custodytest.Admin)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.items.Within(e.Ctx, func(tx *ledger.Tx) error {
			if _, err := tx.Exec("DELETE FROM erasure_log"); err != nil {
				return err
			}
			return tx.Insert("tenant_keys", []string{"id", "tenant", "version", "public_key", "private_wrapped", "keeper", "created_ms"},
				[][]any{{backup.id, backup.tenant, backup.version, backup.public, backup.private, backup.keeper, backup.created}})
		}); err != nil {
			t.Fatal(err)
		}
		closed("restored, before the log is replayed", "")
		if _, err := e.Items.ReplayErasures(e.Ctx, custodytest.Admin, log); err != nil {
			t.Fatal(err)
		}
		closed("restored", pipeline.CodeKeyDestroyed)
	})
}

func TestSealedBytesOpenOnlyWhereTheyBelong(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		one, oneVault := s.withheld(t, 1, "one")
		two, twoVault := s.withheld(t, 2, "two")
		s.take(t, []custody.Arrival{one, two}, []custody.TakenVault{oneVault, twoVault})
		sql := e.Store.SQL(t)
		exec := func(q string, args ...any) {
			t.Helper()
			if _, err := sql.Exec(q, args...); err != nil {
				t.Fatal(err)
			}
		}
		faithful := func(what string, code pipeline.Code) {
			t.Helper()
			s.opener.Forget("acme")
			if b, err := s.items.Faithful(e.Ctx, e.Show(t, one.Letter.Item).Item); pipeline.CodeOf(err) != code {
				t.Errorf("%s: %q %v", what, b.Value, err)
			}
		}
		faithful("as it came", "")
		exec("UPDATE vault SET sealed = (SELECT sealed FROM vault WHERE item = '" + string(two.Letter.Item) + "') WHERE item = '" + string(one.Letter.Item) + "'")
		faithful("the record of another item", pipeline.CodeSealBroken)
		s.take(t, nil, []custody.TakenVault{oneVault})
		exec("UPDATE vault SET digest = 'hmac256:id1:00' WHERE item = '" + string(one.Letter.Item) + "'")
		faithful("another digest", pipeline.CodeLedgerCorrupt)
		exec("DELETE FROM vault WHERE item = '" + string(one.Letter.Item) + "'")
		faithful("gone", pipeline.CodePayloadMissing)
		e.Turn(2 * 60_000_000_000)
		v, err := e.Items.Verify(e.Ctx, custodytest.Admin, nil, nil)
		if err != nil || v.OK() || !strings.Contains(v.Findings[0].Place, "vault/"+string(one.Letter.Item)) {
			t.Errorf("%+v %v", v.Findings, err)
		}
	})
}

// A verification value was taken out of what the vault holds: it is shown as what it is, and nothing is sent of it.
func TestStrippedBytesAreNotFaithful(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		letter, _ := s.withheld(t, 1, `{"cvv":"737"}`)
		s.take(t, []custody.Arrival{letter}, []custody.TakenVault{s.vaulted(t, letter.Letter, `{"cvv":"***"}`)})
		b, err := s.items.OpenOriginal(e.Ctx, custodytest.Owner, letter.Letter.Item, "look")
		if err != nil || b.Faithful || string(b.Value) != `{"cvv":"***"}` {
			t.Errorf("%q %v %v", b.Value, b.Faithful, err)
		}
		if _, err := s.items.Faithful(e.Ctx, e.Show(t, letter.Letter.Item).Item); pipeline.CodeOf(err) != pipeline.CodePayloadUnfaithful {
			t.Error(err)
		}
	})
}

// An archive keeps what the vault held as it was: sealed, so that a destroyed key closes it too.
func TestAnArchiveKeepsTheSealedOriginal(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		letter, vault := s.withheld(t, 1, "secret "+plantedCard)
		s.take(t, []custody.Arrival{letter}, []custody.TakenVault{vault})
		e.Turn(31 * 24 * time.Hour)
		bucket := folder{}
		if x, err := e.Items.Expire(e.Ctx, custodytest.Worker, custody.Retention{Archive: bucket}, nil); err != nil || x.Expired != 1 || len(bucket) != 1 {
			t.Fatal(x, err)
		}
		if n := s.rows(t, "vault"); n != 0 {
			t.Errorf("%d sealed records are left", n)
		}
		for _, object := range bucket {
			if bytes.Contains(object, []byte(plantedCard)) {
				t.Error("the archive holds the card")
			}
			var a custody.Archived
			if err := json.Unmarshal(object, &a); err != nil || a.Original == nil {
				t.Fatalf("%s: %v", object, err)
			}
			plain, err := s.opener.Open("acme", a.Original.Enc, a.Original.Sealed, []byte(letter.Letter.Item))
			if err != nil {
				t.Fatal(err)
			}
			if _, value, _, err := deadletter.UnpackRecord(plain); err != nil || string(value) != "secret "+plantedCard {
				t.Errorf("%q %v", value, err)
			}
		}
	})
}

// A vault topic whose limit was lowered refuses what the first letter promised. A later one says so: that is no corruption.
func TestALaterLetterSaysThatTheVaultDidNotTakeItsBytes(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s := newSealing(t, e)
		letter, _ := s.withheld(t, 1, "bytes")
		s.take(t, []custody.Arrival{letter}, nil)
		e.Turn(2 * time.Minute)
		missing := func() (found []string) {
			t.Helper()
			v, err := s.items.Verify(e.Ctx, custodytest.Admin, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range v.Findings {
				found = append(found, f.Place)
			}
			return found
		}
		if got := missing(); len(got) != 1 || got[0] != "vault/"+string(letter.Letter.Item) {
			t.Fatalf("before: %q", got)
		}
		anew := *letter.Letter
		anew.Kind, anew.Faithful = deadletter.KindLetter, deadletter.Source
		forged := anew
		forged.Forged = true
		s.take(t, []custody.Arrival{custodytest.Arrival(&forged, 2)}, nil)
		if got := missing(); len(got) != 1 {
			t.Fatalf("after a letter that nobody signed: %q", got)
		}
		for range 2 {
			s.take(t, []custody.Arrival{custodytest.Arrival(&anew, 3)}, nil)
		}
		if got := missing(); len(got) != 0 {
			t.Errorf("after: %q", got)
		}
		told := 0
		for _, h := range e.Show(t, letter.Letter.Item).History {
			if h.Event == "unvaulted" {
				told++
			}
		}
		if told != 1 {
			t.Errorf("it is told %d times", told)
		}
	})
}
