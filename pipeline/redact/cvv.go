package redact

// codeValue takes the value of a name that means a verification value: three or four digits and nothing else in the word.
func (e *Editor) codeValue(t *reading, from int, bare bool) {
	if to := codeDigits(t.b, from); to > 0 {
		e.add(t, from, to, hit{kind: kindCVV, literal: bare && quoted(t.b, from)})
	}
}

// quoted says that the name before a value that starts at i stands in quotation marks, as in JSON.
func quoted(b []byte, i int) bool {
	for i--; i > 0 && (b[i] == ' ' || b[i] == '\t'); i-- {
	}
	return i > 0 && b[i] == ':' && b[i-1] == '"'
}

// codeDigits is where three or four digits that start at i end, 0 if that is not what stands there.
func codeDigits(b []byte, i int) int {
	n := 0
	for i+n < len(b) && digit(b[i+n]) {
		n++
	}
	end := i + n
	if n < 3 || n > 4 || i > 0 && alnum(b[i-1]) {
		return 0
	}
	if end < len(b) {
		switch c := b[end]; {
		case letter(c), c == '_':
			return 0
		case c == '-' || c == '.' || c == '/' || c == ':' || c == '%':
			if c == '%' || end+1 < len(b) && alnum(b[end+1]) {
				return 0
			}
		}
	}
	return end
}

// spoken reads "cvv 123", "CVC2 number is 123", "security code: 123" from the word at [from, to).
func (e *Editor) spoken(t *reading, from, to int) {
	b := t.b
	w := b[from:to]
	if from > 0 && (b[from-1] == '_' || b[from-1] == '-' || b[from-1] == '.' || b[from-1] == '/') || to < len(b) && (b[to] == '_' || b[to] == '-') {
		return
	}
	switch {
	case spokenCode(w):
	case fold(w, "security"), fold(w, "verification"), fold(w, "validation"):
		next, end := nextWord(b, to)
		if !fold(b[next:end], "code") && !fold(b[next:end], "value") && !fold(b[next:end], "number") {
			return
		}
		if !fold(w, "security") && !fold(previousWord(b, from), "card") {
			return
		}
		to = end
	default:
		return
	}
	for words := 0; words < 4; words++ {
		i := to
		for n := 0; i < len(b) && n < 8; n++ {
			switch b[i] {
			case ' ', '\t', ':', '=', '#', '"', '\'', '(', '[', '>', '`':
				i++
				continue
			}
			break
		}
		if i >= len(b) {
			return
		}
		if digit(b[i]) {
			if end := codeDigits(b, i); end > 0 {
				e.add(t, i, end, hit{kind: kindCVV})
			}
			return
		}
		end := i
		for end < len(b) && alnum(b[end]) {
			end++
		}
		switch w := b[i:end]; {
		case fold(w, "is"), fold(w, "code"), fold(w, "number"), fold(w, "no"), fold(w, "was"), fold(w, "value"), fold(w, "the"), fold(w, "of"), fold(w, "num"), fold(w, "nr"):
			to = end
			if to < len(b) && b[to] == '.' {
				to++
			}
		default:
			return
		}
	}
}

func spokenCode(w []byte) bool {
	var buf [12]byte
	if len(w) > len(buf) {
		return false
	}
	for i, c := range w {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	switch string(buf[:len(w)]) {
	case "cvv", "cvv2", "cvc", "cvc2", "csc", "cvn", "cvn2", "cav2", "cvvcode", "cvccode":
		return true
	}
	return false
}

// fold compares a word with lower case ASCII.
func fold(w []byte, lower string) bool {
	if len(w) != len(lower) {
		return false
	}
	for i, c := range w {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lower[i] {
			return false
		}
	}
	return true
}

func nextWord(b []byte, i int) (from, to int) {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	from = i
	for i < len(b) && alnum(b[i]) {
		i++
	}
	return from, i
}

func previousWord(b []byte, i int) []byte {
	for i > 0 && (b[i-1] == ' ' || b[i-1] == '\t') {
		i--
	}
	from := i
	for from > 0 && alnum(b[from-1]) {
		from--
	}
	return b[from:i]
}

// trailing takes what follows a card number that ends at i: the rest of a magnetic track, or an expiry and then the
// verification value ("4111... 12/25 123", "4111...|12|2025|123").
func (e *Editor) trailing(t *reading, i int) {
	if !e.r.cvv || i >= len(t.b) {
		return
	}
	b := t.b
	switch {
	case b[i] == '=' || b[i]|0x20 == 'd':
		if n := track(b, i+1); n > 0 {
			e.add(t, i+1, i+1+n, hit{kind: kindCVV})
		}
		return
	case b[i] == '^': // track 1: name, then the same data
		for k := i + 1; k < len(b) && k < i+28; k++ {
			if b[k] == '^' {
				if n := track(b, k+1); n > 0 {
					e.add(t, k+1, k+1+n, hit{kind: kindCVV})
				}
				return
			}
		}
		return
	}
	p := between(b, i)
	if p < 0 {
		return
	}
	month, n := digits(b, p)
	if n == 4 && month/100 >= 1 && month/100 <= 12 { // MMYY
		p += n
	} else {
		if n < 1 || n > 2 || month < 1 || month > 12 {
			return
		}
		if p = between(b, p+n); p < 0 {
			return
		}
		if _, n = digits(b, p); n != 2 && n != 4 {
			return
		}
		p += n
	}
	if p = between(b, p); p < 0 {
		return
	}
	if end := codeDigits(b, p); end > 0 {
		e.add(t, p, end, hit{kind: kindCVV})
	}
}

// between passes one separator of a card, expiry and value list; -1 if there is none.
func between(b []byte, i int) int {
	n := 0
	for i+n < len(b) && n < 3 && (b[i+n] == ' ' || b[i+n] == '|' || b[i+n] == '/' || b[i+n] == ':' || b[i+n] == ';' || b[i+n] == ',' || b[i+n] == '-' || b[i+n] == '\t') {
		n++
	}
	if n == 0 || i+n >= len(b) || !digit(b[i+n]) {
		return -1
	}
	return i + n
}

// digits reads at most five digits at i.
func digits(b []byte, i int) (v, n int) {
	for i+n < len(b) && digit(b[i+n]) && n < 5 {
		v = v*10 + int(b[i+n]-'0')
		n++
	}
	return v, n
}
