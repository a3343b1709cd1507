package billing

import (
	"encoding/binary"
	"math"

	"reprieve.dev/pipeline"
)

// Invoice makes m invoice i; Key, Value and Headers of m are used again, so a loop over one message allocates nothing but
// planted headers. Cost: about 1 us and 1.2 KiB.
func (g Generator) Invoice(m *pipeline.Message, i int) Label {
	l := g.InvoiceLabel(i)
	g.begin(m, InvoicesTopic, i, &l)
	id := g.SchemaID
	if id == 0 {
		id = 1
	}
	if l.Defect == UnknownSchema {
		id = UnknownSchemaID
	}
	b := append(m.Value[:0], 0)
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	b = g.datum(b, i, &l)
	switch l.Defect {
	case Truncated:
		b = b[:len(b)-1-int(g.hash(i, saltText)%40)]
	case Leftover:
		b = append(b, 0xbe, 0xef)
	}
	m.Value = b
	return l
}

// datum appends the Avro datum, in the order of invoice.avsc.
func (g *Generator) datum(b []byte, i int, l *Label) []byte {
	account := g.account(i)
	draw := g.hash(i, saltText)
	pick := func(n int) int { // a small number from the draw; each call sees other bits
		k := int(draw % uint64(n))
		draw = draw/uint64(n) + draw<<57
		return k
	}
	amount := g.amount(i, l)

	b = text(b, appendEvent(scratch(), g.hash(i, saltEvent), g.hash(i, saltEvent2), "evt-"))
	b = text(b, appendNumber(scratch(), "INV-", i))
	b = text(b, appendAccount(scratch(), account))
	b = str(b, g.tenant(account))
	b = text(b, appendEvent(scratch(), g.hash(i, saltToken), g.hash(i, saltToken+1000), "tok-"))
	b = long(b, int64(i)+1)
	b = long(b, 0) // INVOICE
	b = long(b, int64(pick(3)%2))
	b = long(b, accountStatus(i, l))
	issued := g.issued(i)
	day := issued / 86_400_000
	b = long(b, issued)
	b = long(b, day+30)
	b = long(b, day-30)
	b = long(b, day)
	b = str(b, currency(pick(4), l))
	b = long(b, amount.net)
	b = long(b, amount.discount)
	b = long(b, amount.tax)
	b = long(b, amount.total())
	b = long(b, amount.basisPoints)
	if pick(2) == 0 {
		b = long(b, 0)
	} else {
		b = binary.LittleEndian.AppendUint64(long(b, 1), math.Float64bits(1+float64(pick(1000))/4096))
	}
	place := placeList[g.hash(account, saltTenant+1)%uint64(len(placeList))]
	b = str(b, place.country)

	person := personList[g.hash(account, saltTenant+2)%uint64(len(personList))]
	b = text(b, appendNumber(scratch(), "CUS-", account))
	b = str(b, person.name)
	b = str(b, person.email)
	if pick(3) == 0 {
		b = long(b, 0)
	} else {
		b = str(long(b, 1), person.phone)
	}
	b = str(b, place.street)
	b = str(b, place.city)
	b = str(b, place.code)
	b = str(b, place.country)

	b = long(b, int64(amount.lines))
	for n := range amount.lines {
		x := amount.line[n]
		item := itemList[x.item]
		b = long(b, int64(n)+1)
		b = str(b, item.sku)
		b = str(b, item.description)
		b = long(b, x.quantity)
		b = long(b, x.unit)
		b = long(b, x.unit*x.quantity)
		b = str(b, "standard-rate")
	}
	b = long(b, 0)

	b = str(b, methodList[pick(len(methodList))])
	switch {
	case l.Card && i%2 == 1:
		b = str(long(b, 1), CardNumber)
	case pick(2) == 0:
		b = long(b, 0)
	default:
		b = str(long(b, 1), "VISA ending 4242")
	}
	b = text(b, appendNumber(scratch(), "ORDER-", int(g.hash(i, saltLine)%100_000_000)))
	b = long(b, 3)
	b = str(str(b, "channel"), channelList[pick(len(channelList))])
	b = str(str(b, "campaign"), "autumn-renewal")
	b = str(str(b, "cost-centre"), "subscriptions/recurring")
	b = long(b, 0)
	b = append(b, byte(pick(2)))
	b = str(b, "invoicing-core-eu-west")
	switch {
	case l.Card && i%2 == 0:
		b = str(long(b, 1), "Paid by phone with card "+CardSpaced+", please check the address.")
	case pick(3) == 0:
		b = long(b, 0)
	default:
		b = str(long(b, 1), noteList[pick(len(noteList))])
	}
	return b
}

// sums are an invoice's lines and what follows from them; total = net - discount + tax always holds.
type sums struct {
	line                            [11]line
	lines                           int
	net, discount, tax, basisPoints int64
}

type line struct {
	item           int
	quantity, unit int64
}

func (s *sums) total() int64 { return s.net - s.discount + s.tax }

func (g *Generator) amount(i int, l *Label) (s sums) {
	h := g.hash(i, saltLine)
	s.lines = 7 + int(h%5)
	for n := range s.lines {
		h = h*0x5851f42d4c957f2d + 0x14057b7ef767814f
		s.line[n] = line{item: int(h>>40) % len(itemList), quantity: 1 + int64(h>>33)%4, unit: 199 + int64(h>>20)%15_000}
	}
	if l.Large {
		s.line[0].unit, s.line[0].quantity = 1_000_001+int64(h>>30)%5_000_000, 1
	}
	for _, x := range s.line[:s.lines] {
		s.net += x.unit * x.quantity
	}
	s.basisPoints = [...]int64{0, 700, 1900, 2000}[h>>50&3]
	s.tax = s.net * s.basisPoints / 10_000
	return s
}

// accountStatus is the enum's index.
func accountStatus(i int, l *Label) int64 {
	if l.Defect == InactiveProfile {
		return 1 + int64(i)%3
	}
	return 0
}

func currency(k int, l *Label) string {
	if l.Defect == InvalidCurrency {
		return [...]string{"XXX", "EURO", "eur", "??"}[k]
	}
	return [...]string{"EUR", "USD", "GBP", "CHF"}[k]
}
