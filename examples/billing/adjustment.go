package billing

import (
	"strconv"

	"reprieve.dev/pipeline"
)

// Adjustment makes m adjustment i, a JSON document; Key, Value and Headers of m are used again.
func (g Generator) Adjustment(m *pipeline.Message, i int) Label {
	l := g.AdjustmentLabel(i)
	g.begin(m, AdjustmentsTopic, i, &l)
	account := g.account(i)
	draw := g.hash(i, saltText)
	person := personList[g.hash(account, saltTenant+2)%uint64(len(personList))]
	place := placeList[g.hash(account, saltTenant+1)%uint64(len(placeList))]
	b := append(m.Value[:0], `{"event_id":"`...)
	b = appendEvent(b, g.hash(i, saltEvent), g.hash(i, saltEvent2)^1, "evt-")
	b = appendNumber(append(b, `","adjustment_id":"`...), "ADJ-", i)
	b = appendNumber(append(b, `","invoice_id":"`...), "INV-", i)
	b = appendAccount(append(b, `","account_id":"`...), account)
	b = append(append(b, `","tenant":"`...), g.tenant(account)...)
	b = appendEvent(append(b, `","token":"`...), g.hash(i, saltToken), g.hash(i, saltToken+2000), "tok-")
	b = strconv.AppendInt(append(b, `","seq":`...), int64(i)+1, 10)
	b = append(append(b, `,"kind":"`...), [...]string{"CREDIT_NOTE", "CORRECTION", "GOODWILL"}[draw%3]...)
	b = append(append(b, `","account_status":"`...), [...]string{"ACTIVE", "INACTIVE", "SUSPENDED", "CLOSED"}[accountStatus(i, &l)]...)
	b = append(append(b, `","country":"`...), place.country...)
	b = append(append(b, `","currency":"`...), currency(int(draw>>8&3), &l)...)
	b = strconv.AppendInt(append(b, `","amount_minor":`...), 100+int64(draw>>20%50_000), 10)
	b = append(append(b, `,"customer":{"name":"`...), person.name...)
	b = append(append(b, `","email":"`...), person.email...)
	b = append(b, `"},"notes":`...)
	switch {
	case l.Card:
		b = append(b, `"Refund to `+CardNumber+`."`...)
	case draw>>12&1 == 0:
		b = append(b, `null`...)
	default:
		b = append(append(append(b, '"'), noteList[draw>>16%uint64(len(noteList))]...), '"')
	}
	b = append(b, '}')
	if l.Defect == InvalidJSON {
		b = b[:len(b)-1-int(draw%30)]
	}
	m.Value = b
	return l
}
