package custody_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// store is a bucket that may refuse.
type store struct {
	folder
	puts    int
	refuses bool
}

var errRefused = errors.New("access denied")

func (s *store) Put(ctx context.Context, name string, b []byte) error {
	if s.refuses {
		return errRefused
	}
	s.puts++
	return s.folder.Put(ctx, name, b)
}

func (s *store) Get(ctx context.Context, name string) ([]byte, error) {
	if s.refuses {
		return nil, errRefused
	}
	return s.folder.Get(ctx, name)
}

func (s *store) Delete(ctx context.Context, name string) error {
	if s.refuses {
		return errRefused
	}
	return s.folder.Delete(ctx, name)
}

// aside is custody that puts values of more than 1,000 bytes into a bucket, and letters of which every other one is so large.
func aside(e *custodytest.Env, n int64) (*store, *custody.Items, []custody.Arrival) {
	s := &store{folder: folder{}}
	list := e.Arrivals(0, n)
	for i := range list {
		size := 1000
		if i%2 == 1 {
			size = 5000
		}
		l := list[i].Letter
		l.Value = append(l.Value, bytes.Repeat([]byte("x"), size-len(l.Value))...)
		l.DigestFaithful = pipeline.Digest(e.Identity.Digest(l.Value))
	}
	return s, e.Again(e.DB, func(o *custody.Options) { o.Large = custody.Large{Bucket: s, Over: 1000} }), list
}

func TestLargeValuesStandInTheBucket(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s, items, list := aside(e, 6)
		for range 2 { // repeated, it puts nothing again
			if _, err := items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
				t.Fatal(err)
			}
			if len(s.folder) != 3 || s.puts != 3 {
				t.Fatalf("%d objects, put %d times", len(s.folder), s.puts)
			}
			for i := range list { // as it would be read again
				list[i] = custodytest.Arrival(list[i].Letter, int64(i))
			}
		}
		var inLedger int
		if err := e.Store.SQL(t).QueryRow("SELECT sum(coalesce(length(value), 0)) FROM payloads").Scan(&inLedger); err != nil || inLedger != 3000 {
			t.Fatal(inLedger, err)
		}
		it := e.Show(t, list[1].Letter.Item).Item
		for what, read := range map[string]func() (custody.Bytes, error){
			"open":     func() (custody.Bytes, error) { return items.Open(e.Ctx, custodytest.Owner, it.ID, "look") },
			"faithful": func() (custody.Bytes, error) { return items.Faithful(e.Ctx, it) },
			"a redrive's window": func() (b custody.Bytes, err error) {
				err = e.DB.Read(e.Ctx, func(tx *ledger.Tx) error {
					found, failed, err := items.WindowBytes(tx, []*custody.Item{it}, nil)
					b = found[it.ID]
					return errors.Join(err, failed[it.ID])
				})
				return b, err
			},
		} {
			if b, err := read(); err != nil || !bytes.Equal(b.Value, list[1].Letter.Value) || len(b.Headers) != 3 {
				t.Errorf("%s: %d bytes, %v", what, len(b.Value), err)
			}
		}
		var out bytes.Buffer
		if n, err := items.Export(e.Ctx, custodytest.Owner, selection(t, ""), custody.ExportOptions{Payloads: true, Reason: "an audit"}, &out); err != nil || n != 6 || strings.Count(out.String(), strings.Repeat("x", 4000)) != 3 {
			t.Error(n, err)
		}
		verify := func(place string) {
			t.Helper()
			v, err := items.Verify(e.Ctx, custodytest.Admin, nil, nil)
			if err != nil || place == "" && !v.OK() || place != "" && (len(v.Findings) != 1 || v.Findings[0].Place != place) {
				t.Errorf("%+v %v", v.Findings, err)
			}
		}
		verify("")

		// A process that does not know the bucket says so; it does not take the value for lost.
		if _, err := e.Items.Open(e.Ctx, custodytest.Owner, it.ID, "look"); pipeline.CodeOf(err) != pipeline.CodePayloadUnavailable {
			t.Error(err)
		}
		s.refuses = true
		if _, err := items.Open(e.Ctx, custodytest.Owner, it.ID, "look"); pipeline.CodeOf(err) != pipeline.CodePayloadUnavailable {
			t.Error(err)
		}
		if _, err := items.Verify(e.Ctx, custodytest.Admin, nil, nil); pipeline.CodeOf(err) != pipeline.CodePayloadUnavailable {
			t.Error(err)
		}
		s.refuses = false

		// What somebody does to an object shows.
		name := objectOf(t, s, it.ID)
		was := s.folder[name]
		s.folder[name] = append(slices.Clone(was[:len(was)-1]), 'y')
		if _, err := items.Open(e.Ctx, custodytest.Owner, it.ID, "look"); pipeline.CodeOf(err) != pipeline.CodeLedgerCorrupt {
			t.Error(err)
		}
		verify("payloads/" + string(it.ID))
		delete(s.folder, name)
		if _, err := items.Open(e.Ctx, custodytest.Owner, it.ID, "look"); pipeline.CodeOf(err) != pipeline.CodePayloadMissing {
			t.Error(err)
		}
		verify("payloads/" + string(it.ID))
		s.folder[name] = was
		verify("")
	})
}

