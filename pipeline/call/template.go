package call

import (
	"net/url"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// The most that one value and one whole URL may have, escaped.
const (
	maxValue = 2 << 10
	maxURL   = 8 << 10
)

// Names are the identity fields that a template may name.
var names = []string{"event_id", "entity", "business_id", "idempotency_token", "version", "tenant"}

// Template is a URL with placeholders: {/path} is a field of the record, {name} an identity field (event_id, entity,
// business_id, idempotency_token, version, tenant). Scheme, host and port are fixed. It is immutable and safe for concurrent
// use.
type Template struct {
	text   string
	origin string
	path   int // where the path starts in an expanded URL: everything before is fixed
	parts  []part
	named  bool
}

// part is a literal and the placeholder behind it.
type part struct {
	literal string
	path    *pipeline.Path
	name    string
	shown   string // as the file spells it
	last    bool   // nothing behind the literal
}

// ParseTemplate compiles a URL template. Codes: ERR_CONFIG_VALUE.
func ParseTemplate(text string) (*Template, error) {
	bad := func(why, remedy string) (*Template, error) {
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, text, "%s", why).With(remedy)
	}
	t := &Template{text: text}
	var probe strings.Builder // the URL with a letter for each placeholder
	for rest := text; ; {
		literal, after, found := strings.Cut(rest, "{")
		if strings.ContainsRune(literal, '}') {
			return bad("a '}' has no '{'", "write %7D for a brace")
		}
		probe.WriteString(literal)
		p := part{literal: literal, last: !found}
		if !found {
			t.parts = append(t.parts, p)
			break
		}
		inside, behind, closed := strings.Cut(after, "}")
		if !closed {
			return bad("a '{' has no '}'", "write {/path} for a field of the record")
		}
		p.shown = "{" + inside + "}"
		switch {
		case len(inside) > 1 && inside[0] == '/':
			path, err := pipeline.NewPath(inside)
			if err != nil {
				return nil, err
			}
			p.path = path
		case slices.Contains(names, inside):
			p.name, t.named = inside, true
		default:
			return bad(p.shown+" is neither a path nor an identity field", "write {/path}, or one of "+strings.Join(names, ", ")+" in braces")
		}
		if !authorityEnds(probe.String()) {
			return bad(p.shown+" stands in the host: a record must not say which server is asked", "write the host out; placeholders go into the path or the query")
		}
		probe.WriteByte('x')
		t.parts = append(t.parts, p)
		rest = behind
	}
	u, err := url.Parse(probe.String())
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.Opaque != "":
		return bad("it is not an http or https URL", "for example https://accounts/{/account_id}")
	case u.User != nil:
		return bad("credentials in a URL end up in logs", "send them as a header")
	case u.Fragment != "" || strings.ContainsRune(text, '#'):
		return bad("a URL that is asked has no fragment", "remove '#' and what is behind it")
	case strings.IndexFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '\\' || r == '"' || r == '<' || r == '>' }) >= 0:
		return bad("a character must be escaped", "write it as %XX")
	}
	if name := credential(text); name != "" {
		return bad("the query parameter "+name+" is a credential: URLs end up in logs", "send it as a header")
	}
	t.origin = u.Scheme + "://" + u.Host
	t.path = strings.Index(text, "://") + 3
	t.path += len(u.Host)
	if climbs(probe.String()[t.path:]) {
		return bad("the path has a '.' or '..' segment", "write the path that is meant")
	}
	return t, nil
}

// credentials are names of query parameters that carry secrets, without '_' and '-'.
var credentials = []string{"token", "accesstoken", "apikey", "apitoken", "secret", "clientsecret", "password", "passwd", "pwd", "sig", "signature", "authorization"}

// credential is the name of a query parameter of a URL that has a secret written out; a placeholder is a field of the record.
func credential(text string) string {
	_, query, _ := strings.Cut(text, "?")
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		plain := strings.NewReplacer("_", "", "-", "").Replace(strings.ToLower(name))
		if value != "" && !strings.Contains(value, "{") && slices.Contains(credentials, plain) {
			return name
		}
	}
	return ""
}

