package custody

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// Term is one condition of a selection.
type Term struct {
	Not    bool
	Name   string
	Op     byte // '=', '>' or '<'
	Values []string
}

// Selection is a parsed selection (CONTRACTS 9): all terms must hold. The empty one is every item.
type Selection struct{ Terms []Term }

type termKind uint8

const (
	termText termKind = iota
	termState
	termClass
	termNumber
	termAge
	termConfirmed
	termFlag
	termDigest
	termGroup
)

// terms are the names and the columns behind them.
var terms = map[string]struct {
	column string
	kind   termKind
}{
	"id": {"id", termText}, "tenant": {"tenant", termText}, "state": {"state", termState}, "kind": {"kind", termText}, "dialect": {"dialect", termText},
	"pipeline": {"pipeline", termText}, "consumer": {"consumer", termText}, "release": {"release", termText}, "event": {"event_id", termText},
	"entity": {"entity", termText}, "business": {"business_id", termText}, "topic": {"topic", termText}, "partition": {"partition", termNumber},
	"offset": {"source_offset", termNumber}, "class": {"class", termClass}, "code": {"code", termText}, "fingerprint": {"fingerprint", termText},
	"stage": {"stage", termText}, "schema": {"schema_ref", termText}, "policy": {"policy", termDigest}, "attempts": {"attempts", termNumber},
	"faithful": {"faithful", termText}, "owner": {"owner", termText}, "ticket": {"ticket", termText}, "redrive": {"redrive", termText},
	"try": {"redrive_try", termNumber}, "resolution": {"resolution", termText}, "sightings": {"sightings", termNumber}, "age": {"quarantined_ms", termAge},
	"idle": {"coalesce(last_seen_ms, quarantined_ms)", termAge}, "confirmed": {"confirmed", termConfirmed}, "flag": {"flags", termFlag}, "generation": {"coalesce(generation, 0)", termNumber}, "data": {"coalesce(data_class, '')", termText}, "group": {"", termGroup},
}

