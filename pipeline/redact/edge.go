package redact

import "bytes"

// edge is what stands beside a number.
type edge uint8

const (
	edgeFree   edge = iota
	edgeJoined      // the number is part of something longer: an identifier, a hexadecimal string, a decimal
	edgeCard        // a word that says card is written against it: "visa4111...", "pan_4111..."
)

func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }
func alnum(c byte) bool  { return letter(c) || digit(c) }

// leftEdge judges what stands before a number that starts at i.
func leftEdge(b []byte, i int) edge {
	if i == 0 {
		return edgeFree
	}
	switch c := b[i-1]; {
	case letter(c):
		return wordEdge(b, i)
	case digit(c): // a chain that was too long
		return edgeJoined
	case c == '-' || c == '_':
		if i > 1 && alnum(b[i-2]) {
			return wordEdge(b, i-1)
		}
	case c == '.':
		if i > 1 && digit(b[i-2]) {
			return edgeJoined
		}
	case c == '$':
		return edgeJoined
	}
	return edgeFree
}

// wordEdge judges the letters that end at i.
func wordEdge(b []byte, i int) edge {
	from := i
	for from > 0 && letter(b[from-1]) && i-from < 24 {
		from--
	}
	if from > 0 && alnum(b[from-1]) {
		return edgeJoined
	}
	if i-from == 1 && b[from]|0x20 == 'b' && from > 0 && b[from-1] == '%' { // start of a magnetic track 1
		return edgeCard
	}
	var w nameWords
	w.split(text(b[from:i]))
	if w.k > 0 && cardWord(w.last()) {
		return edgeCard
	}
	return edgeJoined
}

// rightEdge judges what stands after a number that ends at i.
func rightEdge(b []byte, i int) edge {
	if i == len(b) {
		return edgeFree
	}
	switch c := b[i]; {
	case letter(c):
		if c|0x20 == 'd' && track(b, i+1) > 0 {
			return edgeFree
		}
		return edgeJoined
	case digit(c):
		return edgeJoined
	case c == '-' || c == '_':
		if i+1 < len(b) && alnum(b[i+1]) {
			return edgeJoined
		}
	case c == '.':
		if i+1 < len(b) && digit(b[i+1]) {
			return edgeJoined
		}
	}
	return edgeFree
}

// track is the length of the rest of a magnetic track 2 at i: YYMM, service code, discretionary data (which holds a
// verification value). 0 is none.
func track(b []byte, i int) int {
	n := 0
	for i+n < len(b) && digit(b[i+n]) {
		n++
	}
	if n < 7 || n > 24 {
		return 0
	}
	if m := int(b[i+2]-'0')*10 + int(b[i+3]-'0'); m < 1 || m > 12 {
		return 0
	}
	return n
}

// cardWord are words beside a number that say it is a card's.
func cardWord(w []byte) bool {
	switch string(w) {
	case "card", "cards", "pan", "cc", "ccn", "ccnum", "cardno", "cardnumber", "cardnum", "creditcard", "debitcard", "visa", "mastercard", "amex", "maestro", "mc",
		"discover", "diners", "jcb", "unionpay", "rupay", "mir", "troy", "verve", "karte", "kreditkarte", "kartennummer", "carte", "tarjeta",
		"carta", "kaart":
		return true
	}
	return false
}

// contextBefore is what the words before a number say: a name with a separator ("order=", `"offset": `), or a word within
// the same clause ("order no. 4539...", "card ending 4111...").
func contextBefore(b []byte, i int) meaning {
	from := i
	for from > 0 && i-from < 8 && (b[from-1] == ' ' || b[from-1] == '\t' || b[from-1] == '"' || b[from-1] == '\'' || b[from-1] == '[' || b[from-1] == '(' || b[from-1] == '`' || b[from-1] == '#') {
		from--
	}
	if from > 0 {
		switch b[from-1] {
		case ':', '=', '>', '/':
			if name := nameBefore(b, from-1); len(name) > 0 {
				if m := nameMeaning(text(name), false); m == meansCard || m >= meansReference {
					return m
				}
				if !filler(name) { // "card number: 4111..." goes on in the clause
					return means
				}
			}
		}
	}
	// Words of the clause, nearest first.
	for words := 0; from > 0 && words < 4; {
		c := b[from-1]
		if letter(c) {
			end := from
			for from > 0 && (alnum(b[from-1]) || b[from-1] == '_' || b[from-1] == '-') && end-from < maxName {
				from--
			}
			words++
			if m := nameMeaning(text(b[from:end]), false); m == meansCard || m >= meansReference {
				return m
			}
			var w nameWords
			w.split(text(b[from:end]))
			if w.k == 1 && cardWord(w.last()) {
				return meansCard
			}
			if !filler(b[from:end]) {
				return means
			}
			continue
		}
		if c == ' ' || c == '\t' || c == '.' || c == ':' || c == '#' || c == '=' || c == '"' || c == '\'' {
			from--
			continue
		}
		break
	}
	return means
}

// unitAfter says that a unit of time or size follows a number that ends at i.
func unitAfter(b []byte, i int) bool {
	from, to := nextWord(b, i)
	if from == i {
		return false
	}
	var buf [12]byte
	if to-from > len(buf) {
		return false
	}
	for k, c := range b[from:to] {
		buf[k] = c | 0x20
	}
	switch string(buf[:to-from]) {
	case "ms", "us", "ns", "s", "sec", "secs", "seconds", "millis", "milliseconds", "micros", "microseconds", "nanos", "nanoseconds", "ticks", "bytes", "kb", "mb", "gb",
		"kib", "mib", "gib", "records", "messages", "rows", "offsets":
		return true
	}
	return false
}

// filler are the words that may stand between "order" or "card" and its number.
func filler(w []byte) bool {
	var buf [12]byte
	if len(w) > len(buf) {
		return false
	}
	for i, c := range w {
		buf[i] = c | 0x20
	}
	switch string(buf[:len(w)]) {
	case "no", "nr", "num", "number", "id", "is", "was", "the", "of", "at", "value", "ref", "reference", "with", "for", "key":
		return true
	}
	return false
}

// nameBefore is the name whose separator stands at i: quotes, spaces and closing brackets between are passed over, for
// XML the name of the tag that ends at i.
func nameBefore(b []byte, i int) []byte {
	end := i
	if b[i] == '>' {
		if end > 0 && (b[end-1] == '=' || b[end-1] == '-') {
			end--
		} else {
			return tagBefore(b, i)
		}
	}
	for n := 0; end > 0 && n < 8; n++ {
		switch b[end-1] {
		case ' ', '\t', '"', '\'', '`', ']', ')', '\\', '*':
			end--
			continue
		}
		break
	}
	from := end
	for from > 0 && end-from < maxName && (alnum(b[from-1]) || b[from-1] == '_' || b[from-1] == '-' || b[from-1] == '.') {
		from--
	}
	return b[from:end]
}

// tagBefore is the name of the XML start tag that ends with the '>' at i.
func tagBefore(b []byte, i int) []byte {
	at := bytes.LastIndexByte(b[max(0, i-256):i], '<')
	if at < 0 {
		return nil
	}
	at += max(0, i-256) + 1
	from := at
	for at < i && (alnum(b[at]) || b[at] == '_' || b[at] == '-' || b[at] == '.' || b[at] == ':') {
		if b[at] == ':' {
			from = at + 1
		}
		at++
	}
	return b[from:at]
}
