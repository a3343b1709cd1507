package decide

import (
	"hash/fnv"
	"testing"

	"reprieve.dev/pipeline"
)

func TestTheSpreadOfACanaryIsFNV(t *testing.T) {
	for _, s := range []string{"", "a", "sha256:00", "billing.invoices.v1"} {
		h := fnv.New32a()
		h.Write([]byte(s))
		if got := fnv32a(2166136261, s); got != h.Sum32() {
			t.Errorf("%q: %d, want %d", s, got, h.Sum32())
		}
	}
}

func TestChoosingAVersionAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	set := Set{Active: load(t, "policy: a", usual), Canary: load(t, "policy: b", usual), Share: 50}
	tp := pipeline.TP{Topic: "billing.invoices.v1", Partition: 3}
	if n := testing.AllocsPerRun(100, func() { set.For(tp) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAPolicySaysWhatItReads(t *testing.T) {
	p := load(t, `
reject:
  - {name: a, when: 'view.currency == "XXX" || view.lines[0].amount > 5'}
  - {name: b, when: 'topic == "x"'}
  - {name: c, when: 'has(view.note) && view.note.text == ""'}
`, usual)
	got := p.Reads()
	if len(got) != 1 || len(got["reject[0].when"]) != 2 || got["reject[0].when"][0].Text != "/currency" || got["reject[0].when"][1].Text != "/lines/0/amount" {
		t.Errorf("got %v", got)
	}
	if reject, decide := p.Rules(); reject != 3 || decide != 0 {
		t.Errorf("%d and %d rules", reject, decide)
	}
}
