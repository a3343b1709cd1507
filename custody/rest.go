package custody

import (
	"regexp"
	"strings"
)

// varying is what may differ in the messages of one cause. Group 1 does by its shape: addresses, ids, times, what stands in quotes. Of the
// rest, quoted words and words with digits, blank decides; plain words are only what comes before.
var varying = regexp.MustCompile(`(?i)([\w.+-]+@[\w-]+(?:\.[\w-]+)+` + // an e-mail address
	`|\b[a-z][a-z0-9+.]*://[^/\s"'<>)\]]+` + // host of a URL; its path tells endpoints apart
	`|\?[\w.~%=&+-]+=[\w.~%=&+-]*` + // query of a URL
	`|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}` +
	`|\d{4}-\d\d-\d\d[t ]\d\d:\d\d(?::\d\d)?[0-9.,:z+-]*` +
	`|\d{1,3}(?:\.\d{1,3}){3}(?::\d+)?` +
	`|\d{4}-\d\d-\d\d|\d{1,2}[-/.]\d{1,2}[-/.]\d{4}\b` +
	`|\[[0-9a-f:]*:[0-9a-f:]+\](?::\d+)?` + // an IPv6 address
	`|\b[\w-]+(?:\.[\w-]+)*\.(?:internal|local|lan|corp|intranet|example\.[a-z]+|amazonaws\.com)\b(?::\d+)?` +
	`|\d{1,2}:\d\d(?::\d\d)?(?:[.,]\d+)?` +
	`|@[0-9a-f]{4,}\b|\$\$[0-9a-f]{6,}|\b0x[0-9a-f]+` + // identity of an object, a generated class, an address
	`|\d+[.,]\d+ (?-i:[A-Z]{3})\b` + // an amount
	`|"[^"]{0,200}")` +
	`|\B'[^']{0,200}'` +
	`|[a-z0-9_$-]*\d+(?:[.,]\d+)*[a-z0-9_$-]*|[a-z]+(?:_[a-z0-9]{8,})?`)

// parsed is how parsers name what they did not expect.
var parsed = regexp.MustCompile(`(?i)\b((?:unexpected|unrecognized|invalid) (?:token|character)) \S+(?: \(code \d+[^()]{0,40}\)+)?`)

var (
	named    = regexp.MustCompile(`^'[A-Za-z_][A-Za-z_.]+'$`)
	shortID  = regexp.MustCompile(`^[A-Za-z]{2,5}_[A-Za-z0-9]*([a-z][A-Z0-9]|[A-Z0-9][a-z])[A-Za-z0-9]*$`)
	hexID    = regexp.MustCompile(`^[0-9a-fA-F]{8,}$`)
	oneCase  = regexp.MustCompile(`^([a-z0-9$]+|[A-Z0-9$]+)$`)
	segments = regexp.MustCompile(`[A-Za-z0-9$]*\d[A-Za-z0-9$]*`)
	codes    = regexp.MustCompile(`^(ORA|PLS|TNS|SQL|SQLSTATE|ERR|DB2|CVE)-?\d+[A-Z]?$`)
)

// statusWords come before numbers that say what went wrong; other numbers say where, when and how much.
var statusWords = map[string]bool{"http": true, "status": true, "code": true, "errno": true, "error": true, "err": true, "sqlstate": true,
	"exit": true, "signal": true, "rc": true, "response": true}

// valueWords come before a quoted value; other quoted words are names of fields, types and constraints.
var valueWords = map[string]bool{"token": true, "value": true, "string": true, "literal": true, "input": true, "text": true, "character": true,
	"entry": true, "base": true, "data": true, "customer": true}

const maxRest = 200

// rest is what a message says about its cause: without what varies from record to record, and bounded.
func rest(message string) string {
	message = parsed.ReplaceAllString(message, "$1 #")
	var b strings.Builder
	from, before := 0, ""
	for _, at := range varying.FindAllStringSubmatchIndex(message, -1) {
		word := message[at[0]:at[1]]
		b.WriteString(message[from:at[0]])
		from = at[1]
		switch {
		case at[2] >= 0:
			b.WriteByte('#')
		case isLetters(word):
			before = strings.ToLower(word)
			b.WriteString(word)
		default:
			b.WriteString(blank(word, before))
		}
	}
	b.WriteString(message[from:])
	out := b.String()
	if r := []rune(out); len(r) > maxRest {
		out = string(r[:maxRest])
	}
	return out
}

func isLetters(s string) bool {
	for _, c := range []byte(s) {
		if (c|0x20) < 'a' || (c|0x20) > 'z' {
			return false
		}
	}
	return true
}

// blank leaves of a word what does not vary; before is the word before it, in small letters.
func blank(word, before string) string {
	switch {
	case word[0] == '\'':
		if named.MatchString(word) && !valueWords[before] {
			return word
		}
		return "#"
	case codes.MatchString(word):
		return word
	case word[0] >= '0' && word[0] <= '9':
		if statusWords[before] && len(word) <= 5 && strings.Trim(word, "0123456789") == "" {
			return word
		}
		return "#"
	case shortID.MatchString(word), hexID.MatchString(word):
		return "#"
	case len(word) >= 10 && !strings.ContainsAny(word, "-_") && (!oneCase.MatchString(word) || digits(word) >= 3):
		return "#" // letters of both cases and digits, or many digits: no word of a language
	case strings.ContainsAny(word, "-_$"):
		return segments.ReplaceAllString(word, "#") // db-07, INV-1042, pool-3-thread-7
	}
	return word // utf8, x509, v1
}

func digits(s string) (n int) {
	for _, c := range []byte(s) {
		if c >= '0' && c <= '9' {
			n++
		}
	}
	return n
}
