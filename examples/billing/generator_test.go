package billing_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

func decoders(t testing.TB) (invoices, adjustments *codec.Decoder, schema *codec.Schema) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "7.avsc"), []byte(billing.Schema()), 0o600); err != nil {
		t.Fatal(err)
	}
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	invoices, err = codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, reg)
	if err != nil {
		t.Fatal(err)
	}
	adjustments, err = codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	schema, f := reg.ByID(context.Background(), 7)
	if f != nil {
		t.Fatal(f.Reason())
	}
	return invoices, adjustments, schema
}

func generator() billing.Generator {
	return billing.Generator{Seed: 42, Count: 3000, Poison: 0.05, Secrets: 0.02, Partitions: 12, SchemaID: 7}
}

func field(t *testing.T, v pipeline.View, path string) string {
	t.Helper()
	p, err := pipeline.NewPath(path)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := v.Get(p)
	if !ok {
		t.Fatalf("no %s", path)
	}
	return string(got.AppendText(nil))
}

func TestInvoicesAreWhatTheirLabelsSay(t *testing.T) {
	decoder, _, schema := decoders(t)
	scratch := codec.NewScratch()
	g := generator()
	n := map[billing.Defect]int{}
	events := map[string]bool{}
	cards, bearers, bytesTotal := 0, 0, 0
	for m, l := range g.Invoices() {
		scratch.Reset()
		n[l.Defect]++
		bytesTotal += len(m.Value)
		v, f := decoder.Decode(t.Context(), scratch, m.Value, m.Headers)
		bearer := len(m.Headers) == 1 && string(m.Headers[0].Value) == billing.BearerHeader
		if bearer != l.Bearer {
			t.Fatalf("invoice %d: bearer %v, label %+v", l.I, bearer, l)
		}
		if l.Bearer {
			bearers++
		}
		switch l.Defect {
		case billing.Truncated, billing.Leftover, billing.UnknownSchema:
			if f == nil || f.Code != l.Defect.Code() {
				t.Fatalf("invoice %d: %v, label %+v", l.I, f, l)
			}
			continue
		}
		if f != nil {
			t.Fatalf("invoice %d: %s", l.I, f.Reason())
		}
		text, err := v.AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		if l.I < 200 {
			again, err := codec.EncodeAvro(schema, text)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(again, m.Value) {
				t.Fatalf("invoice %d: another encoder writes other bytes for %s", l.I, text)
			}
		}
		var doc struct {
			Key     string `json:"account_id"`
			EventID string `json:"event_id"`
			Status  string `json:"account_status"`
			Net     int64  `json:"net_minor"`
			Disc    int64  `json:"discount_minor"`
			Tax     int64  `json:"tax_minor"`
			Amount  int64  `json:"amount_minor"`
			Lines   []struct {
				Quantity int64
				Unit     int64 `json:"unit_minor"`
				Amount   int64 `json:"amount_minor"`
			}
			Currency string
		}
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for _, x := range doc.Lines {
			sum += x.Amount
			if x.Amount != x.Unit*x.Quantity {
				t.Fatalf("invoice %d: a line does not add up", l.I)
			}
		}
		if sum != doc.Net || doc.Net-doc.Disc+doc.Tax != doc.Amount {
			t.Fatalf("invoice %d does not add up: %+v", l.I, doc)
		}
		if (doc.Amount > 1_000_000) != l.Large {
			t.Fatalf("invoice %d: amount %d, label %+v", l.I, doc.Amount, l)
		}
		if string(m.Key) != doc.Key || m.Partition != pipeline.Partition(m.Key, 12) || m.Topic != billing.InvoicesTopic {
			t.Fatalf("invoice %d: key %s, partition %d", l.I, m.Key, m.Partition)
		}
		if (doc.Status != "ACTIVE") != (l.Defect == billing.InactiveProfile) {
			t.Fatalf("invoice %d: %s, label %+v", l.I, doc.Status, l)
		}
		known := map[string]bool{"EUR": true, "USD": true, "GBP": true, "CHF": true}
		if known[doc.Currency] == (l.Defect == billing.InvalidCurrency) {
			t.Fatalf("invoice %d: %s, label %+v", l.I, doc.Currency, l)
		}
		card := bytes.Contains(text, []byte(billing.CardNumber)) || bytes.Contains(text, []byte(billing.CardSpaced))
		if card != l.Card {
			t.Fatalf("invoice %d: card %v, label %+v", l.I, card, l)
		}
		if l.Card {
			cards++
		}
		if tenant := field(t, v, "/tenant"); tenant != "acme" && tenant != "globex" {
			t.Fatalf("tenant %q", tenant)
		}
		if events[doc.EventID] {
			t.Fatalf("event id %s stands twice", doc.EventID)
		}
		events[doc.EventID] = true
	}
	want := map[billing.Defect]int{billing.None: 2850, billing.Truncated: 30, billing.Leftover: 30, billing.UnknownSchema: 30, billing.InactiveProfile: 30, billing.InvalidCurrency: 30}
	if d := cmp.Diff(want, n); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want, g.Counts()); d != "" {
		t.Error(d)
	}
	if cards < 20 || bearers != 30 {
		t.Errorf("%d cards in readable records, %d bearers", cards, bearers)
	}
	if mean := bytesTotal / g.Count; mean < 1100 || mean > 1350 {
		t.Errorf("an invoice has %d bytes", mean)
	}
}

