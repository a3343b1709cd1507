package custody_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
)

// Every earlier version of the ledger is brought to this one with the data that it held. testdata/ledger-vN.jsonl is what the program of
// version N wrote into a ledger of its own, a row a line: a version that has no such file is a failure.
func TestEveryEarlierVersionIsMigratedWithItsData(t *testing.T) {
	for name, open := range map[string]func(testing.TB) ledgertest.Store{"sqlite": ledgertest.SQLite, "postgres": ledgertest.EmptyPostgres} {
		t.Run(name, func(t *testing.T) {
			db := open(t).Open(t, ledger.Options{Clock: time.Now})
			_, newest, err := db.Version(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for v := int64(1); v < newest; v++ {
				t.Run(fmt.Sprint("from ", v), func(t *testing.T) {
					s := open(t)
					rows := fillVersion(t, s, v)
					e := custodytest.New(t, s)
					db := s.SQL(t)
					for table, want := range rows {
						var n int
						if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != want {
							t.Errorf("%s has %d rows of %d: %v", table, n, want, err)
						}
					}
					mustVerify(t, e)
					checkWhatCameLater(t, e, v)
					checkVersion1(t, e)
				})
			}
		})
	}
}

// fillVersion makes a ledger of a version and puts the rows in that it wrote. It returns how many, by table.
func fillVersion(t *testing.T, s ledgertest.Store, version int64) map[string]int {
	t.Helper()
	rows := map[string]int{}
	db := s.Open(t, ledger.Options{Clock: time.Now, UpTo: version})
	f, err := os.Open(filepath.Join("testdata", fmt.Sprintf("ledger-v%d.jsonl", version)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	err = db.Write(t.Context(), func(tx *ledger.Tx) error {
		if _, err := tx.Exec("DELETE FROM history_head"); err != nil {
			return err
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var line struct {
				Table string         `json:"table"`
				Row   map[string]any `json:"row"`
			}
			dec := json.NewDecoder(strings.NewReader(lines.Text()))
			dec.UseNumber()
			if err := dec.Decode(&line); err != nil {
				return err
			}
			cols := slices.Sorted(maps.Keys(line.Row))
			args := make([]any, len(cols))
			for i, c := range cols {
				switch v := line.Row[c].(type) {
				case json.Number:
					if args[i], err = v.Int64(); err != nil {
						return err
					}
				case map[string]any:
					if args[i], err = base64.StdEncoding.DecodeString(v["base64"].(string)); err != nil {
						return err
					}
				default:
					args[i] = v
				}
			}
			if week, ok := line.Row["week"].(json.Number); ok {
				n, err := week.Int64()
				if err != nil {
					return err
				}
				if err := tx.PayloadWeek(n); err != nil {
					return err
				}
			}
			if _, err := tx.Exec("INSERT INTO "+line.Table+" ("+strings.Join(cols, ", ")+") VALUES (?"+strings.Repeat(", ?", len(cols)-1)+")", args...); err != nil {
				return fmt.Errorf("%s: %w", line.Table, err)
			}
			rows[line.Table]++
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// checkWhatCameLater looks at a redrive that was done and one that was only approved, and at what only some versions could write: a
// split group (2), a sealed original (4), a permission taken for minutes, a notice and an archived item (5).
func checkWhatCameLater(t *testing.T, e *custodytest.Env, version int64) {
	t.Helper()
	for n := int64(20); n < 24; n++ {
		if it := e.Show(t, e.Letter(n).Item).Item; it.State != custody.Reconciled || it.Try != 1 {
			t.Errorf("%d: %+v", n, it)
		}
	}
	for n := int64(30); n < 33; n++ {
		if it := e.Show(t, e.Letter(n).Item).Item; it.State != custody.Triaged || it.Try != 0 {
			t.Errorf("%d: %+v", n, it)
		}
	}
	if it := e.Show(t, e.Letter(4).Item).Item; (it.Group() != it.Fingerprint) != (version >= 2) {
		t.Errorf("its group is %s, its fingerprint %s", it.Group(), it.Fingerprint)
	}
	if version >= 4 {
		b, err := newSealing(t, e).items.OpenOriginal(e.Ctx, custodytest.Owner, e.Letter(40).Item, "look")
		if err != nil || string(b.Value) != `{"card":"`+plantedCard+`"}` || !b.Faithful {
			t.Errorf("%q %v", b.Value, err)
		}
	}
	if version >= 5 {
		if it := e.Show(t, e.Letter(41).Item).Item; it.State != custody.Expired || it.Flags&custody.FlagExpired == 0 {
			t.Errorf("%+v", it)
		}
	}
	if version >= 6 {
		checkAWindowOnItsWay(t, e)
	}
}

// checkAWindowOnItsWay looks at a redrive whose items were forwarded, had failed, were sent and could not be sent: what is looked for is found, and what is
// still on its way arrives.
func checkAWindowOnItsWay(t *testing.T, e *custodytest.Env) {
	t.Helper()
	proposed, err := e.Items.Extensions(e.Ctx, custodytest.Admin, false)
	if err != nil || len(proposed) != 1 || proposed[0].Author != "pia" {
		t.Errorf("%+v %v", proposed, err)
	}
	watched := func(state string, mark int) []int64 {
		t.Helper()
		var out []int64
		if err := e.Items.Within(e.Ctx, func(tx *ledger.Tx) error {
			return tx.Each("SELECT n FROM manifest_items WHERE manifest = 'sha256:bb' AND state = ? AND watched = ? ORDER BY n", []any{state, mark}, func(scan func(...any) error) error {
				var n int64
				err := scan(&n)
				out = append(out, n)
				return err
			})
		}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	if f, x, s := watched("forwarded", custody.WatchedForwarded), watched("failed", custody.WatchedFailed), watched("sent", 0); !slices.Equal(f, []int64{1}) || !slices.Equal(x, []int64{2, 4}) || !slices.Equal(s, []int64{3}) {
		t.Errorf("forwarded %v, failed %v, sent %v", f, x, s)
	}
	var list []custody.TakenOutcome
	for _, n := range []int64{50, 52} {
		list = append(list, custody.TakenOutcome{Outcome: pipeline.Outcome{Item: e.Letter(n).Item, Redrive: "sha256:bb", Try: 1, Result: pipeline.Applied, Writer: "w"}})
	}
	if err := e.Items.Outcomes(e.Ctx, custodytest.Worker, list); err != nil {
		t.Fatal(err)
	}
	if done := watched("reconciled", 0); !slices.Equal(done, []int64{1, 3}) {
		t.Errorf("reconciled %v", done)
	}
}

// checkVersion1 looks at what version 1 knew of twelve items, each in another state.
func checkVersion1(t *testing.T, e *custodytest.Env) {
	t.Helper()
	list := e.Arrivals(0, 12)
	item := func(n int) *custody.Item { t.Helper(); return e.Show(t, list[n].Letter.Item).Item }
	if it := item(0); it.Owner != "finance" || it.State != custody.Triaged || it.DigestFaithful != list[0].Letter.DigestFaithful || it.LastSeenMS != it.QuarantinedMS || it.ChangedMS <= it.TakenMS {
		t.Errorf("%+v", it)
	}
	if it := item(1); it.At != (pipeline.Position{TP: pipeline.TP{Topic: "billing.invoices.v1.retry", Partition: 1}, Offset: 77}) || it.LegalHold != "case 1" || it.Attempts != 2 {
		t.Errorf("%+v", it)
	}
	if it := item(2); it.Generation != 3 || it.State != custody.Discarded {
		t.Errorf("%+v", it)
	}
	if it := item(3); it.State != custody.PolicyHold || e.Show(t, it.ID).Stack != "at a\nat b" {
		t.Errorf("%+v", it)
	}
	if it := item(6); it.DigestFaithful != "" || it.At != it.Original {
		t.Errorf("%+v", it)
	}
	if it := item(7); it.Sightings != 2 || it.LastSeenMS != it.QuarantinedMS+99_000 {
		t.Errorf("%+v", it)
	}
	if it := item(8); it.ExpiresMS != custodytest.Start.Add(60*24*time.Hour).UnixMilli() || it.Confirmed != custody.IsConfirmed {
		t.Errorf("%+v", it)
	}
	if it := item(9); it.State != custody.Reconciled || it.Resolution != custody.ResolvedApplied {
		t.Errorf("%+v", it)
	}
	if it := item(10); it.State != custody.Redriving || it.Redrive != manifest {
		t.Errorf("%+v", it)
	}
	// It goes on: the same letters are known, new ones come, bytes are faithful.
	got, err := e.Items.Admit(e.Ctx, custodytest.Worker, e.Arrivals(8, 14))
	if err != nil || got != (custody.Admitted{New: 2, Repeated: 4}) {
		t.Error(got, err)
	}
	if b, err := e.Items.Faithful(e.Ctx, item(0)); err != nil || string(b.Value) != string(list[0].Letter.Value) {
		t.Error(err)
	}
	mustVerify(t, e)
}
