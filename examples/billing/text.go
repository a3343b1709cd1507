package billing

import "encoding/binary"

// scratchSize holds any id that is built before it is written.
const scratchSize = 48

// scratch is an empty slice on the caller's stack.
func scratch() []byte { return make([]byte, 0, scratchSize) }

// long appends an Avro int or long.
func long(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

// str and text append an Avro string.
func str(b []byte, s string) []byte  { return append(long(b, int64(len(s))), s...) }
func text(b []byte, s []byte) []byte { return append(long(b, int64(len(s))), s...) }

// appendEvent appends a prefix and 24 characters of lower-case base32: no run of digits that could be a card number.
func appendEvent(b []byte, x, y uint64, prefix string) []byte {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	b = append(b, prefix...)
	for range 12 {
		b = append(b, alphabet[x&31], alphabet[y&31])
		x, y = x>>5, y>>5
	}
	return b
}

// appendNumber appends a prefix and n in 9 digits or more.
func appendNumber(b []byte, prefix string, n int) []byte {
	b = append(b, prefix...)
	at := len(b)
	b = append(b, "000000000"...)
	for i := len(b) - 1; i >= at && n > 0; i-- {
		b[i] = byte('0' + n%10)
		n /= 10
	}
	return b
}

func appendAccount(b []byte, n int) []byte { return appendNumber(b, "ACC-", n) }

// What records are made of: fixed tables of test names and places.
var placeList = [...]struct{ street, city, code, country string }{
	{"Lange Strasse 12", "Berlin", "10115", "DE"}, {"Hafenweg 3", "Hamburg", "20457", "DE"}, {"Rue du Lac 41", "Lyon", "69003", "FR"},
	{"Calle Mayor 7", "Madrid", "28013", "ES"}, {"Herengracht 18", "Amsterdam", "1015", "NL"}, {"High Street 99", "Leeds", "LS1", "GB"},
	{"Bahnhofstrasse 5", "Zürich", "8001", "CH"}, {"Elm Avenue 210", "Portland", "97201", "US"},
}

var personList = [...]struct{ name, email, phone string }{
	{"Ann Example", "ann@example.com", "+49 30 5550101"}, {"Bob Sample", "bob.sample@example.org", "+44 113 5550102"},
	{"Chloé Exemple", "chloe@example.net", "+33 4 5550103"}, {"Dora Muster", "dora.muster@example.com", "+41 44 5550104"},
	{"Émile Dupont-Test", "emile@example.org", "+33 1 5550105"}, {"Fatima Probe", "fatima.probe@example.com", "+34 91 5550106"},
	{"Gustav Beispiel", "gustav@example.net", "+49 40 5550107"}, {"Hana Vzorová", "hana@example.org", "+1 503 5550108"},
}

var itemList = [...]struct{ sku, description string }{
	{"SUB-BASIC-M", "Basic subscription, one month, renewed automatically on the first"}, {"SUB-PRO-M", "Professional subscription, one month, up to ten named users"},
	{"STO-100G", "Additional storage, blocks of 100 GB, replicated in two regions"}, {"SUP-GOLD", "Gold support, answer within four hours on working days"},
	{"API-1M", "API calls beyond the plan, counted in blocks of one million"}, {"SMS-EU", "Text messages to numbers in Europe, counted by segment"},
	{"TRA-EGRESS", "Data transfer out of the region, counted by gigabyte started"}, {"ONB-DAY", "Onboarding by a consultant, one day, travel included"},
}

var methodList = [...]string{"card", "sepa_direct_debit", "bank_transfer", "wallet"}

var channelList = [...]string{"web", "partner", "phone", "renewal-job"}

var noteList = [...]string{
	"Please quote the order on the transfer.", "Customer asked for one invoice a quarter from next year on.",
	"Discount agreed by the account manager, see contract.", "Deliver to the accounting department, second floor.",
}
