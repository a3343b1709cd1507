package redact

// scheme is an authentication scheme (RFC 9110): what follows it is credentials.
type scheme uint8

const (
	noScheme     scheme = iota
	tokenScheme         // one token68: Bearer, ApiKey, Negotiate, ...
	basicScheme         // base64 of user:password
	paramsScheme        // name=value, ...: Digest, AWS4-HMAC-SHA256, Hawk
)

// schemeOf reads the scheme name in [from, to) without regard to case. Only names that are no word of every day, or whose
// credentials can be told from prose.
func schemeOf(b []byte, from, to int) scheme {
	w := b[from:to]
	switch {
	case fold(w, "bearer"), fold(w, "apikey"), fold(w, "negotiate"), fold(w, "ntlm"):
		return tokenScheme
	case fold(w, "basic"):
		return basicScheme
	case fold(w, "digest"), fold(w, "hawk"):
		return paramsScheme
	}
	return noScheme
}

// headerScheme is schemeOf for a word that stands as the value of an Authorization header.
func headerScheme(w []byte) scheme {
	switch {
	case fold(w, "bearer"), fold(w, "apikey"), fold(w, "api-key"), fold(w, "negotiate"), fold(w, "ntlm"), fold(w, "token"), fold(w, "key"), fold(w, "jwt"), fold(w, "dpop"),
		fold(w, "sso-key"), fold(w, "oauth2"), fold(w, "privatetoken"), fold(w, "zoho-oauthtoken"), fold(w, "goog"), fold(w, "shared"), fold(w, "sharedkey"), fold(w, "sharedkeylite"),
		fold(w, "genie"), fold(w, "geniekey"), fold(w, "splunk"), fold(w, "ssws"), fold(w, "discordbot"), fold(w, "bot"), fold(w, "vapid"), fold(w, "webpush"), fold(w, "macaroon"),
		fold(w, "basic"):
		return tokenScheme
	case fold(w, "digest"), fold(w, "hawk"), fold(w, "oauth"), fold(w, "signature"), fold(w, "mac"), fold(w, "sharedaccesssignature"), fold(w, "hoba"), fold(w, "mutual"),
		len(w) > 5 && fold(w[:4], "aws4"), len(w) > 5 && fold(w[:5], "scram"), len(w) > 5 && fold(w[:5], "goog4"):
		return paramsScheme
	}
	return noScheme
}

// token68 are the signs of credentials, generously: also ':' and signs of other encodings, so that no tail is left.
func token68(c byte) bool {
	switch c {
	case '-', '.', '_', '~', '+', '/', '=', ':', '|', '!', '$', '@', '*', '#', '^', '%':
		return true
	}
	return alnum(c)
}

// tokenEnd is where credentials that start at i end. A full stop or colon at the end belongs to the sentence.
func tokenEnd(b []byte, i int) int {
	from := i
	for i < len(b) && token68(b[i]) {
		i++
	}
	for i > from && (b[i-1] == '.' || b[i-1] == ':' || b[i-1] == '!') {
		i--
	}
	return i
}

// spacesEnd passes white space; '+' too when it stands for one (form encoding).
func spacesEnd(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\t') {
		i++
	}
	return i
}

// credentials judges what follows the word that ends at i in free text: where they stand if it is a scheme. Prose ("Basic
// authentication failed", "bearer of news") stays.
func credentials(b []byte, i int) (from, to int) {
	word := i
	for word > 0 && alnum(b[word-1]) && i-word < 10 {
		word--
	}
	s := schemeOf(b, word, i)
	if s == noScheme || word > 0 && (b[word-1] == '_' || b[word-1] == '-' || b[word-1] == '/' || b[word-1] == '.') && s != tokenScheme {
		return 0, 0
	}
	if from = spacesEnd(b, i); from == i {
		if i == len(b) || b[i] != '+' { // form encoding
			return 0, 0
		}
		from++
	}
	if s == paramsScheme {
		return from, paramsEnd(b, from)
	}
	to = tokenEnd(b, from)
	if s == basicScheme && !basicToken(b[from:to]) || s == tokenScheme && !secretLooking(b[from:to]) {
		return 0, 0
	}
	return from, to
}