// authorityEnds tells whether host and port are complete in the beginning of a URL.
func authorityEnds(begin string) bool {
	_, rest, ok := strings.Cut(begin, "://")
	return ok && strings.ContainsAny(rest, "/?")
}

// String is the template as the file spells it.
func (t *Template) String() string { return t.text }

// Origin is scheme, host and port.
func (t *Template) Origin() string { return t.origin }

// Named tells whether the template names identity fields.
func (t *Template) Named() bool { return t.named }

// ReadsView tells whether the template reads the record's fields: without a view (a delete marker) it cannot be expanded.
func (t *Template) ReadsView() bool {
	return slices.ContainsFunc(t.parts, func(p part) bool { return p.path != nil })
}

// Append appends the URL of one record; id is only read if the template is Named. When a placeholder has no value or one that
// cannot stand in a URL, at is the placeholder and why the reason, and nothing must be asked. Every byte of a value that is not
// a letter, digit or one of -._~ is escaped, so that a value stays within its segment or parameter (INV-CALL-ORIGIN): it never
// becomes a host, a header, another parameter or a way up. It allocates nothing beyond dst.
func (t *Template) Append(dst []byte, v pipeline.View, id *pipeline.Identity) (out []byte, at, why string) {
	start := len(dst)
	for i := range t.parts {
		p := &t.parts[i]
		dst = append(dst, p.literal...)
		if p.last {
			break
		}
		var room [64]byte
		value := room[:0]
		if p.path == nil {
			value = append(value, nameOf(id, p.name)...)
		} else if v != nil {
			if got, ok := v.Get(p.path); ok {
				value = got.AppendText(value)
			}
		}
		switch {
		case len(value) == 0:
			return dst[:start], p.shown, "absent"
		case len(value) > maxValue:
			return dst[:start], p.shown, "too long"
		}
		dst = escape(dst, value)
	}
	switch {
	case len(dst)-start > maxURL:
		return dst[:start], t.text, "too long"
	case climbs(dst[start+t.path:]):
		return dst[:start], t.text, "leaves its path"
	}
	return dst, "", ""
}

func nameOf(id *pipeline.Identity, name string) string {
	if id == nil {
		return ""
	}
	switch name {
	case "event_id":
		return id.EventID
	case "entity":
		return id.Entity
	case "business_id":
		return id.BusinessID
	case "idempotency_token":
		return id.Token
	case "version":
		return id.Version
	case "tenant":
		if id.Tenant != pipeline.TenantUnassigned {
			return id.Tenant
		}
	}
	return ""
}

func escape(dst, value []byte) []byte {
	const hex = "0123456789ABCDEF"
	for _, c := range value {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '.' || c == '_' || c == '~' {
			dst = append(dst, c)
			continue
		}
		dst = append(dst, '%', hex[c>>4], hex[c&15])
	}
	return dst
}

// climbs tells whether a path has a segment that servers resolve as "here" or "up", also one hidden by escaped slashes,
// backslashes or path parameters ("..%2F", "..;").
func climbs[T string | []byte](s T) bool {
	dots, other := 0, false
	for i := 0; ; i++ {
		c, end := byte(0), i >= len(s) || s[i] == '?'
		if !end {
			c = s[i]
			if c == '%' && i+2 < len(s) {
				c = unhex(s[i+1])<<4 | unhex(s[i+2])
				i += 2
			}
		}
		switch {
		case end || c == '/' || c == '\\' || c == ';':
			if !other && (dots == 1 || dots == 2) {
				return true
			}
			dots, other = 0, c == ';'
		case c == '.':
			dots++
		default:
			other = true
		}
		if end {
			return false
		}
	}
}

func unhex(c byte) byte {
	switch {
	case c >= '0' && c <= '9':
		return c - '0'
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10
	}
	return 0
}
