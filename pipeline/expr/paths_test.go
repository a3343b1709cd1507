package expr

import (
	"strings"
	"testing"
)

func TestPathsAreThoseThatNoHasGuards(t *testing.T) {
	for _, c := range []struct{ src, want string }{
		{`view.a == 1`, "/a"},
		{`view.a.b.c == 1 && view.a.b == view.a.d`, "/a/b /a/b/c /a/d"},
		{`view["a"]["b"] == "x"`, "/a/b"},
		{`view.lines[2].amount > 3 || view.lines.size() > 5`, "/lines /lines/2/amount"},
		{`has(view.a)`, ""},
		{`has(view.a) && view.a > 3`, ""},
		{`has(view.a.b) && view.a.b.c > 3 && view.a.d == 1`, "/a /a/d"},
		{`!has(view.a) || view.b == 1`, "/b"},
		{`view.lines.exists(l, l.amount > view.limit)`, "/limit /lines"},
		{`topic == "view.a" && headers.x == "1"`, ""},
		{`key == "k"`, ""},
		{`view[headers.x] == 1`, ""},
		{`view.a == view.a`, "/a"},
	} {
		cond, err := Condition(c.src)
		if err != nil {
			t.Fatalf("%s: %v", c.src, err)
		}
		var got []string
		for _, p := range cond.Paths() {
			got = append(got, p.Text)
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s reads %q, want %q", c.src, s, c.want)
		}
	}
}