// basicToken says that v is base64 of text with a colon.
func basicToken(v []byte) bool {
	n, bits, acc, colon := 0, 0, 0, false
	for _, c := range v {
		var d int
		switch {
		case c >= 'A' && c <= 'Z':
			d = int(c - 'A')
		case c >= 'a' && c <= 'z':
			d = int(c-'a') + 26
		case digit(c):
			d = int(c-'0') + 52
		case c == '+', c == '-':
			d = 62
		case c == '/', c == '_':
			d = 63
		case c == '=':
			continue
		default:
			return false
		}
		n++
		acc = acc<<6 | d
		if bits += 6; bits >= 8 {
			bits -= 8
			if byte(acc>>bits) == ':' {
				colon = true
			}
		}
	}
	return n >= 4 && colon
}

// secretLooking tells a token from a word: long, or with signs that words do not have.
func secretLooking(v []byte) bool {
	if len(v) < 6 || masked(v) {
		return false
	}
	digits, upper, lower, signs := 0, 0, 0, 0
	for i, c := range v {
		switch {
		case digit(c):
			digits++
		case c >= 'a' && c <= 'z':
			lower++
		case c >= 'A' && c <= 'Z':
			if i > 0 {
				upper++
			}
		default:
			signs++
		}
	}
	switch {
	case len(v) >= 20:
		return true
	case digits > 0:
		return true
	case upper > 0 && lower > 0:
		return true
	}
	return len(v) >= 12 && signs > 0
}

// paramsEnd is where a list of name=value, name="value" ends; i if there is none.
func paramsEnd(b []byte, i int) int {
	end := i
	for {
		p := spacesEnd(b, i)
		n := p
		for n < len(b) && (alnum(b[n]) || b[n] == '-' || b[n] == '_') {
			n++
		}
		if n == p || n >= len(b) || b[n] != '=' {
			return end
		}
		n++
		if n < len(b) && (b[n] == '"' || b[n] == '\'') {
			q := b[n]
			n++
			for n < len(b) && b[n] != q && b[n] != '\n' {
				n++
			}
			if n < len(b) && b[n] == q {
				n++
			}
		} else {
			for n < len(b) && b[n] != ',' && b[n] != ' ' && b[n] != '\n' && b[n] != '"' && b[n] != '\'' && b[n] != '\t' && b[n] != ')' && b[n] != ']' && b[n] != '}' {
				n++
			}
		}
		end = n
		if n >= len(b) || b[n] != ',' && b[n] != '&' && b[n] != ';' {
			return end
		}
		i = n + 1
	}
}

// authValue takes the credentials of an Authorization header whose value starts at from.
func (e *Editor) authValue(t *reading, from int, quote byte) {
	b := t.b
	end := tokenEnd(b, from)
	if end == from {
		return
	}
	w := b[from:end]
	s := headerScheme(w)
	next := spacesEnd(b, end)
	if next == end && next < len(b) && b[next] == '+' {
		next++
	}
	if s == noScheme {
		if k := plusAt(w); k > 0 { // form encoding: Bearer+x
			if s = headerScheme(w[:k]); s != noScheme {
				next = from + k + 1
				end = from + k
			}
		}
	}
	switch {
	case s == paramsScheme && next > end:
		if stop := paramsEnd(b, next); stop > next {
			e.add(t, next, stop, hit{kind: kindAuth})
			return
		}
		fallthrough
	case s != noScheme && next > end && next < len(b):
		if stop := tokenEnd(b, next); stop > next && !prose(b[next:stop]) && !masked(b[next:stop]) {
			e.add(t, next, stop, hit{kind: kindAuth})
		}
		return
	case s != noScheme:
		return // the scheme alone
	}
	if quote != 0 {
		// Quoted: everything in it is the value.
		stop := valueEnd(b, from, quote)
		if next > end && next < stop && !secretLooking(w) {
			from = next
		}
		if stop > from && !masked(b[from:stop]) && !prose(b[from:stop]) {
			e.add(t, from, stop, hit{kind: kindAuth})
		}
		return
	}
	if next > end && !secretLooking(w) {
		if stop := tokenEnd(b, next); secretLooking(b[next:stop]) { // an unknown scheme
			e.add(t, next, stop, hit{kind: kindAuth})
			return
		}
	}
	if !prose(w) && !masked(w) {
		e.add(t, from, end, hit{kind: kindAuth})
	}
}

func plusAt(w []byte) int {
	for i, c := range w {
		if c == '+' {
			return i
		}
	}
	return -1
}

