package integration

import (
	"bytes"
	"path/filepath"
	"testing"

	_ "gocloud.dev/blob/fileblob" // what the program brings

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/services"
	"reprieve.dev/worker"
)

// Large payloads stand in a folder and on a server that speaks S3, come back whole, are noticed when they are gone, and go when they are
// erased.
func largePayloads(t *testing.T, url string) {
	large := func() custody.Large {
		plan := &worker.Plan{Config: &config.Worker{Custody: config.Custody{Large: config.Large{Bucket: url, Over: 1 << 10}}}}
		l, closing := plan.Large()
		t.Cleanup(closing)
		return l
	}
	e := custodytest.New(t, ledgertest.SQLite(t))
	list := e.Arrivals(0, 3)
	list[1].Letter.Value = bytes.Repeat([]byte("0123456789abcdef"), 10<<20/16) // more than one part
	list[2].Letter.Value = bytes.Repeat([]byte("z"), 2<<10)
	items := e.Again(e.DB, func(o *custody.Options) { o.Large = large() })
	if _, err := items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
		t.Fatal(err)
	}
	var inLedger int
	if err := e.Store.SQL(t).QueryRow("SELECT sum(coalesce(length(value), 0)) FROM payloads").Scan(&inLedger); err != nil || inLedger > 1<<10 {
		t.Fatalf("%d bytes stand in the ledger: %v", inLedger, err)
	}
	other := e.Again(e.DB, func(o *custody.Options) { o.Large = large() }) // another process
	for i, a := range list {
		if b, err := other.Open(e.Ctx, custodytest.Owner, a.Letter.Item, "look"); err != nil || !bytes.Equal(b.Value, a.Letter.Value) {
			t.Errorf("%d: %v", i, err)
		}
	}
	if v, err := other.Verify(e.Ctx, custodytest.Admin, nil, nil); err != nil || !v.OK() {
		t.Errorf("%+v %v", v.Findings, err)
	}
	if _, err := other.EraseItems(e.Ctx, custodytest.Admin, []pipeline.ID{list[1].Letter.Item}, "request 7"); err != nil {
		t.Fatal(err)
	}
	var objects []string
	rows, err := e.Store.SQL(t).Query("SELECT object FROM payloads WHERE object IS NOT NULL")
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, name)
	}
	if err := rows.Err(); err != nil || len(objects) != 1 {
		t.Fatal(objects, err)
	}
	if err := large().Bucket.Delete(e.Ctx, objects[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Open(e.Ctx, custodytest.Owner, list[2].Letter.Item, "look"); pipeline.CodeOf(err) != pipeline.CodePayloadMissing {
		t.Error(err)
	}
	if v, err := other.Verify(e.Ctx, custodytest.Admin, nil, nil); err != nil || len(v.Findings) != 1 || v.Findings[0].Place != "payloads/"+string(list[2].Letter.Item) {
		t.Errorf("%+v %v", v.Findings, err)
	}
}

func TestLargePayloadsStandInABucket(t *testing.T) {
	t.Run("file", func(t *testing.T) {
		largePayloads(t, "file://"+filepath.ToSlash(t.TempDir())+"?metadata=skip")
	})
	t.Run("s3", func(t *testing.T) {
		s3 := services.S3(t)
		for name, value := range s3.Environment() {
			t.Setenv(name, value)
		}
		largePayloads(t, s3.URL())
	})
}
