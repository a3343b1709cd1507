package seal

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestCanonicalIsWritten(t *testing.T) {
	for in, want := range map[string]string{
		` { "b" : 1 , "a" : [ ] } `: `{"a":[],"b":1}`,
		`{"\u20ac":"Euro Sign","\r":"CR","\ufb33":"Hebrew","1":"One","\ud83d\ude00":"Smiley","\u0080":"Control","\u00f6":"o"}`: "{\"\\r\":\"CR\",\"1\":\"One\",\"\u0080\":\"Control\",\"\u00f6\":\"o\",\"\u20ac\":\"Euro Sign\",\"\U0001f600\":\"Smiley\",\"\ufb33\":\"Hebrew\"}", // the order of RFC 8785 3.2.3
		`"\u0041\/\b\f\n\r\t\u0000\u001F\"\\<>&\u2028"`: "\"A/\\b\\f\\n\\r\\t\\u0000\\u001f\\\"\\\\<>&\u2028\"",
		`[-0,0,9007199254740992,-9007199254740992]`:     `[0,0,9007199254740992,-9007199254740992]`,
		`[null,true,false,""]`:                          `[null,true,false,""]`,
		"\"e\u0301\"":                                   "\"e\u0301\"", // not normalised
		`"\ufffd"`:                                      "\"\ufffd\"",
		`{"a":{"d":1,"c":{"f":1,"e":2}},"":0}`:          `{"":0,"a":{"c":{"e":2,"f":1},"d":1}}`,
	} {
		got, err := CanonicalBytes([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s is\n%s, %v, want\n%s", in, got, err, want)
		}
		if again, err := CanonicalBytes(got); err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s is not its own canonical form", got)
		}
		if !IsCanonical(got) || string(got) != in && IsCanonical([]byte(in)) {
			t.Errorf("IsCanonical is wrong about %s", in)
		}
	}
}

