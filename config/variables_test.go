package config

import (
	"errors"
	"strings"
	"testing"
)

func TestVariablesAreSubstituted(t *testing.T) {
	opt := Options{
		Env: func(name string) (string, bool) {
			v, ok := map[string]string{"A": "a", "EMPTY": "", "DOLLAR": "${A}$$", "_x9": "under"}[name]
			return v, ok
		},
		ReadFile: func(path string) ([]byte, error) {
			v, ok := map[string]string{"plain": "text", "line": "text\n", "dos": "text\r\n", "two": "text\n\n", "k/é": "x", "empty": ""}[path]
			if !ok {
				return nil, errors.New(canary)
			}
			return []byte(v), nil
		},
	}
	for in, want := range map[string]string{
		"plain": "plain", "${A}": "a", "x${A}y${A}z": "xayaz", "${EMPTY}": "", "${_x9}": "under",
		"${A:-d}": "a", "${B:-d}": "d", "${EMPTY:-d}": "d", "${B:-}": "", "${B:d}": "d", "${B:redis://h:1/0}": "redis://h:1/0", "${B:--1}": "-1",
		"${A:?must}": "a", "${DOLLAR}": "${A}$$",
		"$": "$", "5$ flat": "5$ flat", "$A": "$A", "$$": "$", "$$$$": "$$", "$${A}": "${A}", "$$${A}": "$a", "a$": "a$", "{A}": "{A}", "$(A)": "$(A)",
		"${file:plain}": "text", "${file:line}": "text", "${file:dos}": "text", "${file:two}": "text\n", "${file:k/é}": "x", "${file:empty}": "",
	} {
		got, fail := expand(in, opt)
		if fail != nil || got.text != want {
			t.Errorf("%q is %q, %v, want %q", in, got.text, fail, want)
		}
	}
	for _, in := range []string{"${B}", "${B:?}", "${B:?say so}", "${EMPTY:?}", "${", "${A", "x${A:-", "${}", "${1}", "${A-d}", "${A b}", "${A?}", "${a.b}", "${A:-${B}}",
		"${env:A}", "${file:}", "${file:none}", "${ A}", "${A }"} {
		got, fail := expand(in, opt)
		if fail == nil {
			t.Errorf("%q is %q", in, got.text)
		} else if strings.Contains(fail.text+fail.suggestion, canary) {
			t.Errorf("%q shows a value: %v", in, fail)
		}
	}
	if _, fail := expand("${B:?say so}", opt); !strings.Contains(fail.text, "say so") {
		t.Errorf("the message is lost: %v", fail)
	}
	if _, fail := expand("${A}${file:plain}", Options{}); fail == nil {
		t.Error("without an environment a variable is set")
	}
}

func TestVariableTakesTheTypeOfItsField(t *testing.T) {
	var got struct {
		Number int      `yaml:"number"`
		Switch bool     `yaml:"switch"`
		Share  float64  `yaml:"share"`
		Wait   Duration `yaml:"wait"`
		Text   string   `yaml:"text"`
		Any    any      `yaml:"any"`
	}
	env := map[string]string{"N": "5", "T": "true", "F": "0.5", "D": "30s"}
	opt := Options{Env: func(name string) (string, bool) { v, ok := env[name]; return v, ok }}
	doc, ps := Parse("f", []byte("number: ${N}\nswitch: ${T}\nshare: ${F}\nwait: ${D}\ntext: ${T}\nany: ${N}\n"), opt)
	if len(ps) != 0 {
		t.Fatal(ps)
	}
	if ps := doc.Decode(&got); len(ps) != 0 {
		t.Fatal(ps)
	}
	if got.Number != 5 || !got.Switch || got.Share != 0.5 || got.Wait.String() != "30s" || got.Text != "true" || got.Any != "5" {
		t.Errorf("%+v", got)
	}
}

func TestINVConfigValueAddsNoStructure(t *testing.T) {
	for _, value := range []string{"[a, b]", "{a: b}", "x\ny: z", "- a", "*anchor", "!!int 5", "null", "~", "", "a: b # c", "|", "'", "\"", "\x00\xff"} {
		opt := Options{Env: func(string) (string, bool) { return value, true }}
		doc, ps := Parse("f", []byte("a: ${V}\nlist: [\"${V}\"]\n"), opt)
		if len(ps) != 0 {
			t.Fatal(ps)
		}
		if text, ok := doc.At("a").Text(); !ok || text != value {
			t.Errorf("%q arrives as %q", value, text)
		}
		if text, ok := doc.At("list[0]").Text(); !ok || text != value || len(doc.Root().Keys()) != 2 {
			t.Errorf("%q arrives as %q", value, text)
		}
	}
}
