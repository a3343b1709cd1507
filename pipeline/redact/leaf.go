package redact

// number finds what goes in a number under a name that means m. The whole of it or nothing.
func (e *Editor) number(s []byte, m meaning) {
	if len(s) == 0 || len(s) == 1 && s[0] == '0' {
		return
	}
	switch {
	case m == meansKept:
		return
	case m == meansCode && e.r.cvv:
		e.hits = append(e.hits, hit{to: len(s), kind: kindCVV, literal: true})
		return
	case (m == meansSecret || m == meansAuth || m == meansCookie) && e.r.auth:
		e.hits = append(e.hits, hit{to: len(s), kind: kindAuth, literal: true})
		return
	}
	if len(s) >= minDigits && s[0] != '-' && e.r.pan {
		if d, ok := wholeDigits(e.digits[:0], s); ok && len(d) >= minDigits && len(d) <= 19 &&
			(m != means || mayStartCard(d[0], d[1])) && e.r.isCard(d, m, false) {
			e.hits = append(e.hits, hit{to: len(s), kind: kindPAN, digits: uint8(len(d)), literal: true})
			return
		}
	}
	if len(e.r.patterns) > 0 {
		from := len(e.hits)
		e.matchPatterns(s)
		if len(e.hits) > from { // a number cannot go in part
			e.hits[from].from, e.hits[from].to, e.hits[from].literal = 0, len(s), true
			e.hits = e.hits[:from+1]
		}
	}
}

// wholeDigits appends the digits of a number without a fraction: 4111111111111111, 4111111111111111.00, 4.111111111111111E15.
func wholeDigits(dst, s []byte) ([]byte, bool) {
	point, exp := -1, 0
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case digit(c):
			if len(dst) == cap(dst) {
				return dst, false
			}
			dst = append(dst, c)
		case c == '.' && point < 0:
			point = len(dst)
		case c == 'e' || c == 'E':
			for i++; i < len(s); i++ {
				if s[i] == '-' || exp > 100 {
					return dst, false
				}
				if digit(s[i]) {
					exp = exp*10 + int(s[i]-'0')
				}
			}
		default:
			return dst, false
		}
	}
	if point < 0 {
		point = len(dst)
	}
	point += exp
	for len(dst) > point && dst[len(dst)-1] == '0' {
		dst = dst[:len(dst)-1]
	}
	if len(dst) > point || point > 19 {
		return dst, false
	}
	for len(dst) < point {
		dst = append(dst, '0')
	}
	return dst, true
}

// codeLeaf takes the whole value of a field that means a verification value. What cannot be one stays: nothing, a mask, one
// letter, a word.
func (e *Editor) codeLeaf(s []byte) {
	n := 0
	e.norm, e.pos = unescape(s, e.norm, e.pos)
	for _, c := range e.norm {
		if digit(c) {
			n++
		}
	}
	if n > 0 {
		e.hits = append(e.hits, hit{to: len(s), kind: kindCVV})
	}
}

// secretLeaf takes the whole value of a field that means a credential. Words of logs ("missing") and masks stay.
func (e *Editor) secretLeaf(s []byte) {
	i, end := trim(s)
	if i == end || masked(s[i:end]) || prose(s[i:end]) {
		return
	}
	e.hits = append(e.hits, hit{from: 0, to: len(s), kind: kindAuth})
}

// authLeaf takes the credentials of an Authorization value; its scheme stays readable.
func (e *Editor) authLeaf(s []byte) {
	i, end := trim(s)
	if i == end || masked(s[i:end]) || prose(s[i:end]) {
		return
	}
	k := i
	for k < end && s[k] != ' ' && s[k] != '\t' && s[k] != '+' && s[k] != '%' && s[k] != '\\' {
		k++
	}
	next := k
	for next < end && (s[next] == ' ' || s[next] == '\t' || s[next] == '+') {
		next++
	}
	if k == end && headerScheme(s[i:k]) != noScheme {
		return // the scheme alone
	}
	if next > k && next < end && (headerScheme(s[i:k]) != noScheme || !secretLooking(s[i:k]) && plainWord(s[i:k])) {
		if !masked(s[next:end]) && !prose(s[next:end]) {
			e.hits = append(e.hits, hit{from: next, to: end, kind: kindAuth})
		}
		return
	}
	e.hits = append(e.hits, hit{from: 0, to: len(s), kind: kindAuth})
}

func plainWord(w []byte) bool {
	for _, c := range w {
		if !letter(c) && c != '-' {
			return false
		}
	}
	return len(w) > 0
}

func trim(s []byte) (from, to int) {
	to = len(s)
	for from < to && (s[from] == ' ' || s[from] == '\t' || s[from] == '\n' || s[from] == '\r') {
		from++
	}
	for to > from && (s[to-1] == ' ' || s[to-1] == '\t' || s[to-1] == '\n' || s[to-1] == '\r') {
		to--
	}
	return from, to
}

// matchPatterns finds the user's own patterns in s.
func (e *Editor) matchPatterns(s []byte) {
	for i := range e.r.patterns {
		p := &e.r.patterns[i]
		if !p.re.Match(s) { // allocates nothing; finding does
			continue
		}
		for _, at := range p.re.FindAllIndex(s, -1) {
			if at[1] > at[0] {
				e.hits = append(e.hits, hit{from: at[0], to: at[1], kind: kindPattern, rule: uint16(i + 1)})
			}
		}
	}
}
