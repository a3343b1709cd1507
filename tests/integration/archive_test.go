package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"testing"
	"time"

	_ "gocloud.dev/blob/s3blob" // what the build tag cloud brings

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/services"
	"reprieve.dev/worker"
)

// archiveOf opens a bucket as custody.retention.archive names it.
func archiveOf(t *testing.T, url string) custody.Bucket {
	t.Helper()
	plan := &worker.Plan{Config: &config.Worker{Custody: config.Custody{Retention: config.Retention{Archive: url}}}}
	bucket, closing, err := plan.Archive(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(closing)
	return bucket
}

// Items that are over go to a server that speaks S3 before their payloads are dropped, come back whole, are noticed when the object was
// changed, and go for good when they are erased. What the server refuses keeps its payload.
func TestExpiredItemsAreArchivedOnS3(t *testing.T) {
	s3 := services.S3(t)
	for name, value := range s3.Environment() {
		t.Setenv(name, value)
	}
	bucket := archiveOf(t, s3.URL())
	e := custodytest.New(t, ledgertest.SQLite(t))
	list := e.Arrivals(0, 12)
	large := bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16) // more than one part
	list[3].Letter.Value = large
	if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
		t.Fatal(err)
	}
	who := custodytest.Admin
	kept := list[5].Letter.Item
	if _, err := e.Items.LegalHold(e.Ctx, who, custody.One(kept), "case 1"); err != nil {
		t.Fatal(err)
	}
	e.Turn(31 * 24 * time.Hour)

	t.Setenv("AWS_SECRET_ACCESS_KEY", "not-the-secret")
	refused := archiveOf(t, s3.URL())
	if x, err := e.Items.Expire(e.Ctx, who, custody.Retention{Archive: refused}, nil); pipeline.CodeOf(err) != pipeline.CodeArchiveFailed || x != (custody.Expiry{}) {
		t.Fatalf("a bucket that refuses: %+v %v", x, err)
	}
	if _, err := e.Items.Open(e.Ctx, who, list[0].Letter.Item, "look"); err != nil {
		t.Fatalf("the payload went though the bucket refused it: %v", err)
	}

	if x, err := e.Items.Expire(e.Ctx, who, custody.Retention{Archive: bucket}, nil); err != nil || x != (custody.Expiry{Expired: 11, Held: 1}) {
		t.Fatalf("%+v %v", x, err)
	}
	for i, a := range list {
		id := a.Letter.Item
		if id == kept {
			continue
		}
		if _, err := e.Items.Open(e.Ctx, who, id, "look"); pipeline.CodeOf(err) != pipeline.CodePayloadMissing {
			t.Errorf("%d: the ledger still has its payload: %v", i, err)
		}
		text, err := e.Items.ReadArchive(e.Ctx, who, bucket, id, "the customer asks")
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		var got struct {
			ID     string
			Record struct{ Value struct{ Text string } }
		}
		if err := json.Unmarshal(text, &got); err != nil || got.ID != string(id) || got.Record.Value.Text != string(a.Letter.Value) {
			t.Errorf("%d: it came back otherwise: %.200s %v", i, text, err)
		}
	}
	object := func(id pipeline.ID) string {
		var name string
		if err := e.Store.SQL(t).QueryRow("SELECT object FROM archives WHERE item = '" + string(id) + "'").Scan(&name); err != nil {
			t.Fatal(err)
		}
		return name
	}
	changed := list[7].Letter.Item
	text, err := bucket.Get(e.Ctx, object(changed))
	if err != nil {
		t.Fatal(err)
	}
	if err := bucket.Put(e.Ctx, object(changed), bytes.Replace(text, []byte("INV-7"), []byte("INV-8"), 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := e.Items.ReadArchive(e.Ctx, who, bucket, changed, "look"); pipeline.CodeOf(err) != pipeline.CodeLedgerCorrupt {
		t.Errorf("a changed object: %v", err)
	}
	if _, err := os.Stat(s3.File(object(list[3].Letter.Item))); err != nil {
		t.Errorf("the server does not have it: %v", err)
	}

	erased := list[3].Letter.Item
	if _, err := e.Items.EraseItems(e.Ctx, who, []pipeline.ID{erased}, "request 7"); err != nil {
		t.Fatal(err)
	}
	if left, err := e.Items.Unarchive(e.Ctx, who, refused); pipeline.CodeOf(err) != pipeline.CodeArchiveFailed || left != 1 {
		t.Errorf("a bucket that refuses to delete: %d left, %v", left, err)
	}
	name := object(erased)
	if left, err := e.Items.Unarchive(e.Ctx, who, bucket); err != nil || left != 0 {
		t.Fatalf("%d left, %v", left, err)
	}
	if _, err := os.Stat(s3.File(name)); !os.IsNotExist(err) {
		t.Errorf("the server still has the erased item: %v", err)
	}
	if err := bucket.Delete(e.Ctx, name); err != nil {
		t.Errorf("an object that is gone is deleted again: %v", err)
	}
	if n := fmt.Sprint(object(changed)); n == "" {
		t.Error("the others lost their archive")
	}
}
