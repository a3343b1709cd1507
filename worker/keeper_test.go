package worker_test

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "gocloud.dev/secrets/hashivault"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
	"reprieve.dev/tests/services"
	"reprieve.dev/worker"
)

func keeperPlan(dir string, k config.Keeper) *worker.Plan {
	return &worker.Plan{File: filepath.Join(dir, "reprieve.yaml"), Config: &config.Worker{Keys: config.Keys{Keeper: k}}}
}

// works makes, uses, rotates and destroys keys that the keeper of plan wraps.
func works(t *testing.T, plan *worker.Plan) {
	t.Helper()
	e := custodytest.New(t, ledgertest.SQLite(t))
	v := plan.OpenVault(t.Context(), e.Items, e.Clock)
	defer v.Close()
	if err := v.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := v.Sealer.Seal("acme", []byte("x"), []byte("q")); pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
		t.Errorf("sealed without a key: %v", err)
	}
	if _, err := v.Keys.OfPipeline(t.Context(), "billing"); err != nil {
		t.Fatal(err)
	}
	sealed, enc, err := v.Sealer.Seal("acme", []byte("for nobody yet"), []byte("q1"))
	if err != nil {
		t.Fatal(err)
	}
	first, err := v.Keys.Current(t.Context(), "acme")
	if err != nil {
		t.Fatal(err)
	}
	v.Forget("acme")
	sealed2, enc2, err := v.Sealer.Seal("acme", []byte("for acme"), []byte("q2"))
	if err != nil {
		t.Fatal(err)
	}
	open := func(enc string, sealed []byte, item, want string, code pipeline.Code) {
		t.Helper()
		v.Forget("acme")
		got, err := v.Opener.Open("acme", enc, sealed, []byte(item))
		if string(got) != want || pipeline.CodeOf(err) != code {
			t.Errorf("%q %v", got, err)
		}
	}
	open(enc, sealed, "q1", "for nobody yet", "")
	open(enc2, sealed2, "q2", "for acme", "")
	next, err := v.Keys.Rotate(t.Context(), custodytest.Admin, "acme")
	if err != nil {
		t.Fatal(err)
	}
	open(enc2, sealed2, "q2", "for acme", "")
	kids, err := v.Keys.Destroy(t.Context(), custodytest.Admin, "acme", next.ID(), "left")
	if err != nil || len(kids) != 1 || kids[0] != first.ID() {
		t.Fatal(kids, err)
	}
	open(enc2, sealed2, "q2", "", pipeline.CodeKeyDestroyed)
	open(enc, sealed, "q1", "for nobody yet", "") // a pipeline's key: no erasure of a tenant reaches it
	var wrapped []byte
	if err := e.Store.SQL(t).QueryRow("SELECT private_wrapped FROM tenant_keys WHERE id = ?", next.ID()).Scan(&wrapped); err != nil || len(wrapped) < 33 {
		t.Fatal("the private key is not wrapped", err)
	}
	if n, err := v.Keys.List(t.Context(), custodytest.Viewer); err != nil || len(n) != 2 {
		t.Error(n, err)
	}
	if _, err := v.Keys.Destroy(t.Context(), custodytest.Admin, "pipeline billing", "", "x"); pipeline.CodeOf(err) != pipeline.CodeKeyUnknown {
		t.Error(err)
	}
	if _, err := v.Keys.Current(t.Context(), pipeline.TenantUnassigned); pipeline.CodeOf(err) != pipeline.CodeInputInvalid || custody.HasKey("pipeline x") {
		t.Error(err)
	}
}

func TestAFileKeepsKeys(t *testing.T) {
	dir := t.TempDir()
	if err := seal.WriteSecret(filepath.Join(dir, "keeper"), 32); err != nil {
		t.Fatal(err)
	}
	works(t, keeperPlan(dir, config.Keeper{File: "keeper"}))
}

func TestAVaultKeepsKeys(t *testing.T) {
	bao := services.OpenBao(t)
	if err := bao.Key("reprieve"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VAULT_SERVER_URL", bao.URL)
	t.Setenv("VAULT_SERVER_TOKEN", bao.Token)
	works(t, keeperPlan(t.TempDir(), config.Keeper{URL: "hashivault://reprieve"}))
	e := custodytest.New(t, ledgertest.SQLite(t))
	v := keeperPlan(t.TempDir(), config.Keeper{URL: "hashivault://reprieve?engine=nowhere"}).OpenVault(t.Context(), e.Items, time.Now)
	defer v.Close()
	if _, err := v.Keys.Current(t.Context(), "acme"); pipeline.CodeOf(err) != pipeline.CodeSealFailed {
		t.Errorf("a vault that refuses: %v", err)
	}
}

func TestAKeeperThatCannotBeHadSaysWhy(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
			t.Fatal(err)
		}
	}
	whole := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	write("open", whole, 0o644)
	write("short", whole[:20], 0o600)
	for _, c := range []struct {
		keeper config.Keeper
		code   pipeline.Code
	}{
		{config.Keeper{}, pipeline.CodeConfigMissing}, {config.Keeper{File: "none"}, pipeline.CodeConfigRead}, {config.Keeper{File: "open"}, pipeline.CodeConfigUnsafe},
		{config.Keeper{File: "short"}, pipeline.CodeConfigValue}, {config.Keeper{URL: "nowhere://key"}, pipeline.CodeConfigValue},
	} {
		if _, _, err := keeperPlan(dir, c.keeper).Keeper(t.Context()); pipeline.CodeOf(err) != c.code {
			t.Errorf("%+v: %v, want %s", c.keeper, err, c.code)
		}
	}
}
