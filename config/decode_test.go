package config

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func parse(t *testing.T, text string) *Doc {
	t.Helper()
	doc, ps := Parse("f.yaml", []byte(text), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	return doc
}

func TestDecodeReadsEveryType(t *testing.T) {
	type inner struct {
		A int8  `yaml:"a"`
		B uint8 `yaml:"b" default:"7"`
	}
	type base struct {
		Base string `yaml:"base"`
	}
	type all struct {
		base    `yaml:",inline"`
		Plain   string // its key is its name in lower case
		Skipped string `yaml:"-"`
		Num     int64  `yaml:"num"`
		Float   float32
		On      bool             `yaml:"on"`
		Wait    time.Duration    `yaml:"wait"`
		Ptr     *inner           `yaml:"ptr"`
		NilPtr  *inner           `yaml:"nilptr"`
		List    []inner          `yaml:"list"`
		Map     map[string]inner `yaml:"map"`
		Ptrs    map[string]*inner
		Any     any    `yaml:"any"`
		Node    Node   `yaml:"node"`
		Secret  Secret `yaml:"secret"`
		Section inner  `yaml:"section"`
		Kept    string `yaml:"kept"`
		Preset  int    `yaml:"preset" default:"3"`
	}
	doc := parse(t, `
base: b
plain: 2.10
num: -9223372036854775808
float: 1e3
on: true
wait: 1m
ptr: {a: -128, b: 255}
list: [{a: 1}, {}]
map: {x: {a: 1}, y: }
ptrs: {z: }
any: {i: 12345678901234567890, f: 1.50, t: true, n: null, s: "5", l: [1, "1", 0x1f]}
node: {deep: [1, {x: y}]}
secret: 12
section:
`)
	got := all{Kept: "default", Preset: 9}
	if ps := doc.Decode(&got); len(ps) != 0 {
		t.Fatal(ps)
	}
	if text, _ := got.Node.At("deep[1].x").Text(); text != "y" || got.Node.Path() != "node" || got.Secret.Reveal() != "12" {
		t.Errorf("node %q at %q, secret %q", text, got.Node.Path(), got.Secret.Reveal())
	}
	got.Node, got.Secret = Node{}, Secret{}
	want := all{base: base{"b"}, Plain: "2.10", Num: -1 << 63, Float: 1000, On: true, Wait: time.Minute, Ptr: &inner{-128, 255},
		List: []inner{{1, 7}, {0, 7}}, Map: map[string]inner{"x": {1, 7}, "y": {0, 7}}, Ptrs: map[string]*inner{"z": {0, 7}},
		Any: map[string]any{"i": json.Number("12345678901234567890"), "f": json.Number("1.50"), "t": true, "n": nil, "s": "5",
			"l": []any{json.Number("1"), "1", "0x1f"}},
		Section: inner{0, 7}, Kept: "default", Preset: 9}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(all{}), cmp.Comparer(func(a, b Node) bool { return a.Path() == b.Path() })); diff != "" {
		t.Error(diff)
	}
}

func TestDecodeRefusesNumbersOutOfRange(t *testing.T) {
	type numbers struct {
		I8  int8    `yaml:"i8"`
		I64 int64   `yaml:"i64"`
		U8  uint8   `yaml:"u8"`
		U64 uint64  `yaml:"u64"`
		F   float64 `yaml:"f"`
	}
	for _, text := range []string{"i8: 128", "i8: -129", "i64: 9223372036854775808", "u8: 256", "u8: -1", "u64: 18446744073709551616", "f: 1e999",
		"f: .inf", "f: .nan", "i8: 1_000", "i8: 0x10", "i8: 0o17", "i8: 1.0", "i8: '1'", "f: 'x'", "i8: true", "i8: [1]", "i8: {a: 1}", "i8: ", "i8: +5"} {
		if ps := parse(t, text).Decode(&numbers{}); len(ps) != 1 || ps[0].Line != 1 || ps[0].Column < 3 {
			t.Errorf("%q: %v", text, ps)
		}
	}
	got := numbers{}
	if ps := parse(t, "i8: -128\ni64: 9223372036854775807\nu8: 255\nu64: 18446744073709551615\nf: -1.5e-3").Decode(&got); len(ps) != 0 || got != (numbers{-128, 1<<63 - 1, 255, 1<<64 - 1, -1.5e-3}) {
		t.Error(got, ps)
	}
}

