package redact_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/redact"
)

// schemes are issuer prefixes and lengths as the schemes publish them, written here apart from the table of the detector.
var schemes = []struct {
	prefix string
	length int
}{
	{"4", 16}, {"4", 19}, {"51", 16}, {"53", 16}, {"55", 16}, {"2221", 16}, {"2500", 16}, {"2720", 16}, {"34", 15}, {"37", 15}, {"6011", 16}, {"644", 16},
	{"65", 16}, {"36", 14}, {"38", 14}, {"3095", 14}, {"3528", 16}, {"3589", 16}, {"62", 16}, {"62", 19}, {"5018", 12}, {"5038", 13}, {"6304", 16}, {"6759", 18}, {"6763", 12},
	{"2200", 16}, {"9792", 16}, {"508", 16},
}

// drawCard makes a number that passes Luhn, by trying the last digit.
func drawCard(t *rapid.T) string {
	s := rapid.SampledFrom(schemes).Draw(t, "scheme")
	d := s.prefix + rapid.StringMatching(fmt.Sprintf("[0-9]{%d}", s.length-len(s.prefix)-1)).Draw(t, "digits")
	for c := '0'; c <= '9'; c++ {
		if passesLuhn(d + string(c)) {
			return d + string(c)
		}
	}
	panic("no digit passes")
}

func passesLuhn(d string) bool {
	table := [...]int{0, 2, 4, 6, 8, 1, 3, 5, 7, 9}
	sum := 0
	for i := range len(d) {
		v := int(d[len(d)-1-i] - '0')
		if i%2 == 1 {
			v = table[v]
		}
		sum += v
	}
	return sum%10 == 0
}

func drawSpelling(t *rapid.T, card string) string {
	group := func(sep string) string {
		sizes := []int{4, 4, 4, 4, 4}
		if len(card) == 15 {
			sizes = []int{4, 6, 5}
		}
		var parts []string
		for rest, i := card, 0; rest != ""; i++ {
			n := min(sizes[min(i, len(sizes)-1)], len(rest))
			parts = append(parts, rest[:n])
			rest = rest[n:]
		}
		return strings.Join(parts, sep)
	}
	switch rapid.IntRange(0, 3).Draw(t, "spelling") {
	case 1:
		return group(" ")
	case 2:
		return group("-")
	case 3:
		if len(card)%4 == 0 || len(card) == 15 {
			return group("\u00a0")
		}
	}
	return card
}

// drawText makes prose without a digit.
func drawText(t *rapid.T) string {
	words := rapid.SliceOfN(rapid.SampledFrom([]string{"paid", "by", "Köln", "the", "customer", "said", "—", "refund", "日本", "(ok)", "\"quoted\"", "x", "\\", "€", "due", "{", "]", "line\nbreak", "tab\there"}), 0, 6).Draw(t, "words")
	return strings.Join(words, " ")
}

// plantedDoc is a random document with cards in it.
type plantedDoc struct {
	cards []string // as spelled, with JSON escapes resolved
	n     int
}

func (p *plantedDoc) value(t *rapid.T, depth int) any {
	switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
	case k == 0 && depth < 4:
		m := map[string]any{}
		for range rapid.IntRange(0, 4).Draw(t, "members") {
			p.n++
			m[fmt.Sprintf("%s%c%d", rapid.SampledFrom([]string{"note", "value", "x", "holder"}).Draw(t, "name"), 'a'+p.n%26, p.n)] = p.value(t, depth+1)
		}
		return m
	case k == 1 && depth < 4:
		a := []any{}
		for range rapid.IntRange(0, 4).Draw(t, "items") {
			a = append(a, p.value(t, depth+1))
		}
		return a
	case k == 2 && depth < 3:
		b, err := json.Marshal(p.value(t, depth+1))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	case k <= 4:
		card := drawSpelling(t, drawCard(t))
		p.cards = append(p.cards, card)
		before, after := drawText(t), drawText(t)
		if before != "" {
			before += " "
		}
		if after != "" {
			after = " " + after
		}
		return before + card + after
	case k == 5:
		card := drawCard(t)
		p.cards = append(p.cards, card)
		return json.Number(card)
	case k == 6:
		return json.Number(fmt.Sprint(1_700_000_000_000 + rapid.Int64Range(0, 200_000_000_000).Draw(t, "ms")))
	case k == 7:
		return rapid.StringMatching(`[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{11}[a-f]`).Draw(t, "uuid")
	case k == 8:
		return drawText(t)
	}
	return rapid.Bool().Draw(t, "bool")
}