func objectOf(t *testing.T, s *store, id pipeline.ID) string {
	t.Helper()
	for name := range maps.Keys(s.folder) {
		if strings.Contains(name, string(id)) {
			return name
		}
	}
	t.Fatalf("%s has no object", id)
	return ""
}

func TestObjectsGoWithTheirItems(t *testing.T) {
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		s, items, list := aside(e, 6)
		s.refuses = true // the bucket is away: custody goes on without it
		if _, err := items.Admit(e.Ctx, custodytest.Worker, list[4:]); err != nil {
			t.Fatal(err)
		}
		s.refuses = false
		if b, err := e.Items.Open(e.Ctx, custodytest.Owner, list[5].Letter.Item, "look"); err != nil || !bytes.Equal(b.Value, list[5].Letter.Value) {
			t.Fatal(err)
		}
		if _, err := items.Admit(e.Ctx, custodytest.Worker, list[:4]); err != nil || len(s.folder) != 2 {
			t.Fatal(len(s.folder), err)
		}

		// An erasure that cannot reach the bucket says so, and goes on where it was when it is said again.
		id := list[1].Letter.Item
		s.refuses = true
		if x, err := items.EraseItems(e.Ctx, custodytest.Admin, []pipeline.ID{id}, "request 7"); pipeline.CodeOf(err) != pipeline.CodePayloadUnavailable || x.Items != 1 || len(s.folder) != 2 {
			t.Fatalf("%+v %v", x, err)
		}
		s.refuses = false
		if x, err := items.EraseItems(e.Ctx, custodytest.Admin, []pipeline.ID{id}, "request 7"); err != nil || x.Previous != 1 || len(s.folder) != 1 {
			t.Fatalf("%+v %v %d", x, err, len(s.folder))
		}
		if _, err := items.Admit(e.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(list[1].Letter, 1), custodytest.Arrival(list[1].Letter, 99)}); err != nil || len(s.folder) != 1 {
			t.Fatalf("it came back: %d %v", len(s.folder), err)
		}

		// One that expires is archived whole first.
		e.Turn(31 * 24 * time.Hour)
		archive := folder{}
		if x, err := items.Expire(e.Ctx, custodytest.Admin, custody.Retention{Archive: archive}, nil); err != nil || x.Expired != 5 || len(s.folder) != 0 || len(archive) != 5 {
			t.Fatalf("%+v %v: %d left, %d archived", x, err, len(s.folder), len(archive))
		}
		if text, err := items.ReadArchive(e.Ctx, custodytest.Owner, archive, list[3].Letter.Item, "an audit"); err != nil || !bytes.Contains(text, bytes.Repeat([]byte("x"), 4000)) {
			t.Error(err)
		}
		mustVerify(t, e)
	})
}

// The custodian brings large letters into the bucket, and custody reads them back.
func TestTheCustodianPutsLargeValuesAside(t *testing.T) {
	ledgertest.Each(t, func(t *testing.T, st ledgertest.Store) {
		l := newLab(t, st)
		s, items, list := aside(l.Env, 8)
		for i := range list {
			m := &pipeline.Message{Topic: dlq}
			if err := deadletter.Append(m, list[i].Letter, deadletter.Profiles{}, l.Ring); err != nil {
				t.Fatal(err)
			}
			l.put(m, int32(i%2))
		}
		k, src := l.custodian(items)
		stop := run(k)
		l.passed(k)
		if err := stop(); err != nil {
			t.Fatal(err)
		}
		src.Close()
		if len(s.folder) != 4 {
			t.Errorf("%d objects", len(s.folder))
		}
		for i := range list {
			if b, err := items.Open(l.Ctx, custodytest.Owner, list[i].Letter.Item, "look"); err != nil || !bytes.Equal(b.Value, list[i].Letter.Value) {
				t.Errorf("%d: %v", i, err)
			}
		}
	})
}
