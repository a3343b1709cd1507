// Package worker turns files into running parts: it checks them, builds pipelines and custodians, and runs them with a
// lifecycle each.
package worker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/pipeline/stage"
)

// codeExpression as problems spell codes.
const codeExpression = string(pipeline.CodeConfigExpression)

// Plan is a checked configuration: everything that can be known without a broker is right.
type Plan struct {
	File      string
	Config    *config.Worker
	Pipelines []*PipelinePlan

	contents   string // of all files
	owners     []ownerRule
	objectives []custody.Objective
}

// PipelinePlan is one checked pipeline file.
type PipelinePlan struct {
	File     string
	Config   *config.Pipeline
	Digest   string // of the canonical form
	Stages   []StagePlan
	Policy   *decide.Policy // of the file; another may be in force by the control topic
	Identity *stage.Identity
	Redact   redact.Config
	Targets  []string // topics that the route stages name

	policyFile string // that classify names; "" without one
	decides    decide.Options
}

// StagePlan is one stage with its settings decoded.
type StagePlan struct {
	Kind     pipeline.Kind
	Name     string
	When     *expr.Cond
	Settings any
	Node     config.Node
}

// Files names what Load reads. A pipeline path may be a folder: all its *.yaml files.
type Files struct {
	Worker    string
	Pipelines []string
}

// Load reads and checks the worker file and the pipeline files, and reports every problem at once, in file order. The plan is
// usable only without problems.
func Load(f Files, kinds []pipeline.Kind, opt config.Options) (*Plan, config.Problems) {
	plan := &Plan{File: f.Worker}
	files := contents{}
	opt = files.noting(opt)
	var ps config.Problems
	data, p := read(f.Worker, "name the worker file: --config FILE, or REPRIEVE_CONFIG", opt)
	ps = append(ps, p...)
	if data != nil {
		w, doc, p := config.LoadWorker(f.Worker, data, opt)
		plan.Config = w
		ps = append(ps, p...)
		if doc != nil && w != nil {
			ps = append(ps, checkWorker(w, doc)...)
			ps = append(ps, plan.ownership(w, doc)...)
		}
		ps = ps.Sorted()
	}
	found, p := expand(f.Pipelines)
	ps = append(ps, p...)
	names := map[string]string{}
	for _, file := range found {
		pp, p := loadPipeline(file, plan.Config, kinds, opt)
		ps = append(ps, p...)
		if pp == nil {
			continue
		}
		if first, twice := names[pp.Config.Name]; twice && pp.Config.Name != "" {
			ps = append(ps, config.Problem{File: file, Line: 1, Column: 1, Path: "pipeline", Code: config.CodeValue,
				Text: "the pipeline " + pp.Config.Name + " is defined in " + first + " already", Suggestion: "give it another name"})
		}
		names[pp.Config.Name] = file
		if plan.Config != nil {
			ps = append(ps, pp.checkPlugins(f.Worker, plan.Config.Sandbox)...)
		}
		plan.Pipelines = append(plan.Pipelines, pp)
	}
	for i := range ps {
		if ps[i].Code == codeExpression {
			ps[i].Text = plainSyntax(ps[i].Text)
		}
	}
	plan.named(files)
	plan.contents = files.digest()
	return plan, ps
}

// plainSyntax takes the parser's list of everything that it would have understood away.
func plainSyntax(text string) string {
	text, _, _ = strings.Cut(text, " expecting {")
	return strings.NewReplacer("Syntax error: mismatched input '<EOF>'", "it ends too early",
		"Syntax error: mismatched input ", "it cannot go on with ", "Syntax error: ", "").Replace(text)
}

func read(file, suggestion string, opt config.Options) ([]byte, config.Problems) {
	data, err := opt.ReadFile(file)
	if err == nil {
		return data, nil
	}
	text := "the file cannot be read: " + err.Error()
	if errors.Is(err, fs.ErrNotExist) {
		text = "there is no such file"
	}
	return nil, config.Problems{{File: file, Code: config.CodeRead, Text: text, Suggestion: suggestion}}
}