func TestDefaultsDoNotReplaceWhatIsSaid(t *testing.T) {
	type settings struct {
		N    int      `yaml:"n" default:"5"`
		On   *bool    `yaml:"on" default:"true"`
		List []string `yaml:"list" default:"a,b"`
		Wait Duration `yaml:"wait" default:"1s"`
		Text string   `yaml:"text" default:"x"`
	}
	var got settings
	if ps := parse(t, "n: 0\non: false\nlist: []\nwait: 0s\ntext: ''").Decode(&got); len(ps) != 0 {
		t.Fatal(ps)
	}
	if got.N != 0 || got.On == nil || *got.On || len(got.List) != 0 || got.Wait != 0 || got.Text != "" {
		t.Errorf("said: %+v", got)
	}
	got = settings{}
	if ps := parse(t, "on:\nlist:").Decode(&got); len(ps) != 0 {
		t.Fatal(ps)
	}
	if got.N != 5 || got.On == nil || !*got.On || len(got.List) != 2 || got.Wait != Duration(time.Second) || got.Text != "x" {
		t.Errorf("not said: %+v", got)
	}
}

func TestDecodeFindsTheSameTwice(t *testing.T) {
	doc, ps := Parse("f.yaml", read(t, "types.bad.yaml"), Options{})
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	first, second := doc.Decode(&Pipeline{}), doc.Decode(&Pipeline{})
	if diff := cmp.Diff(first, second); diff != "" || len(first) == 0 {
		t.Errorf("the second reading differs:\n%s", diff)
	}
}

type checked struct {
	Low  int    `yaml:"low"`
	High int    `yaml:"high"`
	Name string `yaml:"name"`
}

func (c *checked) Validate(n Node) Problems {
	if c.High < c.Low {
		return Problems{n.Problem("high", CodeValue, "high is below low", "")}
	}
	return nil
}

func TestValidatorsAreAskedWithPlaces(t *testing.T) {
	var into struct {
		List []checked          `yaml:"list"`
		Map  map[string]checked `yaml:"map"`
		Ptr  *checked           `yaml:"ptr"`
	}
	doc := parse(t, "list:\n  - {low: 1, high: 2}\n  - {low: 3, high: 2}\n  - {low: 3}\nptr: {low: 1, high: 0, nmae: x}\n")
	got := doc.Decode(&into).Error()
	want := `f.yaml:3:20: list[1].high: high is below low
f.yaml:4:5: list[2].high: high is below low
f.yaml:5:21: ptr.high: high is below low
f.yaml:5:24: ptr.nmae: unknown key (did you mean name?)`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	t.Run("a place that already has a problem is not judged again", func(t *testing.T) {
		ps := parse(t, "ptr: {low: 5, high: many}\n").Decode(&into)
		if len(ps) != 1 || ps[0].Code != CodeType {
			t.Error(ps)
		}
	})
	t.Run("a variable that is not set is not judged", func(t *testing.T) {
		doc, ps := Parse("f.yaml", []byte("ptr: {low: 5, high: \"${HIGH}\"}\n"), Options{})
		if len(ps) != 1 || doc == nil {
			t.Fatal(ps)
		}
		if ps := doc.Decode(&into); len(ps) != 0 {
			t.Error(ps)
		}
	})
}

func TestNodeIsASubDocument(t *testing.T) {
	doc := parse(t, "a:\n  b.c: {d: [x, {e.f: 1}]}\n  n: \n")
	n := doc.At("a")
	if line, column := n.Position(); line != 2 || column != 3 || !n.IsMap() || !n.Exists() || n.File() != "f.yaml" || n.Doc() != doc {
		t.Error(line, column)
	}
	if text, ok := n.At("b.c.d[1].e.f").Text(); !ok || text != "1" || !doc.Has("a.b.c.d[0]") || doc.Has("a.b.c.d[2]") || doc.Has("a.b") {
		t.Error("keys with dots are not found", text)
	}
	if items := n.At("b.c.d").Items(); len(items) != 2 || items[1].Path() != "a.b.c.d[1]" || !n.At("b.c.d").IsList() {
		t.Error(items)
	}
	if n.Key("x").Exists() || !n.Key("n").Exists() || !n.Key("n").IsNull() || n.Key("x").Path() != "a.x" || n.Key("x").Items() != nil || (Node{}).Keys() != nil {
		t.Error("absent and null are mixed up")
	}
	if p := n.Problem("b.c.missing[3].x", CodeValue, "t", ""); p.Line != 2 || p.Column != 3 || p.Path != "a.b.c.missing[3].x" || p.File != "f.yaml" {
		t.Error(p)
	}
	if j, err := n.JSON(); err != nil || string(j) != `{"b.c":{"d":["x",{"e.f":1}]},"n":null}` {
		t.Error(string(j), err)
	}
	if p := (Node{}).Problem("x", CodeValue, "t", ""); p.Path != "x" || p.Line != 0 {
		t.Error(p)
	}
}

