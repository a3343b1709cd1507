package transforms

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The rows are made from what RFC 6902 (appendix A) says that each operation does.
func TestPatch(t *testing.T) {
	for name, c := range map[string]struct{ doc, patch, want string }{
		"AddMember":             {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux"}]`, `{"foo":"bar","baz":"qux"}`},
		"AddReplacesMember":     {`{"foo":1}`, `[{"op":"add","path":"/foo","value":2}]`, `{"foo":2}`},
		"AddItem":               {`{"foo":["bar","baz"]}`, `[{"op":"add","path":"/foo/1","value":"qux"}]`, `{"foo":["bar","qux","baz"]}`},
		"AddAtLength":           {`[1,2]`, `[{"op":"add","path":"/2","value":3}]`, `[1,2,3]`},
		"AddAtEnd":              {`{"foo":["bar"]}`, `[{"op":"add","path":"/foo/-","value":["abc","def"]}]`, `{"foo":["bar",["abc","def"]]}`},
		"AddNested":             {`{"foo":"bar"}`, `[{"op":"add","path":"/child","value":{"grandchild":{}}}]`, `{"foo":"bar","child":{"grandchild":{}}}`},
		"AddIntoAdded":          {`{}`, `[{"op":"add","path":"/a","value":{}},{"op":"add","path":"/a/b","value":1}]`, `{"a":{"b":1}}`},
		"AddRoot":               {`{"foo":1}`, `[{"op":"add","path":"","value":[]}]`, `[]`},
		"AddNull":               {`{}`, `[{"op":"add","path":"/a","value":null}]`, `{"a":null}`},
		"AddToMissing":          {`{"foo":"bar"}`, `[{"op":"add","path":"/baz/bat","value":"qux"}]`, ""},
		"AddPastEnd":            {`[1]`, `[{"op":"add","path":"/3","value":3}]`, ""},
		"RemoveMember":          {`{"baz":"qux","foo":"bar"}`, `[{"op":"remove","path":"/baz"}]`, `{"foo":"bar"}`},
		"RemoveItem":            {`{"foo":["bar","qux","baz"]}`, `[{"op":"remove","path":"/foo/1"}]`, `{"foo":["bar","baz"]}`},
		"RemoveMissing":         {`{}`, `[{"op":"remove","path":"/baz"}]`, ""},
		"Replace":               {`{"baz":"qux","foo":"bar"}`, `[{"op":"replace","path":"/baz","value":"boo"}]`, `{"baz":"boo","foo":"bar"}`},
		"ReplaceMissing":        {`{}`, `[{"op":"replace","path":"/baz","value":1}]`, ""},
		"MoveMember":            {`{"foo":{"bar":"baz","waldo":"fred"},"qux":{"corge":"grault"}}`, `[{"op":"move","from":"/foo/waldo","path":"/qux/thud"}]`, `{"foo":{"bar":"baz"},"qux":{"corge":"grault","thud":"fred"}}`},
		"MoveItem":              {`{"foo":["all","grass","cows","eat"]}`, `[{"op":"move","from":"/foo/1","path":"/foo/3"}]`, `{"foo":["all","cows","eat","grass"]}`},
		"MoveOntoItself":        {`{"a":1}`, `[{"op":"move","from":"/a","path":"/a"}]`, `{"a":1}`},
		"MoveMissing":           {`{"a":1}`, `[{"op":"move","from":"/x","path":"/a"}]`, ""},
		"Copy":                  {`{"a":{"b":[1,2]}}`, `[{"op":"copy","from":"/a/b","path":"/c"},{"op":"replace","path":"/c/0","value":9}]`, `{"a":{"b":[1,2]},"c":[9,2]}`},
		"CopyOfChanged":         {`{"a":{"b":1}}`, `[{"op":"replace","path":"/a/b","value":2},{"op":"copy","from":"/a","path":"/c"}]`, `{"a":{"b":2},"c":{"b":2}}`},
		"TestHolds":             {`{"baz":"qux","foo":["a",2,"c"]}`, `[{"op":"test","path":"/baz","value":"qux"},{"op":"test","path":"/foo/1","value":2.0}]`, `{"baz":"qux","foo":["a",2,"c"]}`},
		"TestObjectsInAnyOrder": {`{"o":{"a":1,"b":[null,true]}}`, `[{"op":"test","path":"/o","value":{"b":[null,true],"a":10e-1}}]`, `{"o":{"a":1,"b":[null,true]}}`},
		"TestFails":             {`{"baz":"qux"}`, `[{"op":"test","path":"/baz","value":"bar"}]`, ""},
		"TestStringIsNoNumber":  {`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":"10"}]`, ""},
		"EscapedPointer":        {`{"/":9,"~1":10}`, `[{"op":"test","path":"/~01","value":10}]`, `{"/":9,"~1":10}`},
		"UnknownMemberIgnored":  {`{"foo":"bar"}`, `[{"op":"add","path":"/baz","value":"qux","xyz":123}]`, `{"foo":"bar","baz":"qux"}`},
		"LaterFailureFailsAll":  {`{"a":1}`, `[{"op":"remove","path":"/a"},{"op":"remove","path":"/a"}]`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			ops, what := parsePatch(value(t, c.patch))
			if what != "" {
				t.Fatal(what)
			}
			d := mustParse(t, c.doc)
			_, f := d.patch(ops)
			if c.want == "" {
				if f == nil {
					t.Fatalf("it was applied: %s", d.text(nil))
				}
				return
			}
			if f != nil {
				t.Fatal(f.Reason())
			}
			if got := string(d.text(nil)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestPatchRefusedWhenCompiled(t *testing.T) {
	for name, text := range map[string]string{
		"NotAnArray":     `{"op":"add"}`,
		"NotAnObject":    `[1]`,
		"UnknownOp":      `[{"op":"merge","path":"/a","value":1}]`,
		"NoPath":         `[{"op":"remove"}]`,
		"NoValue":        `[{"op":"add","path":"/a"}]`,
		"NoFrom":         `[{"op":"copy","path":"/a"}]`,
		"BadPointer":     `[{"op":"remove","path":"a"}]`,
		"MoveIntoItself": `[{"op":"move","from":"/a","path":"/a/b"}]`,
	} {
		t.Run(name, func(t *testing.T) {
			if _, what := parsePatch(value(t, text)); what == "" {
				t.Error("it compiles")
			}
		})
	}
}

func TestPatchReportsPaths(t *testing.T) {
	ops, _ := parsePatch(value(t, `[{"op":"test","path":"/a","value":1},{"op":"move","from":"/a","path":"/b"},{"op":"remove","path":"/c"}]`))
	changed, f := mustParse(t, `{"a":1,"c":2}`).patch(ops)
	if f != nil {
		t.Fatal(f.Reason())
	}
	if diff := cmp.Diff([]string{"/a", "/b", "/c"}, changed); diff != "" {
		t.Error(diff)
	}
}

// The rows are the cases that RFC 7396 (appendix A) tells apart.
func TestMergePatch(t *testing.T) {
	for _, c := range []struct{ doc, patch, want string }{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"e":null,"a":1}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{`{"big":228930314431312345,"x":1}`, `{"x":2}`, `{"big":228930314431312345,"x":2}`},
	} {
		t.Run(c.doc+" with "+c.patch, func(t *testing.T) {
			d := mustParse(t, c.doc)
			d.merge(value(t, c.patch))
			if got := string(d.text(nil)); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestMergePatchTouchesOnlyWhatDiffers(t *testing.T) {
	const text = `{ "a" : 1.0 , "b":{ "c":[ 1 ] } }`
	d := mustParse(t, text)
	if changed := d.merge(value(t, `{"a":1,"b":{"c":[1]},"z":null}`)); len(changed) != 0 {
		t.Errorf("changed %v", changed)
	}
	if got := string(d.text(nil)); got != text {
		t.Errorf("got %s", got)
	}
}

func FuzzPatch(f *testing.F) {
	f.Add([]byte(`{"a":[1,2],"b":{"c":null}}`), []byte(`[{"op":"move","from":"/a/0","path":"/b/c"},{"op":"copy","from":"/b","path":"/a/-"}]`))
	f.Add([]byte(`[]`), []byte(`[{"op":"add","path":"/-","value":{"x":1}},{"op":"test","path":"/0/x","value":1.0},{"op":"remove","path":"/0"}]`))
	f.Add([]byte(`{"":1}`), []byte(`[{"op":"replace","path":"/","value":[]},{"op":"add","path":"//0","value":2}]`))
	f.Fuzz(func(t *testing.T, doc, patch []byte) {
		d, what := parseDocument(doc)
		if what != "" {
			return
		}
		p, what := parseDocument(patch)
		if what != "" {
			return
		}
		d2 := mustParse(t, string(doc))
		d2.merge(p.root)
		if out := d2.text(nil); !strings.Contains(deepest(out), "nests too deep") {
			mustParse(t, string(out))
		}
		ops, what := parsePatch(p.root)
		if what != "" || len(ops) > 64 {
			return
		}
		if _, f := d.patch(ops); f == nil && !strings.Contains(deepest(d.text(nil)), "nests too deep") {
			mustParse(t, string(d.text(nil)))
		}
	})
}

// deepest says what is wrong with a text, if anything.
func deepest(text []byte) string {
	_, what := parseDocument(text)
	return what
}
