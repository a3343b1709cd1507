package codec

import (
	"testing"

	"reprieve.dev/pipeline"
)

func TestMembersJoinAnObject(t *testing.T) {
	join := func(pairs ...string) (out []pipeline.Join) {
		for i := 0; i < len(pairs); i += 2 {
			out = append(out, pipeline.Join{Name: pairs[i], JSON: []byte(pairs[i+1])})
		}
		return out
	}
	for _, c := range []struct {
		object string
		joins  []pipeline.Join
		want   string // "" is a refusal
	}{
		{`{}`, join("a", `1`), `{"a":1}`},
		{` { "n" : 1.500 , "s":"\u0041" } `, join("a", `{"b":[]}`), `{"n" : 1.500,"s":"\u0041","a":{"b":[]}}`},
		{`{"a":{"old":true},"b":2}`, join("a", `null`), `{"b":2,"a":null}`},
		{`{"\u0061":1,"b":2}`, join("a", `3`), `{"b":2,"a":3}`},
		{`{"x":{"a":1}}`, join("a", `2`), `{"x":{"a":1},"a":2}`},
		{`{}`, join("a", `1`, "b", `2`, "a", `3`), `{"b":2,"a":3}`},
		{`{"x":1}`, join("quote\"", `1`), `{"x":1,"quote\"":1}`},
		{`{"x":1}`, nil, `{"x":1}`},
		{`[1]`, join("a", `1`), ""},
		{`7`, join("a", `1`), ""},
		{`{"a":`, join("a", `1`), ""},
	} {
		got, err := JoinJSON([]byte("kept "), []byte(c.object), c.joins)
		switch {
		case c.want == "" && pipeline.CodeOf(err) != pipeline.CodeRouteEncode:
			t.Errorf("%s: %s, %v: want a refusal", c.object, got, err)
		case c.want != "" && (err != nil || string(got) != "kept "+c.want):
			t.Errorf("%s: %s, %v, want %s", c.object, got, err, c.want)
		}
	}
}
