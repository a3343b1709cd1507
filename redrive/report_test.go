package redrive

import (
	"strings"
	"testing"

	"reprieve.dev/custody/custodytest"
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
	for _, want := range []string{"Redrive of billing, tenant acme", "3 items; 3 are in the plan", "would be sent  3", "amount         303", string(p.Digest)} {
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
