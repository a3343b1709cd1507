package redrive

import (
	"strings"
	"testing"

	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
)

func TestReportForTheOwner(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	b.target.Measures = []Measure{{Name: "amount", CEL: "view.amount_minor"}}
	b.ready(3)
	p := b.plan()
	r, err := b.svc.DryRun(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Measures) != 1 || r.Measures[0].Sum != "303" {
		t.Errorf("measures %+v", r.Measures)
	}
	text := r.Text()
	for _, want := range []string{"Redrive of billing, tenant acme", "3 items; 3 in the plan", "would be sent  3", "amount         303", string(p.Digest)} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "INV-") {
		t.Error("the report shows payload")
	}
	st, err := b.svc.Status(b.Ctx, custodytest.Operator, p.Digest)
	if err != nil || st.DryRun == nil || st.DryRun.Text() != text {
		t.Errorf("the stored report differs: %v", err)
	}
}

func TestReportCountsPartitionsInTheirOrder(t *testing.T) {
	r := &Report{Pipeline: "billing", Partitions: map[string]int64{"10": 2, "2": 1, "0": 3}}
	want := "  partition 0    3 items\n  partition 2    1 item\n  partition 10   2 items\n"
	if text := r.Text(); !strings.Contains(text, want) {
		t.Errorf("the report has not\n%sbut\n%s", want, text)
	}
}

func TestSumsAreJudged(t *testing.T) {
	for name, tamper := range map[string]bool{"Agree": false, "Differ": true} {
		t.Run(name, func(t *testing.T) {
			store := sqliteStore(t)
			b := newBench(t, store)
			b.target.Measures = []Measure{{Name: "amount", CEL: "view.amount_minor"}}
			b.ready(3)
			p := b.plan()
			b.approve(p)
			if tamper {
				if _, err := store.SQL(t).Exec(`UPDATE manifest_items SET measures = '{"amount":"9"}' WHERE n = 2`); err != nil {
					t.Fatal(err)
				}
				_, err := b.svc.Run(b.Ctx, custodytest.Operator, p.Digest)
				wantCode(t, err, pipeline.CodeRedriveMismatch)
				return
			}
			if st := b.run(p); st.State != StateDone || st.Detail != "3 of 3 reconciled; amount 303 of 303" {
				t.Errorf("%s %q", st.State, st.Detail)
			}
		})
	}
}