func TestCanonicalRefuses(t *testing.T) {
	for name, in := range map[string]string{
		"a float": `1.5`, "a float that is whole": `1.0`, "an exponent": `1e3`, "an integer beyond 2^53": `9007199254740993`,
		"a negative one": `-9007199254740993`, "a huge one": `123456789012345678901234567890`, "a leading zero": `01`, "a plus": `+1`,
		"only a sign": `-`, "a member twice": `{"a":1,"a":2}`, "a member twice by escape": `{"a":1,"\u0061":2}`,
		"a deep member twice": `[{"x":{"a":1,"b":2,"a":3}}]`, "an unpaired surrogate": `"\ud800"`, "a low surrogate first": `"\udc00\ud800"`,
		"a surrogate and no escape": `"\ud800x"`, "invalid UTF-8": "\"\xff\"", "invalid UTF-8 beside an escape": "\"\\n\xff\"", "an encoded surrogate": "\"\xed\xa0\x80\"",
		"a control character": "\"\n\"", "a control character after an escape": "\"\\n\n\"", "an unknown escape": `"\x"`, "a short escape": `"\u12"`, "no end": `"abc`, "no end after a backslash": `"abc\`,
		"nothing": ``, "only space": ` `, "two values": `1 2`, "a trailing comma": `[1,]`, "a trailing comma in an object": `{"a":1,}`, "no colon": `{"a" 1}`, "no value": `{"a":}`,
		"a bare word": `nul`, "NaN": `NaN`, "a comment": `[1]//x`, "single quotes": `'a'`, "an open array": `[`, "an open object": `{"a":1`, "a byte order mark": "\ufeff1",
		"too deep": strings.Repeat("[", 600) + strings.Repeat("]", 600), "a name that is no text": `{1:2}`,
	} {
		if got, err := CanonicalBytes([]byte(in)); err == nil || got != nil {
			t.Errorf("%s: %s is read as %s", name, in, got)
		} else if code(err) != "ERR_INPUT_INVALID" {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, v := range map[string]any{
		"a float": 1.5, "an int64 beyond 2^53": int64(1<<53 + 1), "a uint64": uint64(1 << 63), "a channel": make(chan int),
		"invalid UTF-8": "a\xff", "an invalid key": map[string]int{"\xff": 1},
	} {
		if got, err := Canonical(v); err == nil {
			t.Errorf("%s is written as %s", name, got)
		} else if _, err := Digest(v); code(err) != "ERR_INPUT_INVALID" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCanonicalOfGoValues(t *testing.T) {
	v := struct {
		Z string          `json:"z"`
		A int64           `json:"a"`
		R json.RawMessage `json:"r"`
		M map[string]any  `json:"m,omitempty"`
	}{"<&>\u2028\ufffd", 1 << 53, json.RawMessage(`{"y":1, "x":[]}`), nil}
	got, err := Canonical(v)
	if want := "{\"a\":9007199254740992,\"r\":{\"x\":[],\"y\":1},\"z\":\"<&>\u2028\ufffd\"}"; err != nil || string(got) != want {
		t.Errorf("%s, %v", got, err)
	}
	for _, s := range []string{`\ufffd`, `\\ufffd`, "\ufffd", `a\`, `\`} {
		if got, err := Canonical(s); err != nil || string(got) != naive(s) {
			t.Errorf("%q is %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"\xff", "\\\xff", "\\\\\xff", "\ufffd\xff"} {
		if got, err := Canonical(s); err == nil {
			t.Errorf("%q is %s", s, got)
		}
	}
	d, err := Digest(map[string]string{"b": "1", "a": "2"})
	if err != nil || d != SHA256([]byte(`{"a":"2","b":"1"}`)) {
		t.Error(d, err)
	}
}

// naive writes canonical JSON in another way: decode, then sort by encoded UTF-16, then write.
func naive(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return strconv.FormatBool(v)
	case json.Number:
		n, _ := v.Int64()
		return strconv.FormatInt(n, 10)
	case string:
		var b strings.Builder
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		enc.Encode(v)
		s := strings.TrimSuffix(b.String(), "\n")
		var out strings.Builder
		for i := 0; i < len(s); i++ { // undo what encoding/json escapes without need
			if s[i] == '\\' && strings.HasPrefix(s[i:], `\u2028`) || s[i] == '\\' && strings.HasPrefix(s[i:], `\u2029`) {
				r, _ := strconv.ParseUint(s[i+2:i+6], 16, 32)
				out.WriteRune(rune(r))
				i += 5
				continue
			}
			out.WriteByte(s[i])
			if s[i] == '\\' {
				i++
				out.WriteByte(s[i])
			}
		}
		return out.String()
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = naive(x)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	m := v.(map[string]any)
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b string) int {
		return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
	})
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = naive(k) + ":" + naive(m[k])
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func decodeAny(t interface{ Fatal(...any) }, text []byte) any {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

func jsonValues() *rapid.Generator[any] {
	text := rapid.StringOf(rapid.RuneFrom([]rune("ab\"\\/\n\x00\x1f\x7f\u0080\u00e9\u2028\u2029\ufb33\uffff\ue000\U00010000\U0001f600\U0010ffff<&>")))
	leaf := rapid.OneOf(rapid.Just[any](nil), rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Map(rapid.Int64Range(-1<<53, 1<<53), func(n int64) any { return n }), rapid.Map(text, func(s string) any { return s }))
	var value func(depth int) *rapid.Generator[any]
	value = func(depth int) *rapid.Generator[any] {
		if depth == 0 {
			return leaf
		}
		return rapid.OneOf(leaf,
			rapid.Map(rapid.SliceOfN(value(depth-1), 0, 5), func(l []any) any { return l }),
			rapid.Map(rapid.MapOfN(text, value(depth-1), 0, 6), func(m map[string]any) any { return m }))
	}
	return value(4)
}

func TestCanonicalAgreesWithANaiveWriter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := jsonValues().Draw(t, "value")
		got, err := Canonical(v)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.MarshalIndent(v, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		if want := naive(decodeAny(t, text)); string(got) != want {
			t.Fatalf("\n%s\n%s", got, want)
		}
		if again, err := CanonicalBytes(text); err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%v: another layout has another form\n%s\n%s", err, again, got)
		}
	})
}

func FuzzCanonicalBytes(f *testing.F) {
	for _, s := range []string{`{"b":1,"a":[null,true,"\u20ac"]}`, `[1,-0,9007199254740993]`, `"\ud83d\ude00"`, `{"a":{"a":{}}}`, "\"\xff\"", `{"a":1,"\u0061":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := CanonicalBytes(text)
		if err != nil {
			return
		}
		if !json.Valid(text) || !utf8.Valid(got) {
			t.Fatalf("accepted %q", text)
		}
		if want := naive(decodeAny(t, text)); string(got) != want {
			t.Fatalf("%q is %s, want %s", text, got, want)
		}
		if !IsCanonical(got) {
			t.Fatalf("%s is not canonical", got)
		}
	})
}
