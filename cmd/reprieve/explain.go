package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
)

// explained is one code as people and programs read it.
type explained struct {
	Code        pipeline.Code `json:"code"`
	Class       string        `json:"class,omitempty"`
	View        string        `json:"view,omitempty"` // poison, transient, rejection
	Action      string        `json:"default_action,omitempty"`
	Retryable   bool          `json:"retryable"`
	Identifying []string      `json:"identifying,omitempty"`
	Text        string        `json:"text"`
	Remedy      string        `json:"remedy"`
}

func explain(i pipeline.CodeInfo) explained {
	e := explained{Code: i.Code, Retryable: i.Retryable(), Identifying: i.Identifying, Text: i.Text, Remedy: i.Remedy}
	if i.Class != pipeline.ClassNone {
		e.Class, e.View, e.Action = i.Class.String(), i.Class.ThreeWay(), i.Action.String()
	}
	return e
}

func (a *app) explainCmd() *cobra.Command {
	return &cobra.Command{
		Use: "explain [CODE]", Short: "Say what a code means and what to do about it",
		Example: "  reprieve explain ERR_DECODE_TRUNCATED\n  reprieve explain          # all codes",
		Args:    atMostOne("one code"),
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				var all []explained
				for _, i := range pipeline.Codes() {
					all = append(all, explain(i))
				}
				return a.print(all, func(t *table) {
					t.head("CODE", "CLASS", "MEANS")
					for _, e := range all {
						t.row(e.Code, e.Class, e.Text)
					}
				})
			}
			code := pipeline.Code(strings.ToUpper(strings.TrimSpace(args[0])))
			if !pipeline.Known(code) {
				return pipeline.Errorf(pipeline.CodeUsage, string(code), "there is no such code").With(nearCode(code))
			}
			e := explain(pipeline.Lookup(code))
			return a.print(e, func(t *table) {
				t.pair("code", e.Code)
				t.pair("means", e.Text)
				t.pair("what to do", e.Remedy)
				t.pair("class", e.Class)
				t.pair("seen as", e.View)
				t.pair("by default", e.Action)
				t.pair("tells causes apart by", strings.Join(e.Identifying, ", "))
			})
		},
	}
}

// nearCode suggests the codes that share most words with the one that was asked for; a word counts from its first three letters.
func nearCode(code pipeline.Code) string {
	words := strings.Split(strings.TrimPrefix(string(code), "ERR_"), "_")
	var near []string
	most := 1
	for _, i := range pipeline.Codes() {
		shared := 0
		for _, w := range strings.Split(strings.TrimPrefix(string(i.Code), "ERR_"), "_") {
			if slices.ContainsFunc(words, func(asked string) bool { return asked == w || len(asked) >= 3 && strings.HasPrefix(w, asked) }) {
				shared++
			}
		}
		if shared > most {
			most, near = shared, nil
		}
		if shared == most {
			near = append(near, string(i.Code))
		}
	}
	if len(near) == 0 {
		return "list all codes: reprieve explain"
	}
	return "perhaps " + strings.Join(near[:min(3, len(near))], ", ")
}