func TestProblemsAreInFileOrderAndOnce(t *testing.T) {
	a := Problem{File: "a", Line: 2, Column: 1, Text: "x"}
	b := Problem{File: "a", Line: 1, Column: 5, Text: "y"}
	c := Problem{File: "b", Line: 1, Column: 1, Text: "z"}
	if got := (Problems{a, c, b, a}).Sorted(); !cmp.Equal(got, Problems{b, a, c}) {
		t.Error(got)
	}
	if (Problems{}).Err() != nil || (Problems)(nil).Err() != nil || (Problems{a}).Err() == nil || (Problems{{Code: CodeType}}).ErrorCode() != CodeType {
		t.Error("an empty list is an error")
	}
	for p, want := range map[Problem]string{
		{Text: "t"}: "t", {File: "f", Text: "t"}: "f: t", {File: "f", Line: 1, Column: 2, Path: "p", Text: "t", Suggestion: "s"}: "f:1:2: p: t (s)", {Path: "p", Text: "t"}: "p: t",
	} {
		if p.String() != want {
			t.Errorf("%q, want %q", p, want)
		}
	}
}

func TestDigestCountsDataOnly(t *testing.T) {
	digest := func(text string, env map[string]string) string {
		doc, ps := Parse("f", []byte(text), Options{Env: func(n string) (string, bool) { v, ok := env[n]; return v, ok }})
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		return doc.Digest()
	}
	one := digest("b: 1\na: [x, \"y\", {c: true, d: null}]\n", nil)
	// The vector: sha256 of {"a":["x","y",{"c":true,"d":null}],"b":1}
	if one != "sha256:918f8c959ad18051693ca5537a762dbafa958a71662d8a89248ea591f6ad84a1" {
		t.Error(one)
	}
	for _, text := range []string{"a: ['x', y, {d: ~, c: true}] # comment\nb: 1", "{\"b\": 1, \"a\": [\"x\", \"y\", {\"c\": true, \"d\": null}]}", "b: 1\na: &a [x, y, {c: true, d: }]"} {
		if digest(text, nil) != one {
			t.Errorf("%q has another digest", text)
		}
	}
	for _, text := range []string{"b: 2\na: [x, y, {c: true, d: null}]", "b: '1'\na: [x, y, {c: true, d: null}]", "b: 1\na: [y, x, {c: true, d: null}]", "b: 1\na: [x, y, {c: true}]"} {
		if digest(text, nil) == one {
			t.Errorf("%q has the same digest", text)
		}
	}
	if digest("a: ${V}", map[string]string{"V": "1"}) == digest("a: ${V}", map[string]string{"V": "2"}) {
		t.Error("the value of a variable that is no secret does not count")
	}
	if digest("a: ${V}", map[string]string{"V": "x"}) != digest("a: x", nil) {
		t.Error("a variable is not the same as its value")
	}
}

func TestDigestSeesSettingsWithSecretNames(t *testing.T) {
	digest := func(action string) string {
		doc := parse(t, "stages: [{redact: {actions: {authorization: "+action+"}}}]\n")
		before := doc.Digest()
		var settings struct {
			Actions struct {
				Authorization string `yaml:"authorization"`
			} `yaml:"actions"`
		}
		if ps := doc.At("stages[0].redact").Decode(&settings); len(ps) != 0 {
			t.Fatal(ps)
		}
		if doc.Digest() != before {
			t.Error("the digest depends on when it is asked")
		}
		return before
	}
	if digest("mask") == digest("hash") {
		t.Error("another action has the same digest")
	}
}

func TestJSONToYAML(t *testing.T) {
	in := `{"z":"9007199254740993","a":9007199254740993,"t":["yes","true",true,null,"","a: b","- x","1e3",1.50,"line\nline"],"e":{},"l":[],"o":{"b":1,"a":"<&>"}}`
	got, err := JSONToYAML([]byte(in))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(got), "z: \"9007199254740993\"\na: 9007199254740993\n") {
		t.Errorf("order or numbers are lost:\n%s", got)
	}
	back, err := parse(t, string(got)).Root().JSON()
	var x, y any
	if err != nil || json.Unmarshal([]byte(in), &x) != nil || json.Unmarshal(back, &y) != nil || !cmp.Equal(x, y) {
		t.Errorf("%v\n%s\n%s", err, got, back)
	}
	for _, in := range []string{"", "{", "[1,]", "1 2", "{\"a\"}"} {
		if out, err := JSONToYAML([]byte(in)); err == nil {
			t.Errorf("%q is %q", in, out)
		}
	}
}
