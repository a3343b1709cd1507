package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"reprieve.dev/worker"
)

// junitForm is what build servers take: by element its attributes, those that must be there first, and the elements below it in their
// order. It is the common part of what Jenkins, GitLab, GitHub actions, Azure and Ant's own schema read.
var junitForm = map[string]struct{ must, may, below []string }{
	"testsuites": {must: []string{"tests", "failures", "errors"}, below: []string{"testsuite"}},
	"testsuite":  {must: []string{"name", "tests", "failures", "errors", "skipped", "time"}, below: []string{"testcase"}},
	"testcase":   {must: []string{"name", "classname", "time"}, may: []string{"file"}, below: []string{"failure", "error", "skipped", "system-out"}},
	"failure":    {must: []string{"message", "type"}},
	"error":      {must: []string{"message", "type"}},
	"skipped":    {must: []string{"message", "type"}},
	"system-out": {},
}

var junitSeconds = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)

// tally is what a report says and what it holds.
type tally struct{ tests, failures, errors, skipped int }

// readJUnit reads a report as a strict reader would and returns what the root says. It fails on whatever the form does not have.
func readJUnit(t *testing.T, report []byte) tally {
	t.Helper()
	if !bytes.HasPrefix(report, []byte(`<?xml version="1.0" encoding="UTF-8"?>`)) || !utf8.Valid(report) {
		t.Fatalf("it does not begin as XML in UTF-8: %.60q", report)
	}
	for _, r := range string(report) { // the characters of XML 1.0
		if r < 0x20 && r != '\t' && r != '\n' && r != '\r' || r == 0xfffe || r == 0xffff {
			t.Fatalf("%U may not stand in XML 1.0", r)
		}
	}
	type open struct {
		name      string
		says, has tally
		last      int // of below, the one that came last
	}
	var stack []open
	var root tally
	number := func(attrs map[string]string, name string) int {
		n, err := strconv.Atoi(attrs[name])
		if err != nil || n < 0 {
			t.Fatalf("%s=%q is no count", name, attrs[name])
		}
		return n
	}
	for d := xml.NewDecoder(bytes.NewReader(report)); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.StartElement:
			form, known := junitForm[e.Name.Local]
			if !known || e.Name.Space != "" {
				t.Fatalf("there is no element %v", e.Name)
			}
			attrs := map[string]string{}
			for _, a := range e.Attr {
				if _, twice := attrs[a.Name.Local]; twice || !slices.Contains(slices.Concat(form.must, form.may), a.Name.Local) {
					t.Fatalf("%s has no attribute %s", e.Name.Local, a.Name.Local)
				}
				attrs[a.Name.Local] = a.Value
			}
			for _, name := range form.must {
				if _, ok := attrs[name]; !ok {
					t.Fatalf("%s needs the attribute %s", e.Name.Local, name)
				}
			}
			if s, ok := attrs["time"]; ok && !junitSeconds.MatchString(s) {
				t.Fatalf("time=%q is no number of seconds", s)
			}
			if len(stack) == 0 && e.Name.Local != "testsuites" {
				t.Fatalf("the root is %s", e.Name.Local)
			}
			if len(stack) > 0 {
				up := &stack[len(stack)-1]
				at := slices.Index(junitForm[up.name].below, e.Name.Local)
				if at < 0 || at < up.last {
					t.Fatalf("%s may not stand there in %s", e.Name.Local, up.name)
				}
				up.last = at
			}
			o := open{name: e.Name.Local}
			switch o.name {
			case "testsuites", "testsuite":
				o.says = tally{tests: number(attrs, "tests"), failures: number(attrs, "failures"), errors: number(attrs, "errors")}
				if o.name == "testsuite" {
					o.says.skipped = number(attrs, "skipped")
				}
			case "testcase":
				o.has.tests = 1
				if attrs["name"] == "" || attrs["classname"] == "" {
					t.Fatal("a test has no name")
				}
			case "failure":
				o.has.failures = 1
			case "error":
				o.has.errors = 1
			case "skipped":
				o.has.skipped = 1
			}
			stack = append(stack, o)
		case xml.EndElement:
			o := stack[len(stack)-1]
			stack = stack[:len(stack)-1]
			switch o.name {
			case "testcase":
				if o.has.failures+o.has.errors+o.has.skipped > 1 {
					t.Fatalf("a test ended in two ways: %+v", o.has)
				}
			case "testsuites":
				root, o.says.skipped = o.says, o.has.skipped
				fallthrough
			case "testsuite":
				if o.says != o.has {
					t.Fatalf("%s says %+v and holds %+v", o.name, o.says, o.has)
				}
			}
			if len(stack) > 0 {
				up := &stack[len(stack)-1].has
				*up = tally{up.tests + o.has.tests, up.failures + o.has.failures, up.errors + o.has.errors, up.skipped + o.has.skipped}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(e)); text != "" && (len(stack) == 0 || len(junitForm[stack[len(stack)-1].name].below) > 0) {
				t.Fatalf("text stands between elements: %q", text)
			}
		}
	}
	if len(stack) > 0 {
		t.Fatal("it ends too early")
	}
	return root
}

// Whatever stands in names, payloads and reasons, the report of reprieve test is one that build servers read.
func TestReportsAreWhatBuildServersRead(t *testing.T) {
	hostile := []string{"plain", `<b>"quoted" & 'single'</b>`, "]]>", "a\x00b\x07\x1b[31m", "\xff\xfe broken", "\ufffe\uffff", "two\nlines\r\nand\ttabs", "\u202egnp.exe", strings.Repeat("long ", 10_000)}
	var out tested
	want := tally{}
	for _, file := range []string{"tests/a_test.yaml", `tests/<&"> b_test.yaml`} {
		suite := worker.SuiteResult{File: file, Pipeline: "orders"}
		for _, text := range hostile {
			for _, r := range []worker.TestResult{
				{Name: "fine " + text, OK: true, Seconds: 0.0004},
				{Name: "differs " + text, Seconds: 1234.5, Differences: []worker.Difference{{Record: 1, Position: "t/0/0", What: "headers." + text, Want: text, Got: text, Reason: text}, {What: "code", Want: "none", Got: text}}},
				{Name: "cannot run " + text, Error: text},
			} {
				suite.Tests = append(suite.Tests, r)
				out.Tests++
				if !r.OK {
					suite.Failed++
					out.Failed++
				}
			}
			want = tally{tests: want.tests + 3, failures: want.failures + 1, errors: want.errors + 1}
		}
		out.Suites = append(out.Suites, suite)
	}
	out.Suites = append(out.Suites, worker.SuiteResult{File: "tests/none_test.yaml", Pipeline: "orders"})
	file := filepath.Join(t.TempDir(), "report.xml")
	if err := writeJUnit(file, out); err != nil {
		t.Fatal(err)
	}
	report, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got := readJUnit(t, report); got != want {
		t.Errorf("the report says %+v, want %+v", got, want)
	}
	if !strings.Contains(string(report), "]]&gt;") || !strings.Contains(string(report), "&lt;b&gt;") {
		t.Error("texts do not stand in it")
	}
}