// Terms are the names that a selection may use.
func Terms() []string {
	out := make([]string, 0, len(terms))
	for n := range terms {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func selectionError(term, format string, args ...any) *pipeline.Error {
	return pipeline.Errorf(pipeline.CodeSelectionInvalid, term, format, args...).
		With("Write terms like class=payload age>3d !owner=ops, joined by spaces. The terms are: " + strings.Join(Terms(), ", ") + ".")
}

// ParseSelection reads a selection such as "class=payload code=A|B tenant=acme age>3d !owner=ops". A value with spaces or bars
// stands in double quotes. "state=open" is every open state. Codes: ERR_SELECTION_INVALID, with the list of terms.
func ParseSelection(text string) (Selection, error) {
	var s Selection
	for {
		text = strings.TrimLeft(text, " \t\n")
		if text == "" {
			return s, nil
		}
		t, rest, err := parseTerm(text)
		if err != nil {
			return Selection{}, err
		}
		s.Terms = append(s.Terms, t)
		text = rest
	}
}

func parseTerm(text string) (Term, string, error) {
	var t Term
	whole, _, _ := strings.Cut(text, " ")
	if strings.HasPrefix(text, "!") {
		t.Not, text = true, text[1:]
	}
	n := 0
	for n < len(text) && (text[n] >= 'a' && text[n] <= 'z' || text[n] == '_') {
		n++
	}
	t.Name = text[:n]
	def, ok := terms[t.Name]
	if !ok {
		name := t.Name
		if name == "" {
			name = whole
		}
		e := selectionError(whole, "%q is not a term", name)
		if near := config.Nearest(name, Terms()); near != "" {
			e.Remedy = near + " " + e.Remedy
		}
		return t, "", e
	}
	if n == len(text) || text[n] != '=' && text[n] != '<' && text[n] != '>' {
		return t, "", selectionError(whole, "after %q comes =, < or >", t.Name)
	}
	t.Op, text = text[n], text[n+1:]
	if ordered := def.kind == termNumber || def.kind == termAge; t.Op != '=' && !ordered {
		return t, "", selectionError(whole, "%q can only be compared with =", t.Name)
	} else if def.kind == termAge && t.Op == '=' {
		return t, "", selectionError(whole, "%q is compared with < or >", t.Name)
	}
	for {
		var v string
		var err error
		if v, text, err = parseValue(whole, text); err != nil {
			return t, "", err
		}
		if err := checkValue(whole, def.kind, v); err != nil {
			return t, "", err
		}
		t.Values = append(t.Values, v)
		if !strings.HasPrefix(text, "|") {
			break
		}
		text = text[1:]
	}
	if t.Op != '=' && len(t.Values) > 1 {
		return t, "", selectionError(whole, "< and > take one value")
	}
	if text != "" && !strings.ContainsRune(" \t\n", rune(text[0])) {
		return t, "", selectionError(whole, "terms are joined by spaces")
	}
	return t, text, nil
}

func parseValue(whole, text string) (v, rest string, err error) {
	if strings.HasPrefix(text, `"`) {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return "", "", selectionError(whole, "the quotes do not close")
		}
		v, err = strconv.Unquote(quoted)
		if err != nil {
			return "", "", selectionError(whole, "the quoted value cannot be read")
		}
		return v, text[len(quoted):], nil
	}
	n := strings.IndexAny(text, " \t\n|\"")
	if n < 0 {
		n = len(text)
	}
	if n == 0 {
		return "", "", selectionError(whole, `a value is missing; an empty one is ""`)
	}
	return text[:n], text[n:], nil
}

func checkValue(whole string, kind termKind, v string) error {
	ok, want := true, ""
	switch kind {
	case termState:
		_, ok = ParseState(v)
		ok, want = ok || v == "open", "open or a state: "+stateNames()
	case termClass:
		_, ok = pipeline.ParseClass(v)
		want = "one of " + strings.Join(pipeline.ClassNames(), ", ")
	case termNumber:
		_, err := strconv.ParseInt(v, 10, 64)
		ok, want = err == nil, "a whole number"
	case termAge:
		_, ok = parseAge(v)
		want = "a duration such as 30d, 12h, 15m"
	case termConfirmed:
		ok, want = v == "yes" || v == "no" || v == "unknown", "yes, no or unknown"
	case termFlag:
		ok, want = slices.Contains(flagNames, v), "one of "+strings.Join(flagNames, ", ")
	}
	if !ok {
		return selectionError(whole, "%q is not a value of it: it takes %s", v, want)
	}
	return nil
}

func stateNames() string {
	var names []string
	for _, s := range States() {
		names = append(names, string(s))
	}
	return strings.Join(names, ", ")
}

// parseAge reads 30d, 12h, 15m, 10s; they may be joined: 1d12h.
func parseAge(s string) (time.Duration, bool) {
	days := time.Duration(0)
	if i := strings.IndexByte(s, 'd'); i > 0 {
		n, err := strconv.ParseInt(s[:i], 10, 32)
		if err != nil || n < 0 || n > 36500 {
			return 0, false
		}
		days, s = time.Duration(n)*24*time.Hour, s[i+1:]
		if s == "" {
			return days, true
		}
	}
	d, err := time.ParseDuration(s)
	return days + d, err == nil && d >= 0
}

// String is the selection in its canonical spelling.
func (s Selection) String() string {
	var b strings.Builder
	for i, t := range s.Terms {
		if i > 0 {
			b.WriteByte(' ')
		}
		if t.Not {
			b.WriteByte('!')
		}
		b.WriteString(t.Name)
		b.WriteByte(t.Op)
		for j, v := range t.Values {
			if j > 0 {
				b.WriteByte('|')
			}
			if v == "" || strings.ContainsAny(v, " \t\r\n|\"\\") || strconv.Quote(v) != `"`+v+`"` {
				v = strconv.Quote(v)
			}
			b.WriteString(v)
		}
	}
	return b.String()
}

// Tenants are the tenants that the selection names, or nil if it names none.
func (s Selection) Tenants() []string {
	for _, t := range s.Terms {
		if t.Name == "tenant" && !t.Not {
			return t.Values
		}
	}
	return nil
}

// where is the condition over items.
func (s Selection) where(tx *ledger.Tx) (string, []any) {
	cond, args := "1 = 1", []any{}
	for _, t := range s.Terms {
		c, a := t.where(tx)
		if t.Not {
			c = "NOT (" + c + ")"
		}
		cond += " AND " + c
		args = append(args, a...)
	}
	return cond, args
}

func (t Term) where(tx *ledger.Tx) (string, []any) {
	def := terms[t.Name]
	switch def.kind {
	case termAge:
		d, _ := parseAge(t.Values[0])
		if t.Op == '>' {
			return def.column + " < ?", []any{tx.NowMS() - d.Milliseconds()}
		}
		return def.column + " > ?", []any{tx.NowMS() - d.Milliseconds()}
	case termNumber:
		var parts []string
		var args []any
		for _, v := range t.Values {
			n, _ := strconv.ParseInt(v, 10, 64)
			parts = append(parts, def.column+" "+string(t.Op)+" ?")
			args = append(args, n)
		}
		return "(" + strings.Join(parts, " OR ") + ")", args
	case termDigest:
		var parts []string
		var args []any
		for _, v := range t.Values {
			parts = append(parts, def.column+" = ?")
			args = append(args, packDigest(pipeline.Digest(v)))
		}
		return "(" + strings.Join(parts, " OR ") + ")", args
	case termConfirmed:
		var parts []string
		for _, v := range t.Values {
			parts = append(parts, map[string]string{"no": "confirmed IN (0, 3)", "yes": "confirmed = 1", "unknown": "confirmed = 2"}[v])
		}
		return "(" + strings.Join(parts, " OR ") + ")", nil
	case termFlag:
		bits := 0
		for _, v := range t.Values {
			bits |= 1 << slices.Index(flagNames, v)
		}
		return "(flags & " + strconv.Itoa(bits) + ") <> 0", nil
	case termState:
		var states []string
		for _, v := range t.Values {
			if v == "open" {
				for _, s := range States() {
					if s.Open() {
						states = append(states, string(s))
					}
				}
				continue
			}
			s, _ := ParseState(v)
			states = append(states, string(s))
		}
		c, a := tx.In(def.column, states)
		return c, []any{a}
	}
	if def.kind == termGroup { // not by coalesce: each half has its index
		a, arg := tx.In("group_key", t.Values)
		b, arg2 := tx.In("fingerprint", t.Values)
		return "(" + a + " OR (group_key IS NULL AND " + b + "))", []any{arg, arg2}
	}
	partial := ""
	switch def.column {
	case "entity", "event_id", "owner", "redrive": // their indexes leave out empty ones: the query must say that it does, too
		if !slices.Contains(t.Values, "") {
			partial = " AND " + def.column + " <> ''"
		}
	}
	if len(t.Values) == 1 {
		return def.column + " = ?" + partial, []any{t.Values[0]}
	}
	c, a := tx.In(def.column, t.Values)
	return c + partial, []any{a}
}