func TestAdjustmentsAreWhatTheirLabelsSay(t *testing.T) {
	_, decoder, _ := decoders(t)
	scratch := codec.NewScratch()
	g := generator()
	n := map[billing.Defect]int{}
	for m, l := range g.Adjustments() {
		scratch.Reset()
		n[l.Defect]++
		v, f := decoder.Decode(t.Context(), scratch, m.Value, m.Headers)
		if l.Defect == billing.InvalidJSON {
			if f == nil || f.Code != l.Defect.Code() {
				t.Fatalf("adjustment %d: %v for %s", l.I, f, m.Value)
			}
			continue
		}
		if f != nil {
			t.Fatalf("adjustment %d: %s in %s", l.I, f.Reason(), m.Value)
		}
		if (field(t, v, "/account_status") != "ACTIVE") != (l.Defect == billing.InactiveProfile) {
			t.Fatalf("adjustment %d: label %+v for %s", l.I, l, m.Value)
		}
		if field(t, v, "/account_id") != string(m.Key) {
			t.Fatalf("adjustment %d: key %s", l.I, m.Key)
		}
	}
	want := map[billing.Defect]int{billing.None: 2850, billing.InvalidJSON: 50, billing.InactiveProfile: 50, billing.InvalidCurrency: 50}
	if d := cmp.Diff(want, n); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want, g.AdjustmentCounts()); d != "" {
		t.Error(d)
	}
}

func TestRecordsDependOnSeedAndNumberOnly(t *testing.T) {
	g := generator()
	var reused pipeline.Message
	i := 0
	for m, l := range g.Invoices() {
		again := g.Invoice(&reused, i)
		if l != again || l != g.InvoiceLabel(i) || !bytes.Equal(m.Value, reused.Value) || !bytes.Equal(m.Key, reused.Key) {
			t.Fatalf("invoice %d is made in two ways", i)
		}
		i++
	}
	var last pipeline.Message
	g.Invoice(&reused, 1000)
	g.Invoice(&last, 0)
	g.Invoice(&last, 1000)
	if !bytes.Equal(reused.Value, last.Value) {
		t.Error("what was made before matters")
	}
	other := g
	other.Seed++
	other.Invoice(&last, 1000)
	if bytes.Equal(reused.Value, last.Value) {
		t.Error("the seed does not matter")
	}
}

// The partitions were seen with Java producers: a redrive must keep a key's partition.
func TestPartitionIsTheJavaProducers(t *testing.T) {
	for _, row := range []struct {
		key              string
		partitions, want int32
	}{{"TT0124", 15, 10}, {"354afe16-939a-4ea8-8e17-8bb0840b6886", 10, 4}, {"f562ac3b-2224-4e25-a0ab-56094e10c239", 10, 5},
		{"fd7af248-ce5c-46a5-93d7-1c0c9005b99d", 32, 26}, {"inv-1001", 12, 0}, {"inv-1002", 12, 7}, {"inv-1003", 12, 4}, {"inv-1002", 6, 1}} {
		if got := pipeline.Partition([]byte(row.key), row.partitions); got != row.want {
			t.Errorf("%s of %d: %d, want %d", row.key, row.partitions, got, row.want)
		}
	}
	seen := map[int32]int{}
	for m := range generator().Invoices() {
		seen[m.Partition]++
	}
	if len(seen) != 12 {
		t.Errorf("records on %d partitions", len(seen))
	}
}

func TestInvoiceAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	g := billing.Generator{Seed: 1, SchemaID: 7, Partitions: 12}
	var m pipeline.Message
	i := 0
	if n := testing.AllocsPerRun(1000, func() { g.Invoice(&m, i); i++ }); n > 0 {
		t.Errorf("%v allocations a record", n)
	}
}

func BenchmarkInvoice(b *testing.B) {
	g := generator()
	var m pipeline.Message
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		g.Invoice(&m, i)
		i++
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}

func ExampleGenerator() {
	g := billing.Generator{Seed: 1, Count: 1000, Poison: 0.01, Partitions: 12}
	for m, label := range g.Invoices() {
		if label.Defect != billing.None {
			fmt.Println(string(m.Key), label.Defect, label.Defect.Code())
			break
		}
	}
	// Output: ACC-000008983 truncated ERR_DECODE_TRUNCATED
}
