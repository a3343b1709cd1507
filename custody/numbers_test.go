package custody_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
)

// Numbers beyond 2^53 keep their digits in what is shown and in what is found: no reader of JSON may round them.
func TestCaseC59NumbersKeepTheirDigits(t *testing.T) {
	data, err := os.ReadFile("testdata/c59_item.json")
	if err != nil {
		t.Fatal(err)
	}
	var in struct {
		Source struct{ Offset int64 }
		Value  json.RawMessage
		Schema json.Number `json:"schema_id"`
	}
	if err := json.Unmarshal(data, &in); err != nil || in.Source.Offset != 9007199254740993 {
		t.Fatal(in.Source.Offset, err)
	}
	custodytest.Each(t, func(t *testing.T, e *custodytest.Env) {
		var list []custody.Arrival
		for n := range int64(2) { // the neighbour is what a rounded offset would find
			l := e.Letter(n)
			l.Original.Offset, l.Schema, l.Value = in.Source.Offset-n, "avro:"+in.Schema.String(), in.Value
			list = append(list, custodytest.Arrival(l, in.Source.Offset-n))
		}
		if _, err := e.Items.Admit(e.Ctx, custodytest.Worker, list); err != nil {
			t.Fatal(err)
		}
		for i, offset := range []string{"9007199254740993", "9007199254740992"} {
			sel, err := custody.ParseSelection("topic=billing.invoices.v1 offset=" + offset)
			if err != nil {
				t.Fatal(err)
			}
			found, err := e.Items.Find(e.Ctx, custodytest.Operator, sel, custody.Page{})
			if err != nil || len(found.Items) != 1 || found.Items[0].ID != list[i].Letter.Item {
				t.Fatal(offset, found, err)
			}
			shown, err := json.Marshal(found.Items[0].Form())
			if err != nil {
				t.Fatal(err)
			}
			for _, text := range []string{`"offset":"` + offset + `"`, `/` + offset + `"`, `"schema":"avro:2147483647"`} {
				if !strings.Contains(string(shown), text) {
					t.Errorf("%s is not in %s", text, shown)
				}
			}
		}
		b, err := e.Items.Open(e.Ctx, custodytest.Owner, list[0].Letter.Item, "a look")
		if err != nil || string(b.Value) != string(in.Value) {
			t.Fatal(string(b.Value), err)
		}
	})
}