// scrub takes the planted cards out of a decoded document: what redaction must leave is the rest.
func scrub(x any, cards []string, mask func(string) string) any {
	switch x := x.(type) {
	case map[string]any:
		m := map[string]any{}
		for k, v := range x {
			m[k] = scrub(v, cards, mask)
		}
		return m
	case []any:
		a := make([]any, len(x))
		for i, v := range x {
			a[i] = scrub(v, cards, mask)
		}
		return a
	case json.Number:
		for _, c := range cards {
			if string(x) == c {
				return json.Number("0")
			}
		}
		return x
	case string:
		var inner any
		d := json.NewDecoder(strings.NewReader(x))
		d.UseNumber()
		if (strings.HasPrefix(x, "{") || strings.HasPrefix(x, "[") || strings.HasPrefix(x, `"`)) && d.Decode(&inner) == nil && !d.More() {
			b, _ := json.Marshal(scrub(inner, cards, mask))
			return string(b)
		}
		for _, c := range cards {
			x = strings.ReplaceAll(x, c, mask(c))
		}
		return x
	}
	return x
}

// mask is what the detector writes for a spelling: one sign a digit; separators stay where they are ASCII.
func maskOf(card string) string {
	if strings.Contains(card, "\u00a0") {
		return strings.Repeat("*", len(strings.ReplaceAll(card, "\u00a0", "")))
	}
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return '*'
		}
		return r
	}, card)
}

