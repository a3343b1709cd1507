package worker

import (
	"strconv"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// ownerRule is one of custody.owners.
type ownerRule struct {
	sel   custody.Selection
	owner string
}

// ownership reads the selections of custody.owners and custody.objectives.
func (p *Plan) ownership(w *config.Worker, doc *config.Doc) (ps config.Problems) {
	parse := func(path, text string) custody.Selection {
		sel, err := custody.ParseSelection(text)
		if err != nil && !broken(doc, path) {
			e, _ := err.(*pipeline.Error)
			ps = append(ps, doc.Problem(path, string(e.Code), e.Text, e.Fix()))
		}
		return sel
	}
	for i, o := range w.Custody.Owners {
		p.owners = append(p.owners, ownerRule{parse("custody.owners["+strconv.Itoa(i)+"].select", o.Select), o.Owner})
	}
	for i, o := range w.Custody.Objectives {
		path := "custody.objectives[" + strconv.Itoa(i) + "]"
		if o.Triage == 0 && o.Resolve == 0 {
			ps = append(ps, doc.Problem(path, config.CodeMissing, "the objective asks for nothing", "write triage: 4h or resolve: 3d"))
		}
		p.objectives = append(p.objectives, custody.Objective{Selection: parse(path+".select", o.Select), Triage: o.Triage.Std(), Resolve: o.Resolve.Std()})
	}
	return ps
}

// Owner is who owns a new item: the first rule of custody.owners that selects it, else what its pipeline's file says.
func (p *Plan) Owner(it *custody.Item) string {
	for _, r := range p.owners {
		if r.sel.Matches(it, it.TakenMS) {
			return r.owner
		}
	}
	for _, pp := range p.Pipelines {
		if pp.Config.Name == it.Pipeline {
			return pp.Config.Owner
		}
	}
	return ""
}

// Objectives are how soon items should be looked at and resolved.
func (p *Plan) Objectives() []custody.Objective { return p.objectives }

// Retention is how long items stay: custody.retention, with the data classes of the pipelines that are known.
func (p *Plan) Retention() custody.Retention {
	c := p.Config.Custody.Retention
	r := custody.Retention{Default: c.Default.Std(), Class: map[pipeline.Class]time.Duration{}, Data: map[string]time.Duration{}, Pipeline: map[string]string{}, Warn: (c.Default - c.Tell).Std()}
	for name, d := range c.Classes {
		if class, ok := pipeline.ParseClass(name); ok {
			r.Class[class] = d.Std()
		}
	}
	for name, d := range c.Data {
		r.Data[name] = d.Std()
	}
	for _, pp := range p.Pipelines {
		r.Pipeline[pp.Config.Name] = pp.Config.Quarantine.Data
	}
	return r
}