// expand replaces folders by their YAML files, sorted.
func expand(paths []string) ([]string, config.Problems) {
	var out []string
	var ps config.Problems
	for _, p := range paths {
		info, err := os.Stat(p)
		if err != nil || !info.IsDir() {
			out = append(out, p) // a missing file is told when it is read
			continue
		}
		var found []string
		for _, pattern := range []string{"*.yaml", "*.yml"} {
			m, _ := filepath.Glob(filepath.Join(p, pattern)) // the pattern is ours
			found = append(found, slices.DeleteFunc(m, IsSuite)...)
		}
		if len(found) == 0 {
			ps = append(ps, config.Problem{File: p, Code: config.CodeRead, Text: "the folder has no pipeline file",
				Suggestion: "pipeline files end in .yaml"})
		}
		slices.Sort(found)
		out = append(out, found...)
	}
	return out, ps
}

func loadPipeline(file string, w *config.Worker, kinds []pipeline.Kind, opt config.Options) (*PipelinePlan, config.Problems) {
	data, ps := read(file, "check the path", opt)
	if data == nil {
		return nil, ps
	}
	c, doc, ps := config.LoadPipeline(file, data, opt)
	if c == nil || doc == nil {
		return nil, ps
	}
	pp := &PipelinePlan{File: file, Config: c}
	ps = append(ps, pp.stages(kinds)...)
	ps = append(ps, pp.identity(doc)...)
	ps = append(ps, pp.policy(w, doc, opt)...)
	ps = append(ps, checkPipeline(pp, w, doc)...)
	pp.Digest = doc.Digest() // after the settings were decoded: a secret among them counts by its reference
	return pp, ps.Sorted()
}

// stages decodes the settings of each stage and checks their order.
func (pp *PipelinePlan) stages(kinds []pipeline.Kind) (ps config.Problems) {
	var last pipeline.Phase
	var lastName string
	var redacts []redact.Config
	for _, s := range pp.Config.Stages {
		if s.Kind == "" {
			continue // it was told that the stage has no kind
		}
		i := slices.IndexFunc(kinds, func(k pipeline.Kind) bool { return k.Name == s.Kind })
		if i < 0 {
			var names []string
			for _, k := range kinds {
				names = append(names, k.Name)
			}
			ps = append(ps, s.Place.Problem(s.Kind, config.CodeUnknownKey, "there is no stage kind "+strconv.Quote(s.Kind),
				config.Nearest(s.Kind, names)))
			continue
		}
		k := kinds[i]
		sp := StagePlan{Kind: k, Name: s.Name, Settings: k.Settings(), Node: s.Settings}
		wrong := s.Settings.Decode(sp.Settings)
		ps = append(ps, wrong...)
		if k.Phase < last {
			ps = append(ps, s.Place.Problem(s.Kind, config.CodeUnsafe, s.Kind+" stands after "+lastName,
				"order stages by phase: decode, classify, redact, enrich, route"))
		}
		last, lastName = max(last, k.Phase), s.Name
		if s.When != "" {
			c, err := expr.Condition(s.When)
			if err != nil {
				ps = append(ps, expressionProblems(s.Place, "when", err)...)
			}
			sp.When = c
			if k.Phase <= pipeline.PhaseRedact {
				ps = append(ps, s.Place.Problem("when", config.CodeUnsafe, s.Kind+" cannot be conditional: a record that it skips would leave unread or unredacted",
					"take when away, or put the condition into a later stage"))
			}
		}
		switch set := sp.Settings.(type) {
		case *stage.DecodeSettings:
			if len(wrong) == 0 {
				ps = append(ps, pp.schemaFiles(set, s.Settings)...)
			}
		case *stage.RouteSettings:
			pp.Targets = append(pp.Targets, set.Topics()...)
			ps = append(ps, checkExpressions(set, s.Settings)...)
		case *stage.EnrichSettings:
			for name, src := range set.Headers {
				if _, err := expr.ValueOf(src); err != nil {
					ps = append(ps, expressionProblems(s.Settings, "headers."+name, err)...)
				}
			}
			ps = append(ps, pp.lookups(set, s.Settings)...)
		case *redact.Config:
			redacts = append(redacts, *set)
			for _, p := range set.Check(redact.Options{HashKey: make([]byte, 32)}) {
				found := s.Settings.Problem(p.Path, string(p.Code), p.Text, p.Suggestion)
				if !slices.ContainsFunc(wrong, func(w config.Problem) bool { return w.Path == found.Path }) {
					ps = append(ps, found)
				}
			}
		}
		pp.Stages = append(pp.Stages, sp)
	}
	if len(redacts) > 0 {
		pp.Redact = redacts[0]
	}
	if len(redacts) > 1 {
		ps = append(ps, pp.Config.Stages[len(pp.Config.Stages)-1].Place.Problem("", config.CodeUnsafe, "a pipeline has one redact stage",
			"join the settings in one"))
	}
	return ps
}