// INV-REDACT-ALL-AND-ONLY: in random documents exactly the planted cards go; the documents stay documents, and all other
// bytes stay.
func TestPlantedCardsGoAndNothingElse(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	decoder, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	scratch, editor := codec.NewScratch(), r.NewEditor()
	rapid.Check(t, func(t *rapid.T) {
		p := &plantedDoc{}
		doc := map[string]any{"root": p.value(t, 0), "more": p.value(t, 0), "id": "47223179-9330-4259-b66c-f2db26efb20c"}
		in, err := json.Marshal(doc)
		if err != nil {
			t.Fatal(err)
		}
		want := scrub(decodeAny(t, in), p.cards, maskOf)

		scratch.Reset()
		v, f := decoder.Decode(context.Background(), scratch, in, nil)
		if f != nil {
			t.Fatal(f.Reason())
		}
		out, changed, err := r.Value(nil, v, editor)
		if err != nil {
			t.Fatal(err)
		}
		if !changed {
			out = in
		}
		if changed != (len(p.cards) > 0) {
			t.Fatalf("changed is %t with %d cards in %s", changed, len(p.cards), in)
		}
		if got := decodeAny(t, out); !sameJSON(got, want) {
			t.Fatalf("%s\nbecame %s\nwant   %s", in, out, mustJSON(want))
		}
		// The same bytes without a codec: in place.
		c, err := r.Sanitize("orders", &pipeline.Record{Value: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Value) != len(in) || c.Changed != changed {
			t.Fatalf("%s became %s", in, c.Value)
		}
		for _, card := range p.cards {
			if bytes.Contains(c.Value, []byte(card)) {
				t.Fatalf("%s is left in %s", card, c.Value)
			}
		}
		decodeAny(t, c.Value)
		// And as a line of a log.
		line := r.Text("got " + string(in) + " from a topic")
		for _, card := range p.cards {
			if strings.Contains(line, card) {
				t.Fatalf("%s is left in %s", card, line)
			}
		}
	})
}

func decodeAny(t interface{ Fatalf(string, ...any) }, b []byte) any {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var x any
	if err := d.Decode(&x); err != nil {
		t.Fatalf("%v in %s", err, b)
	}
	return x
}

func mustJSON(x any) string {
	b, err := json.Marshal(x)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// sameJSON compares with documents inside strings as documents.
func sameJSON(a, b any) bool { return mustJSON(scrub(a, nil, nil)) == mustJSON(scrub(b, nil, nil)) }

// INV-REDACT-IN-PLACE: between binary bytes every planted card is masked and no other byte changes.
func TestCardsBetweenBinaryBytes(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	rapid.Check(t, func(t *rapid.T) {
		var in, want []byte
		noise := func() {
			// Bytes that are no digits and end a number: controls and bytes above 0x80 in no order that is a varint of a card.
			for range rapid.IntRange(1, 6).Draw(t, "noise") {
				b := rapid.SampledFrom([]byte{0, 1, 2, 3, 0x0e, 0x10, 0x7f, 0xff, 0xfe, 0xc3}).Draw(t, "byte")
				in, want = append(in, b), append(want, b)
			}
		}
		n := rapid.IntRange(1, 4).Draw(t, "cards")
		for range n {
			noise()
			card := drawCard(t)
			switch rapid.IntRange(0, 3).Draw(t, "how") {
			case 0: // between bytes
				in, want = append(in, card...), append(want, maskOf(card)...)
			case 1: // Avro: twice the length before, the next string of 36 to 45 signs (a letter) behind
				in, want = append(append(in, byte(2*len(card))), card...), append(append(want, byte(2*len(card))), maskOf(card)...)
				next := strings.Repeat("q", rapid.IntRange(36, 45).Draw(t, "next"))
				in, want = append(append(in, byte(2*len(next))), next...), append(append(want, byte(2*len(next))), next...)
			case 2: // Protobuf: tag and length before, a tag that is a digit behind
				in, want = append(append(in, 0x0a, byte(len(card))), card...), append(append(want, 0x0a, byte(len(card))), maskOf(card)...)
				if !passesLuhn(card + "2") { // else it is two card numbers at once
					in, want = append(in, 0x32, 0x01, 0x00), append(want, 0x32, 0x01, 0x00)
				}
			case 3: // UTF-8 text of a sentence
				in, want = append(append(append(in, "card "...), card...), " declined"...), append(append(append(want, "card "...), maskOf(card)...), " declined"...)
			}
			in, want = append(in, 0), append(want, 0)
		}
		c, err := r.Sanitize("orders", &pipeline.Record{Value: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(c.Value, want) {
			t.Fatalf("%q\nbecame %q\nwant   %q", in, c.Value, want)
		}
	})
}

func TestCardsAsVarints(t *testing.T) {
	r := mustNew(t, redact.Config{}, redact.Options{})
	rapid.Check(t, func(t *rapid.T) {
		var card uint64
		for {
			c := drawCard(t)
			if len(c) == 15 || len(c) == 16 {
				fmt.Sscan(c, &card)
				break
			}
		}
		zigzag := rapid.Bool().Draw(t, "zigzag")
		in := []byte{0, 0, 0, 0, 7, 0x24, 'a', 'b'}
		at := len(in)
		if zigzag {
			in = binary.AppendVarint(in, int64(card))
		} else {
			in = binary.AppendUvarint(in, card)
		}
		end := len(in)
		in = append(in, 0x08, 'x')
		c, err := r.Sanitize("orders", &pipeline.Record{Value: in}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if v, n := binary.Uvarint(c.Value[at:]); v != 0 || n != end-at {
			t.Fatalf("%x became %x: %d in %d bytes", in, c.Value, v, n)
		}
		if !bytes.Equal(c.Value[:at], in[:at]) || !bytes.Equal(c.Value[end:], in[end:]) {
			t.Fatalf("%x became %x", in, c.Value)
		}
	})
}
