package transforms

import (
	"encoding/json"
	"strings"
	"testing"
)

func mustParse(t testing.TB, text string) *document {
	t.Helper()
	d, what := parseDocument([]byte(text))
	if what != "" {
		t.Fatalf("%s: %s", text, what)
	}
	return d
}

func value(t testing.TB, text string) *node { return mustParse(t, text).root }

func ptr(t testing.TB, text string) pointer {
	t.Helper()
	p, ok := parsePointer(text)
	if !ok {
		t.Fatalf("%q is not a pointer", text)
	}
	return p
}

func TestDocumentParse(t *testing.T) {
	deep := strings.Repeat("[", maxDepth) + strings.Repeat("]", maxDepth)
	for name, c := range map[string]struct {
		text string
		ok   bool
	}{
		"Whole":               {`{"a":[1,2.50,-0,1E400,"x",true,false,null,{}]}`, true},
		"WhiteSpaceKept":      {" \n{ \"a\" :\t1 }\r\n", true},
		"DepthAtLimit":        {deep, true},
		"DepthOverLimit":      {"[" + deep + "]", false},
		"Empty":               {"", false},
		"TwoValues":           {"{}{}", false},
		"LeadingZero":         {"01", false},
		"BarePoint":           {"1.", false},
		"Plus":                {"+1", false},
		"RepeatedMember":      {`{"a":1,"a":2}`, false},
		"RepeatedByEscape":    {`{"a":1,"\u0061":2}`, false},
		"TrailingComma":       {`[1,]`, false},
		"LatinByte":           {"\"\xe9\"", false},
		"LoneHighSurrogate":   {`"\ud800"`, false},
		"LoneLowSurrogate":    {`"\udc00"`, false},
		"SurrogatePair":       {`"\ud83d\ude00"`, true},
		"ControlCharacter":    {"\"\n\"", false},
		"BadEscape":           {`"\x"`, false},
		"CutInString":         {`{"a":"b`, false},
		"CutAfterName":        {`{"a"`, false},
		"ByteOrderMark":       {"\ufeff{}", false},
		"ManyMembersRepeated": {manyMembers(40, true), false},
		"ManyMembers":         {manyMembers(40, false), true},
	} {
		t.Run(name, func(t *testing.T) {
			d, what := parseDocument([]byte(c.text))
			if (what == "") != c.ok {
				t.Fatalf("got %q", what)
			}
			if c.ok {
				if got := string(d.text(nil)); got != c.text {
					t.Errorf("untouched text became %s", got)
				}
			}
		})
	}
}