func checkExpressions(set *stage.RouteSettings, n config.Node) (ps config.Problems) {
	for i, r := range set.Rules {
		if r.When == "" {
			continue
		}
		if _, err := expr.Condition(r.When); err != nil {
			ps = append(ps, expressionProblems(n, "rules["+strconv.Itoa(i)+"].when", err)...)
		}
	}
	return ps
}

// expressionProblems are the problems of an expression that does not compile, each at the expression's place.
func expressionProblems(n config.Node, path string, err error) (ps config.Problems) {
	var found expr.Problems
	if !errors.As(err, &found) {
		return config.Problems{n.Problem(path, codeExpression, err.Error(), "")}
	}
	for _, p := range found {
		at := ""
		if p.Line > 1 || p.Column > 1 {
			at = "at " + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column) + " of the expression: "
		}
		ps = append(ps, n.Problem(path, codeExpression, at+p.Text, p.Suggestion))
	}
	return ps
}

// identity compiles where names stand.
func (pp *PipelinePlan) identity(doc *config.Doc) config.Problems {
	s := pp.Config.Source
	c := stage.IdentityConfig{
		Consumer: s.Group, Release: s.Release, EventID: s.Identity.EventID, Entity: s.Identity.Entity, BusinessID: s.Identity.BusinessID,
		IdempotencyToken: s.Identity.Token, Version: s.Identity.Version, Allow: s.Tenant.Allow,
	}
	switch s.Tenant.From {
	case "payload":
		c.Tenant = s.Tenant.Path
	case "header":
		c.Tenant = "header:" + s.Tenant.Header
	case "topic":
		c.Tenant = "topic"
	case "fixed":
		c.Fixed = s.Tenant.Value
	}
	id, err := stage.NewIdentity(c)
	if err != nil {
		return config.Problems{doc.Problem("source.identity", config.CodeValue, err.Error(), "write a path like /event_id")}
	}
	pp.Identity = id
	return nil
}

// notYet is the problem of asking for something that this version does not do: better said than silently left out.
func notYet(n config.Node, path, what string) config.Problem {
	return n.Problem(path, string(pipeline.CodeNotYet), what+" are not available in this version", "leave it out")
}

// base is the folder that relative paths in the worker file count from.
func (p *Plan) base() string { return filepath.Dir(p.File) }

// LedgerURL is the URL of a ledger by name, relative SQLite paths from the folder of the worker file; "" names the only one.
// Codes: ERR_CONFIG_REFERENCE.
func (p *Plan) LedgerURL(name string) (string, error) {
	if name == "" && len(p.Config.Ledgers) == 1 {
		for n := range p.Config.Ledgers {
			name = n
		}
	}
	if name == "" {
		name = "main"
	}
	l, ok := p.Config.Ledgers[name]
	if !ok {
		return "", pipeline.Errorf(pipeline.CodeConfigReference, p.File, "there is no ledger %q", name).
			With("define it under ledgers, for example main: sqlite:ledger.db")
	}
	url := l.URL.Reveal()
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok && !filepath.IsAbs(path) {
		url = "sqlite:" + filepath.Join(p.base(), path)
	}
	return url, nil
}