// prose are the words that logs write after "authorization:" or "password:".
func prose(w []byte) bool {
	var buf [16]byte
	if len(w) == 0 || len(w) > len(buf) {
		return len(w) == 0
	}
	for i, c := range w {
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		buf[i] = c
	}
	switch string(buf[:len(w)]) {
	case "failed", "failure", "denied", "required", "missing", "error", "invalid", "none", "null", "nil", "ok", "granted", "header", "is", "was", "not", "the", "for",
		"unauthorized", "expired", "rejected", "declined", "approved", "pending", "true", "false", "must", "may", "should", "cannot", "incorrect",
		"wrong", "empty", "undefined", "mismatch", "succeeded", "success", "service", "server", "unknown", "unsupported", "no", "yes", "absent", "present", "revoked",
		"authentication", "has", "does", "and", "or", "in", "of", "on", "to", "a", "an", "be", "reset", "changed", "unset", "basic", "redacted":
		return true
	}
	return false
}

// cookieValue takes a cookie header to the end of its line or quotation.
func (e *Editor) cookieValue(t *reading, from int, quote byte) {
	b := t.b
	end, assign := from, false
	for end < len(b) && b[end] != '\n' && b[end] != '\r' && (quote == 0 || b[end] != quote) {
		if b[end] == '=' {
			assign = true
		}
		if quote == 0 && (b[end] == '"' || b[end] == '\'' || b[end] == ']') {
			break
		}
		end++
	}
	if assign && end > from && !masked(b[from:end]) {
		e.add(t, from, end, hit{kind: kindAuth})
	}
}

// secretValue takes the value of a key, token or password.
func (e *Editor) secretValue(t *reading, from int, quote byte, colon bool) {
	b := t.b
	end := valueEnd(b, from, quote)
	if end <= from || masked(b[from:end]) {
		return
	}
	if prose(b[from:end]) || end == from+1 && b[from] == '0' {
		return
	}
	if s := headerScheme(b[from:tokenEnd(b, from)]); s != noScheme { // X-Api-Key: Bearer x
		if next := spacesEnd(b, tokenEnd(b, from)); next < len(b) && next > from && (b[next-1] == ' ' || b[next-1] == '\t') {
			if stop := tokenEnd(b, next); stop > next {
				e.add(t, next, stop, hit{kind: kindAuth})
				return
			}
		}
	}
	e.add(t, from, end, hit{kind: kindAuth, literal: colon && quote == 0 && number(b[from:end]) && quoted(b, from)})
}

// maybeValue takes the value of a query parameter whose name is a word of every day, if it looks like a secret.
func (e *Editor) maybeValue(t *reading, from int, quote byte) {
	end := valueEnd(t.b, from, quote)
	digits := 0
	for _, c := range t.b[from:end] {
		if digit(c) {
			digits++
		}
	}
	if end-from >= 12 && digits > 0 && !masked(t.b[from:end]) {
		e.add(t, from, end, hit{kind: kindAuth})
	}
}

// userinfo takes "user:password@" of a URL whose authority starts at i. The host stays readable.
func (e *Editor) userinfo(t *reading, i int) {
	b := t.b
	at := -1
	for k := i; k < len(b); k++ {
		if t.pos != nil && t.encoded(k) && !t.encoded(i-1) {
			continue // %2F, %40: part of a name, unless the whole URL is encoded
		}
		switch b[k] {
		case '/', '?', '#', ' ', '\t', '\n', '\r', '"', '\'', '<', '>', '`', ',', ';':
			k = len(b)
		case '@':
			at = k
		}
	}
	if at > i && !masked(b[i:at]) {
		e.add(t, i, at, hit{kind: kindAuth})
	}
}

// jwts takes JSON web tokens: "eyJ", then base64url parts between full stops.
func (e *Editor) jwts(t *reading) {
	b := t.b
	for i := 0; i+10 < len(b); i++ {
		if b[i] != 'e' || b[i+1] != 'y' || b[i+2] != 'J' || i > 0 && (alnum(b[i-1]) || b[i-1] == '_') {
			continue
		}
		dots, k, last := 0, i, i
		for k < len(b) && (alnum(b[k]) || b[k] == '-' || b[k] == '_' || b[k] == '.' || b[k] == '=') {
			if b[k] == '.' {
				if dots == 0 && k-i < 8 {
					break
				}
				dots++
				last = k
			}
			k++
		}
		if dots > 0 && b[k-1] == '.' && k-1 == last && dots > 2 {
			k--
		}
		if dots >= 2 || dots == 1 && k-last > 8 {
			e.add(t, i, k, hit{kind: kindAuth})
		}
		i = k
	}
}
