package redact

// rank says how sure an issuer prefix with a length makes us.
type rank uint8

const (
	notIssued rank = iota
	localOnly      // national, retired or private ranges: only where a name or a word says card
	issued         // ranges of the schemes in use
)

// issuerRange is a span of the first six digits and the lengths, as bits, that are issued in it.
type issuerRange struct {
	from, to int32
	lengths  uint32
	rank     rank
}

func lengths(ns ...uint) (bits uint32) {
	for _, n := range ns {
		bits |= 1 << n
	}
	return bits
}

func span(from, to uint) (bits uint32) {
	for n := from; n <= to; n++ {
		bits |= 1 << n
	}
	return bits
}

// issuers is the table of ranges, read-only, built once for a Redactor. Where ranges overlap, the surer one counts.
func issuers() []issuerRange {
	short := span(12, 19)
	long := span(16, 19)
	return []issuerRange{
		{400000, 499999, lengths(13, 16, 19), issued}, // Visa
		{510000, 559999, lengths(16), issued},         // Mastercard
		{222100, 272099, lengths(16), issued},
		{340000, 349999, lengths(15), issued}, // American Express
		{370000, 379999, lengths(15), issued},
		{601100, 601199, long, issued}, // Discover
		{622126, 622925, long, issued},
		{644000, 659999, long, issued},
		{300000, 305999, lengths(14) | long, issued}, // Diners Club
		{309500, 309599, lengths(14) | long, issued},
		{360000, 369999, span(14, 19), issued},
		{380000, 399999, lengths(14) | long, issued},
		{352800, 358999, long, issued}, // JCB
		{180000, 180099, lengths(15), localOnly},
		{213100, 213199, lengths(15), localOnly},
		{620000, 629999, long, issued},            // UnionPay
		{810000, 828999, long, issued},            // UnionPay and RuPay
		{220000, 220499, long, issued},            // Mir
		{220500, 220599, lengths(16), issued},     // Borica, PayPak
		{501800, 501899, short, issued},           // Maestro
		{502000, 502099, short, issued},           //
		{503300, 503399, short, issued},           //
		{503800, 503899, short, issued},           //
		{561200, 561299, short, issued},           //
		{564100, 564199, short, issued},           //
		{586800, 586899, short, issued},           //
		{589300, 589399, short, issued},           //
		{630400, 630499, short, issued},           // Laser
		{633300, 633399, short, issued},           // Switch
		{633400, 633499, short, issued},           // Solo
		{670600, 670699, short, issued},           //
		{670900, 670999, short, issued},           //
		{675900, 675999, short, issued},           //
		{676100, 676399, short, issued},           //
		{676600, 676899, short, issued},           //
		{677000, 677199, short, issued},           //
		{679900, 679999, short, issued},           //
		{500000, 509999, long, issued},            // Maestro, Elo, Verve, RuPay, Meeza
		{560000, 589999, long, issued},            // Maestro, Bankcard, UzCard
		{600000, 609999, long, issued},            // Maestro, RuPay, Hipercard, Cabal, UkrCard
		{630000, 639999, long, issued},            // Maestro, InterPayment, InstaPayment, Elo
		{670000, 679999, long, issued},            // Maestro
		{979200, 979299, lengths(16), issued},     // Troy
		{860000, 860099, lengths(16), issued},     // UzCard
		{986000, 986099, lengths(16), issued},     // Humo
		{970400, 970499, lengths(16, 19), issued}, // Napas
		{911200, 911299, lengths(16), issued},     // Belkart
		{905100, 905199, lengths(16), issued},     // ArCa
		{941700, 941799, lengths(16), issued},     // Elcart
		{968200, 968299, lengths(16), issued},     // Mada
		{353000, 357999, long, issued},
		{0, 999999, short, localOnly}, // private label, UATP, T-Union, enRoute, GPN, national ranges
	}
}

// issuerOf ranks a run of 12 to 19 digits.
func issuerOf(table []issuerRange, d []byte) rank {
	p := int32(0)
	for _, c := range d[:6] {
		p = p*10 + int32(c-'0')
	}
	bit := uint32(1) << len(d)
	best := notIssued
	for i := range table {
		r := &table[i]
		if p >= r.from && p <= r.to && r.lengths&bit != 0 && r.rank > best {
			if best = r.rank; best == issued {
				break
			}
		}
	}
	return best
}

// mayStartCard is the quick no for a bare number: the first digits of all ranges that need no card word.
func mayStartCard(a, b byte) bool {
	switch a {
	case '2':
		return b >= '2' && b <= '7'
	case '3':
		return b == '0' || b >= '4'
	case '4', '5', '6':
		return true
	case '8':
		return b == '1' || b == '2' || b == '6'
	case '9':
		return b == '0' || b == '1' || b == '4' || b >= '6'
	}
	return false
}

// publishedTest are numbers that schemes and payment companies publish for tests. They belong to nobody and are never
// given out as an order number or an id, so such a number is a card wherever it stands; a leak drill can rely on it.
func publishedTest(d []byte) bool {
	switch string(d) {
	case "4111111111111111", "4242424242424242", "4012888888881881", "4000056655665556", "4222222222222", "4000000000000002",
		"4000000000009995", "4000002500003155", "4917610000000000", "4917300800000000", "4484070000000000", "4462030000000000",
		"4111111145551142", "4988438843884305", "4166676667666746", "4646464646464644", "4000000000000077", "4005519200000004",
		"4009348888881881", "4012000033330026", "4012000077777777", "4217651111111119", "4500600000000061", "4000111111111115",
		"5555555555554444", "5105105105105100", "5200828282828210", "5454545454545454", "5425233430109903", "5555341244441115",
		"5100000000000008", "5204740000001002", "5500000000000004", "5577000055770004", "5136333333333335", "5424000000000015",
		"2222405343248877", "2223003122003222", "2223000048400011", "2222420000001113", "2223520043560014", "2222990905257051", "2223007648726984",
		"2720994326581252",
		"378282246310005", "371449635398431", "378734493671000", "370000000000002", "341111111111111", "374245455400126", "343434343434343",
		"6011111111111117", "6011000990139424", "6011000400000000", "6011601160116611", "6011981111111113", "6011000000000004", "6500000000000002",
		"30569309025904", "38520000023237", "36006666333344", "36227206271667", "3056930009020004", "36148900647913", "36700102000000",
		"3530111333300000", "3566002020360505", "3566111111111113", "3569990010095841", "3528000700000000",
		"6200000000000005", "6200000000000047", "6205500000000000004", "6243030000000001", "6212345678901232", "6282000123842342",
		"6759649826438453", "6799990100000000019", "6304000000000000", "6703444444444449", "6771798021000008", "6771798025000004", "5018000000000009",
		"5641821111166669", "50339619890917", "586824160825533338", "6759411100000008", "6759560045005727054",
		"5019717010103742", "6331101999990016", "6062828888666688", "5066991111111118", "4571736000000075":
		return true
	}
	return false
}