func manyMembers(n int, repeat bool) string {
	var b strings.Builder
	b.WriteByte('{')
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"m` + string(rune('a'+i/10)) + string(rune('0'+i%10)) + `":1`)
	}
	if repeat {
		b.WriteString(`,"ma0":2`)
	}
	b.WriteByte('}')
	return b.String()
}

func TestDocumentEditKeepsTheRest(t *testing.T) {
	const text = " { \"big\" : 228930314431312345, \"n\": 1.10 ,\n \"s\":\"<a&b>\\u00e9\", \"in\" : { \"x\" : [ 1 ,2, 3 ] } } "
	for name, c := range map[string]struct {
		edit func(d *document) string
		want string
	}{
		"ReplaceScalar": {func(d *document) string { return d.put(ptr(t, "/n"), value(t, "2.20"), false) },
			strings.Replace(text, "1.10", "2.20", 1)},
		"ReplaceItem": {func(d *document) string { return d.put(ptr(t, "/in/x/1"), value(t, "7"), false) },
			strings.Replace(text, "1 ,2, 3", "1 ,7, 3", 1)},
		"RemoveItemReshapesOnlyItsArray": {func(d *document) string { return d.drop(ptr(t, "/in/x/0")) },
			strings.Replace(text, "[ 1 ,2, 3 ]", "[2,3]", 1)},
		"AddMemberReshapesOnlyItsObject": {func(d *document) string { return d.put(ptr(t, "/in/y~1z"), value(t, "{ }"), false) },
			strings.Replace(text, "{ \"x\" : [ 1 ,2, 3 ] }", `{"x":[ 1 ,2, 3 ],"y/z":{ }}`, 1)},
		"Rename": {func(d *document) string { return d.rename(ptr(t, "/in/x"), "q") },
			strings.Replace(text, "{ \"x\" : [ 1 ,2, 3 ] }", `{"q":[ 1 ,2, 3 ]}`, 1)},
		"ReplaceAll": {func(d *document) string { return d.put(pointer{}, value(t, "[]"), false) }, " [] "},
	} {
		t.Run(name, func(t *testing.T) {
			d := mustParse(t, text)
			if what := c.edit(d); what != "" {
				t.Fatal(what)
			}
			if got := string(d.text(nil)); got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestDocumentEditRefused(t *testing.T) {
	for name, edit := range map[string]func(d *document) string{
		"NoParent":          func(d *document) string { return d.put(ptr(t, "/no/x"), value(t, "1"), false) },
		"ScalarParent":      func(d *document) string { return d.put(ptr(t, "/a/x"), value(t, "1"), false) },
		"IndexPastEnd":      func(d *document) string { return d.put(ptr(t, "/l/3"), value(t, "1"), true) },
		"IndexLeadingZero":  func(d *document) string { return d.put(ptr(t, "/l/01"), value(t, "1"), false) },
		"DashIsNoItem":      func(d *document) string { return d.drop(ptr(t, "/l/-")) },
		"DropMissing":       func(d *document) string { return d.drop(ptr(t, "/x")) },
		"DropRoot":          func(d *document) string { return d.drop(pointer{}) },
		"RenameToExisting":  func(d *document) string { return d.rename(ptr(t, "/a"), "l") },
		"RenameItemOfArray": func(d *document) string { return d.rename(ptr(t, "/l/0"), "x") },
	} {
		t.Run(name, func(t *testing.T) {
			const text = `{"a":1,"l":[1,2]}`
			d := mustParse(t, text)
			if edit(d) == "" {
				t.Error("it was done")
			}
			if got := string(d.text(nil)); got != text {
				t.Errorf("a refused edit changed the text: %s", got)
			}
		})
	}
}

func TestPointerEscapes(t *testing.T) {
	for _, bad := range []string{"a", "/~", "/~2", "/a~"} {
		if _, ok := parsePointer(bad); ok {
			t.Errorf("%q was read", bad)
		}
	}
	p := ptr(t, "/a~1b/c~0d/~01//é")
	want := pointer{"a/b", "c~d", "~1", "", "é"}
	if p.String() != "/a~1b/c~0d/~01//é" {
		t.Errorf("written as %s", p)
	}
	for i := range want {
		if p[i] != want[i] {
			t.Errorf("segment %d is %q", i, p[i])
		}
	}
}

func TestSameNumber(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"1", "1.0", true}, {"10e-1", "1", true}, {"1E400", "10e399", true}, {"-0", "0", true}, {"0.00", "0e9", true},
		{"9007199254740993", "9007199254740992", false}, {"1", "-1", false}, {"0.1", "0.10000000000000001", false},
		{"1E400", "1E401", false}, {"100", "1e2", true},
	} {
		if sameNumber(c.a, c.b) != c.same {
			t.Errorf("%s and %s: same should be %v", c.a, c.b, c.same)
		}
	}
}

func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}],"c":"\u00e9\ud83d\ude00"}`, " [ 1e5 , -0.0 ] ", `"\\"`, `{"a":1,"a":2}`, "[[[[", "\"\xff\"", "1e", `{"":{"":""}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d, what := parseDocument(in)
		if what != "" {
			return
		}
		if !json.Valid(in) {
			t.Fatalf("%q was accepted", in)
		}
		if got := d.text(nil); string(got) != string(in) {
			t.Fatalf("untouched %q became %q", in, got)
		}
		// A change next to everything keeps everything.
		c := mustParse(t, `{"keep":`+string(in)+`}`)
		if what := c.put(pointer{"new"}, value(t, "1"), false); what != "" {
			if c.root.kind == '{' {
				t.Fatal(what)
			}
		}
		out := c.text(nil)
		again, what := parseDocument(out)
		if what != "" {
			t.Fatalf("%q does not parse again: %s", out, what)
		}
		if !again.at(pointer{"keep"}).equal(d.root) || !d.root.equal(again.at(pointer{"keep"})) {
			t.Fatalf("%q changed to %q", in, out)
		}
		if !d.root.clone().equal(d.root) {
			t.Fatal("a clone differs")
		}
	})
}
