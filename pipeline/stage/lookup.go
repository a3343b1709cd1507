package stage

import (
	"slices"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

// What is done with a record that a look-up has no answer for.
const (
	MissingFail    = "fail"
	MissingDefault = "default"
	MissingSkip    = "skip"
)

// Missing is the declared choice of a look-up; it stands in both kinds of look-up.
type Missing struct {
	Missing string            `yaml:"missing" default:"fail" enum:"fail,default,skip" doc:"A record without an answer fails with ERR_ENRICH_MISSING, gets the values of default, or gets no header."`
	Default map[string]string `yaml:"default" doc:"Header name to text, with missing: default; one for each header of take."`
}

func (m *Missing) check(n config.Node, take map[string]string) (ps config.Problems) {
	if m.Missing != MissingDefault {
		if len(m.Default) > 0 {
			ps = append(ps, n.Problem("default", config.CodeValue, "it is only read with missing: default", "write missing: default or remove it"))
		}
		return ps
	}
	for _, name := range sorted(take) {
		if _, ok := m.Default[name]; !ok {
			ps = append(ps, n.Problem("default", config.CodeMissing, "the header "+name+" has no default", "add it to default"))
		}
	}
	for _, name := range sorted(m.Default) {
		if _, ok := take[name]; !ok {
			ps = append(ps, n.Problem("default."+name, config.CodeValue, "no header of take has this name", config.Nearest(name, sorted(take))))
		}
	}
	return ps
}

// checkTake judges the headers that a look-up sets and where their values stand.
func checkTake(n config.Node, take map[string]string, into string, pointers bool) (ps config.Problems) {
	if len(take) == 0 && into == "" {
		ps = append(ps, n.Problem("take", config.CodeMissing, "the answer is not used", "write take: {HEADER: /path}"))
	}
	if strings.HasPrefix(into, "/") {
		ps = append(ps, n.Problem("into", config.CodeValue, "it is the name of a member of the value, not a path", "write "+strings.TrimLeft(into, "/")))
	}
	for _, name := range sorted(take) {
		at := "take." + name
		switch {
		case name == "" || strings.HasPrefix(strings.ToLower(name), "reprieve-"):
			ps = append(ps, n.Problem(at, config.CodeValue, "headers that begin with reprieve- are the platform's own", "use another name"))
		case pointers && (len(take[name]) < 2 || take[name][0] != '/'):
			ps = append(ps, n.Problem(at, config.CodeValue, "a path starts with '/'", "write /"+strings.TrimLeft(take[name], "/")))
		case take[name] == "":
			ps = append(ps, n.Problem(at, config.CodeMissing, "no column is named", ""))
		}
	}
	return ps
}

// taken is one header that a look-up sets; its value stands at the same index of each answer.
type taken struct {
	header string
	from   string
	def    []byte
}

// answer holds the text of each taken value; nil is absent. Where a member of the value takes the whole answer, its JSON is the last.
// It is shared by all records that get it and never changed.
type answer [][]byte

// sink of a look-up: what becomes of records that have an answer and of those that have none.
type outcome struct {
	name    string // of the stage
	missing string
	take    []taken // by header, so that the output does not depend on the order of a map
	into    string  // member of the value that takes the whole answer; "" is none
}

func newOutcome(name string, take map[string]string, into string, m Missing) outcome {
	o := outcome{name: name, missing: m.Missing, into: into}
	for _, h := range sorted(take) {
		o.take = append(o.take, taken{h, take[h], []byte(m.Default[h])})
	}
	return o
}

// set adds the headers of an answer to record i. A value that the answer lacks is missing like the whole answer would be.
func (o *outcome) set(b *pipeline.Batch, i int, a answer) {
	for k := range o.take {
		t := &o.take[k]
		v := a[k]
		if v == nil {
			switch o.missing {
			case MissingFail:
				o.fail(b, i, t.from)
				return
			case MissingSkip:
				continue
			}
			v = t.def
		}
		b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: t.header, Value: v})
	}
	if o.into != "" {
		b.Join(i, o.into, a[len(o.take)])
	}
}

// whole adds the JSON of a whole answer, if a member of the value takes it.
func (o *outcome) whole(a answer, v pipeline.View) answer {
	if o.into == "" {
		return a
	}
	text, err := v.AppendJSON(nil)
	if err != nil { // it was validated: a JSON view appends its own bytes
		panic(err)
	}
	return append(a, text)
}

// paths are where the taken values stand in a document.
func (o *outcome) paths() (out []*pipeline.Path, err error) {
	for _, t := range o.take {
		p, err := pipeline.NewPath(t.from)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// of is the answer that a document gives.
func (o *outcome) of(v pipeline.View, paths []*pipeline.Path) answer {
	a := make(answer, len(paths), len(paths)+1)
	for k, p := range paths {
		a[k] = textAt(v, p)
	}
	return o.whole(a, v)
}

// none is a record that has no answer; what says which part of the question or the answer is not there, without payload.
func (o *outcome) none(b *pipeline.Batch, i int, what string) {
	switch o.missing {
	case MissingFail:
		o.fail(b, i, what)
	case MissingDefault:
		for k := range o.take {
			b.Outs[i].Add = append(b.Outs[i].Add, pipeline.Header{Name: o.take[k].header, Value: o.take[k].def})
		}
	}
}

func (o *outcome) fail(b *pipeline.Batch, i int, what string) {
	b.Fail(i, pipeline.Failure{Stage: o.name, Code: pipeline.CodeEnrichMissing,
		Params: []pipeline.Param{pipeline.Str("lookup", o.name), pipeline.Str("what", what)}})
}

// textAt is the text of a scalar; nil if there is none.
func textAt(v pipeline.View, p *pipeline.Path) []byte {
	got, ok := v.Get(p)
	if !ok {
		return nil
	}
	switch got.Kind {
	case pipeline.KindNull, pipeline.KindArray, pipeline.KindMap, pipeline.KindRecord:
		return nil
	}
	return got.AppendText([]byte{})
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
