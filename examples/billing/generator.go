package billing

import (
	"iter"
	"math"

	"reprieve.dev/pipeline"
)

// Defect is what is wrong with a record. None is a record that the pipeline delivers.
type Defect uint8

// The defects. Invoices have all but InvalidJSON; adjustments have InvalidJSON, InactiveProfile and InvalidCurrency.
const (
	None            Defect = iota
	Truncated              // the datum ends early
	Leftover               // bytes follow the datum
	UnknownSchema          // the schema id is UnknownSchemaID
	InactiveProfile        // the account is not active
	InvalidCurrency        // not a currency that billing knows
	InvalidJSON            // not a JSON document
)

var defectNames = [...]string{"none", "truncated", "leftover", "unknown_schema", "inactive_profile", "invalid_currency", "invalid_json"}

// String is the defect's name.
func (d Defect) String() string { return defectNames[d] }

// Code is what the example pipelines quarantine the defect with; "" for None.
func (d Defect) Code() pipeline.Code {
	switch d {
	case Truncated:
		return pipeline.CodeDecodeTruncated
	case Leftover:
		return pipeline.CodeDecodeLeftover
	case UnknownSchema:
		return pipeline.CodeSchemaUnknown
	case InactiveProfile, InvalidCurrency:
		return pipeline.CodeRejected
	case InvalidJSON:
		return pipeline.CodeDecodeJSON
	}
	return ""
}

// UnknownSchemaID is the id that no registry of the example has.
const UnknownSchemaID = 999

// Label is the truth about one record.
type Label struct {
	I      int
	Defect Defect
	Card   bool // a test card number stands in the notes or in the card field
	Bearer bool // a bearer token stands in a header
	Large  bool // goes to LargeTopic if it is delivered
}

// Generator makes records. The zero value makes none; Count bounds only the sequences.
type Generator struct {
	Seed       uint64
	Count      int
	Poison     float64 // share of records with a defect, exact to one record; the defects take turns
	Secrets    float64 // share of records with a planted secret, card numbers and bearer tokens in turn
	Partitions int32   // the topic's partitions; 0 leaves the choice to the producer (murmur2 of the key, the same one)
	SchemaID   int32   // what the registry gave Schema; 0 is 1
	StartMS    int64   // Unix ms when the first invoice was issued; 0 is 2026-09-01. Each next one is 10 ms later
	Stamp      bool    // records carry that time as CreateTime; else they are written now
	Accounts   int     // how many accounts there are; 0 is 10,000
}

const defaultStartMS = 1788220800000 // 2026-09-01T00:00:00Z

// Invoices yields the Count invoices; every message is its own.
func (g Generator) Invoices() iter.Seq2[pipeline.Message, Label] { return g.sequence(g.Invoice) }

// Adjustments yields Count adjustments; every message is its own.
func (g Generator) Adjustments() iter.Seq2[pipeline.Message, Label] { return g.sequence(g.Adjustment) }

func (g Generator) sequence(one func(*pipeline.Message, int) Label) iter.Seq2[pipeline.Message, Label] {
	return func(yield func(pipeline.Message, Label) bool) {
		for i := range g.Count {
			var m pipeline.Message
			if l := one(&m, i); !yield(m, l) {
				return
			}
		}
	}
}

var invoiceDefects = [...]Defect{Truncated, Leftover, UnknownSchema, InactiveProfile, InvalidCurrency}
var adjustmentDefects = [...]Defect{InvalidJSON, InactiveProfile, InvalidCurrency}

// InvoiceLabel is the label of invoice i without the invoice.
func (g *Generator) InvoiceLabel(i int) Label { return g.label(i, invoiceDefects[:]) }

// AdjustmentLabel is the label of adjustment i without the adjustment. Adjustments are never large.
func (g *Generator) AdjustmentLabel(i int) Label {
	l := g.label(i, adjustmentDefects[:])
	l.Large = false
	return l
}

// label spreads defects and secrets evenly: the k-th poison record has the k-th defect in turn, and shares are exact.
func (g *Generator) label(i int, defects []Defect) Label {
	l := Label{I: i, Large: g.hash(i, saltAmount)%10 == 0}
	if k, ok := turn(i, g.Poison); ok {
		l.Defect = defects[k%len(defects)]
	}
	if k, ok := turn(i, g.Secrets); ok {
		l.Card, l.Bearer = k%2 == 0, k%2 == 1
	}
	return l
}

// turn tells whether record i is one of the share, and which one of them.
func turn(i int, share float64) (k int, ok bool) {
	const whole = 1_000_000
	part := int64(math.Round(min(max(share, 0), 1) * whole))
	before := int64(i) * part / whole
	return int(before), (int64(i)+1)*part/whole > before
}

// Counts are how many of the Count invoices have each defect.
func (g *Generator) Counts() map[Defect]int { return g.counts(g.InvoiceLabel) }

// AdjustmentCounts are how many of the Count adjustments have each defect.
func (g *Generator) AdjustmentCounts() map[Defect]int { return g.counts(g.AdjustmentLabel) }

func (g *Generator) counts(label func(int) Label) map[Defect]int {
	n := map[Defect]int{}
	for i := range g.Count {
		n[label(i).Defect]++
	}
	return n
}

// What a number is drawn for: two draws for one record have nothing to do with each other.
const (
	saltEvent = iota + 1
	saltEvent2
	saltToken
	saltAccount
	saltAmount
	saltText
	saltLine
	saltTenant = 1 << 20
)

// hash is a number that depends on the seed, the record and what it is for (splitmix64's finisher).
func (g *Generator) hash(i, salt int) uint64 {
	x := g.Seed ^ uint64(i)*0x9e3779b97f4a7c15 ^ uint64(salt)*0xd1b54a32d192ed03
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// account is whose record i is.
func (g *Generator) account(i int) int {
	n := g.Accounts
	if n <= 0 {
		n = 10_000
	}
	return int(g.hash(i, saltAccount) % uint64(n))
}

// tenant belongs to the account.
func (g *Generator) tenant(account int) string {
	if g.hash(account, saltTenant)%3 == 0 {
		return "globex"
	}
	return "acme"
}

func (g *Generator) issued(i int) int64 {
	start := g.StartMS
	if start == 0 {
		start = defaultStartMS
	}
	return start + int64(i)*10
}

// begin fills what all records have; m's slices are used again.
func (g *Generator) begin(m *pipeline.Message, topic string, i int, l *Label) {
	m.Topic, m.Partition, m.From, m.TimeMS = topic, -1, -1, 0
	m.Key = appendAccount(m.Key[:0], g.account(i))
	m.Headers = m.Headers[:0]
	if g.Partitions > 0 {
		m.Partition = pipeline.Partition(m.Key, g.Partitions)
	}
	if g.Stamp {
		m.TimeMS = g.issued(i)
	}
	if l.Bearer {
		m.Headers = append(m.Headers, pipeline.Header{Name: "authorization", Value: []byte(BearerHeader)})
	}
}

// What is planted. They are test values that belong to nobody.
const (
	CardNumber   = "4111111111111111"
	CardSpaced   = "5555 5555 5555 4444"
	BearerHeader = "Bearer dGVzdC10b2tlbi1ub3QtcmVhbA.c2lnbmF0dXJl+with/odd=="
)
