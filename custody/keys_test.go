package custody_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"sync"
	"testing"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// localKeeper wraps with one AES-GCM key, as a key file does.
type localKeeper struct{ aead cipher.AEAD }

func newKeeper(t *testing.T) localKeeper {
	block, err := aes.NewCipher(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	if err != nil {
		t.Fatal(err)
	}
	return localKeeper{aead}
}

func (k localKeeper) Encrypt(_ context.Context, p []byte) ([]byte, error) {
	return k.aead.Seal(nil, nil, p, nil), nil
}

func (k localKeeper) Decrypt(_ context.Context, c []byte) ([]byte, error) {
	return k.aead.Open(nil, nil, c, nil)
}

func TestSealedLettersOpenUntilTheTenantsKeyIsDestroyed(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		keys := custody.NewKeys(e.Items, newKeeper(t), "local")
		sealer := seal.NewSealer(func(tenant string) (*seal.PublicKey, error) { return keys.Current(e.Ctx, tenant) }, seal.SealerOptions{Clock: e.Clock})
		opener := seal.NewOpener(func(tenant, kid string) (*seal.PrivateKey, error) { return keys.Private(e.Ctx, tenant, kid) }, seal.OpenerOptions{Clock: e.Clock})
		items := e.Again(e.DB, func(o *custody.Options) { o.Opener, o.Sealer = opener, sealer })
		l := e.Letter(1)
		plain := l.Value
		var err error
		if l.Value, l.Enc, err = sealer.Seal("acme", plain, []byte(l.Item)); err != nil {
			t.Fatal(err)
		}
		if _, err := items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 1)}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Items.Open(e.Ctx, custodytest.Owner, l.Item, "look"); pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
			t.Fatalf("without keys: %v", err)
		}
		if b, err := items.Open(e.Ctx, custodytest.Owner, l.Item, "look"); err != nil || !bytes.Equal(b.Value, plain) {
			t.Fatalf("%q %v", b.Value, err)
		}
		it := e.Show(t, l.Item).Item
		if b, err := items.Faithful(e.Ctx, it); err != nil || !bytes.Equal(b.Value, plain) || !b.Faithful {
			t.Fatalf("%q %v", b.Value, err)
		}
		// A repair of a sealed item is sealed too.
		e.Triage(t, l.Item)
		if err := items.Within(e.Ctx, func(tx *ledger.Tx) error {
			_, skips, err := items.StoreRepairs(tx, custodytest.Operator, []custody.NewRepair{{StoredRepair: custody.StoredRepair{Item: l.Item}, Bytes: custody.Bytes{Value: []byte("mended")}}})
			if len(skips) > 0 {
				t.Error(skips)
			}
			m, err2 := items.Lock(tx, []pipeline.ID{l.Item})
			if err != nil || err2 != nil {
				return err
			}
			b, _, err := items.RepairedBytes(tx, m[l.Item])
			if string(b.Value) != "mended" {
				t.Errorf("%q", b.Value)
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
		var stored []byte
		if err := e.Store.SQL(t).QueryRow("SELECT value FROM repair_payloads").Scan(&stored); err != nil || bytes.Contains(stored, []byte("mended")) {
			t.Fatal("the repair stands in clear", err)
		}
		if _, err := keys.Destroy(e.Ctx, custodytest.Operator, "acme", "", "left"); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
			t.Fatal(err)
		}
		if _, err := items.LegalHold(e.Ctx, custodytest.Admin, custody.One(l.Item), "case"); err != nil {
			t.Fatal(err)
		}
		if _, err := keys.Destroy(e.Ctx, custodytest.Admin, "acme", "", "left"); pipeline.CodeOf(err) != pipeline.CodeLegalHold {
			t.Fatal(err)
		}
		if _, err := items.Unhold(e.Ctx, custodytest.Admin, custody.One(l.Item), "closed"); err != nil {
			t.Fatal(err)
		}
		backup, err := keys.Private(e.Ctx, "acme", mustCurrent(t, e, keys).ID())
		if err != nil {
			t.Fatal(err)
		}
		kids, err := keys.Destroy(e.Ctx, custodytest.Admin, "acme", "", "left")
		if err != nil || len(kids) != 1 {
			t.Fatal(kids, err)
		}
		opener.Forget("acme")
		sealer.Forget("acme")
		if _, err := items.Open(e.Ctx, custodytest.Owner, l.Item, "look"); pipeline.CodeOf(err) != pipeline.CodeKeyDestroyed {
			t.Fatal(err)
		}
		// A backup of the ledger brings the row back; the erasure log takes it away again.
		if _, err := e.Store.SQL(t).Exec("INSERT INTO tenant_keys SELECT '" + kids[0] + "', 'acme', 1, hash, hash, 'local', 0 FROM history_head"); err != nil {
			t.Fatal(err)
		}
		log, err := e.Items.Erasures(e.Ctx, custodytest.Admin)
		if err != nil || len(log) != 1 || backup.ID() != kids[0] {
			t.Fatal(log, err)
		}
		if n, err := e.Items.ReplayErasures(e.Ctx, custodytest.Admin, log); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		if _, err := keys.Private(e.Ctx, "acme", kids[0]); pipeline.CodeOf(err) != pipeline.CodeKeyDestroyed {
			t.Fatal(err)
		}
		if next := mustCurrent(t, e, keys); next.ID() == kids[0] {
			t.Fatal("a version was used twice")
		}
		mustVerify(t, e)
	})
}

func mustCurrent(t *testing.T, e *custodytest.Env, keys *custody.Keys) *seal.PublicKey {
	t.Helper()
	k, err := keys.Current(e.Ctx, "acme")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestATenantHasOneFirstKeyAndRotates(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		keys := custody.NewKeys(e.Items, newKeeper(t), "local")
		var wg sync.WaitGroup
		ids := make([]string, 8)
		for i := range ids {
			wg.Go(func() {
				if k, err := keys.Current(e.Ctx, "a tenant/ü"); err != nil {
					t.Error(err)
				} else {
					ids[i] = k.ID()
				}
			})
		}
		wg.Wait()
		for _, id := range ids {
			if id != ids[0] {
				t.Fatal(ids)
			}
		}
		next, err := keys.Rotate(e.Ctx, custodytest.Admin, "a tenant/ü")
		if err != nil || next.ID() == ids[0] {
			t.Fatal(next, err)
		}
		if _, err := keys.Private(e.Ctx, "a tenant/ü", ids[0]); err != nil {
			t.Fatal("the older version opens nothing:", err)
		}
		if _, err := keys.Private(e.Ctx, "acme", ids[0]); pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
			t.Fatal("another tenant gets it:", err)
		}
		all, err := keys.Public(e.Ctx)
		if err != nil || len(all) != 1 || all[0].Key.ID() != next.ID() {
			t.Fatal(all, err)
		}
	})
}
