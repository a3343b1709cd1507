package call_test

import (
	"net/url"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
)

func template(t testing.TB, text string) *call.Template {
	t.Helper()
	tp, err := call.ParseTemplate(text)
	if err != nil {
		t.Fatal(err)
	}
	return tp
}

func TestURLHoldsTheFieldsOfTheRecord(t *testing.T) {
	v := view(t, `{"account_id":"A-1","seq":9007199254740993,"nested":{"name":"Änne /?&#%"},"ok":true}`)
	id := &pipeline.Identity{EventID: "evt 1", Tenant: "acme"}
	for template_, want := range map[string]string{
		"https://accounts/{/account_id}":                     "https://accounts/A-1",
		"https://accounts:8443/v1/{tenant}/{/seq}?all={/ok}": "https://accounts:8443/v1/acme/9007199254740993?all=true",
		"http://a?e={event_id}&n={/nested/name}":             "http://a?e=evt%201&n=%C3%84nne%20%2F%3F%26%23%25",
		"https://accounts/fixed":                             "https://accounts/fixed",
	} {
		got, at, why := template(t, template_).Append(nil, v, id)
		if string(got) != want || at != "" {
			t.Errorf("%s: %s (%s %s), want %s", template_, got, at, why, want)
		}
	}
}

func TestURLIsNotMadeFromWhatHasNoPlaceInIt(t *testing.T) {
	v := view(t, `{"dots":"..","dot":".","up":"a/../../admin","win":"..\\..","param":"..;x","empty":"","null":null,"list":[1],"object":{},"long":"`+
		strings.Repeat("x", 3000)+`"}`)
	for path, want := range map[string]string{
		"/dots": "leaves its path", "/dot": "leaves its path", "/up": "leaves its path", "/win": "leaves its path", "/param": "leaves its path",
		"/empty": "absent", "/null": "absent", "/none": "absent", "/list": "absent", "/object": "absent", "/long": "too long",
	} {
		got, at, why := template(t, "https://accounts/v1/{"+path+"}/x").Append(nil, v, nil)
		if len(got) != 0 || at == "" || why != want {
			t.Errorf("%s: %q %s %s, want %s", path, got, at, why, want)
		}
	}
	if got, _, why := template(t, "https://accounts/{/dot}{/dot}/x").Append(nil, v, nil); len(got) != 0 || why != "leaves its path" {
		t.Errorf("two dots side by side: %s", got)
	}
	if got, _, _ := template(t, "https://accounts/x?q={/dots}").Append(nil, v, nil); string(got) != "https://accounts/x?q=.." {
		t.Errorf("dots are harmless in a query: %s", got)
	}
	if got, at, _ := template(t, "https://accounts/{tenant}").Append(nil, v, &pipeline.Identity{Tenant: pipeline.TenantUnassigned}); len(got) != 0 || at != "{tenant}" {
		t.Errorf("an unassigned tenant was asked about: %s", got)
	}
	if got, at, _ := template(t, "https://accounts/{/dots}").Append(nil, nil, nil); len(got) != 0 || at != "{/dots}" {
		t.Errorf("a record without a view was asked about: %s", got)
	}
}

func TestTemplateThatCouldAskAnotherServerIsRefused(t *testing.T) {
	for _, text := range []string{
		"", "accounts/{/id}", "ftp://accounts/", "https:///x", "//accounts/x", "https://{/host}/x", "https://accounts{/id}/x", "https://accounts:{/port}/x",
		"https://{tenant}.accounts/x", "{/url}", "https://user:secret@accounts/x", "https://accounts@evil/{/id}", "https://accounts/x#{/id}",
		"https://accounts/{id}", "https://accounts/{/id", "https://accounts/id}", "https://accounts/{}", "https://accounts/{/}", "https://accounts/a b",
		"https://accounts/../x", "https://accounts/%2e%2e/x", "https://accounts/x\r\nHost: evil", "https://accounts\\evil/x", "https://accounts/%zz",
	} {
		if _, err := call.ParseTemplate(text); err == nil {
			t.Errorf("%q was taken", text)
		} else if c := pipeline.CodeOf(err); c != pipeline.CodeConfigValue && c != pipeline.CodePathInvalid {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// INV-CALL-ORIGIN: whatever a record holds, the URL keeps its host, its segments and its parameters.
func FuzzNoValueLeavesItsPlace(f *testing.F) {
	for _, s := range []string{"A-1", "../x", "a/b", "@evil", "\r\nHost: evil", "?x=1&y", "#f", "%2e%2e%2f", "\\", ";", "ä", "\x00", "://", "..", "%"} {
		f.Add(s)
	}
	tp, err := call.ParseTemplate("https://accounts:8443/v1/{event_id}/end?a={event_id}&b=1")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, s string) {
		out, at, _ := tp.Append(nil, nil, &pipeline.Identity{EventID: s})
		if at != "" {
			return
		}
		u, err := url.Parse(string(out))
		if err != nil || u.Host != "accounts:8443" || u.Scheme != "https" || u.Fragment != "" || u.User != nil {
			t.Fatalf("%q: %s: %v", s, out, err)
		}
		segments := strings.Split(u.EscapedPath(), "/")
		q, err := url.ParseQuery(u.RawQuery)
		if len(segments) != 4 || segments[3] != "end" || err != nil || len(q) != 2 || q.Get("a") != s || q.Get("b") != "1" {
			t.Fatalf("%q: %s", s, out)
		}
		if got, _ := url.PathUnescape(segments[2]); got != s {
			t.Fatalf("%q came out as %q", s, got)
		}
		if strings.ContainsAny(string(out), "\r\n \x00\\") {
			t.Fatalf("%q: %q", s, out)
		}
	})
}

func TestURLOfARecordAllocatesNothing(t *testing.T) {
	tp := template(t, "https://accounts/{/account_id}?t={tenant}")
	v := view(t, `{"account_id":"A-1"}`)
	id := &pipeline.Identity{Tenant: "acme"}
	room := make([]byte, 0, 200)
	if n := testing.AllocsPerRun(100, func() { room, _, _ = tp.Append(room[:0], v, id) }); n > 0 && !raceEnabled {
		t.Errorf("%v allocations", n)
	}
}
