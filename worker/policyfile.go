package worker

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/decide"
	"reprieve.dev/pipeline/stage"
)

// policy loads the file that classify names, or takes the default.
func (pp *PipelinePlan) policy(w *config.Worker, doc *config.Doc, opt config.Options) config.Problems {
	c := pp.Config
	attempts := uint8(min(c.Retry.Attempts, 255))
	pp.decides = decide.Options{
		Quarantine: c.Quarantine.Topic, OutagePause: c.Outage == "pause",
		Retry: decide.Retry{Topic: c.Retry.Topic, Attempts: &attempts, Backoff: decide.Backoff{
			Initial: c.Retry.Backoff.Initial.Std(), Factor: c.Retry.Backoff.Factor, Max: c.Retry.Backoff.Max.Std(), Jitter: c.Retry.Backoff.Jitter}},
	}
	if w != nil {
		pp.decides.Bounds = decide.Bounds{Attempts: uint8(min(w.Bounds.Attempts, 255)), Age: w.Bounds.Age.Std(), Cumulative: w.Bounds.Cumulative.Std(),
			Unknown: decide.UnknownBudget{Window: w.Bounds.UnknownErrors.Window, Tolerated: w.Bounds.UnknownErrors.Tolerated}}
	}
	for _, s := range pp.Stages {
		set, ok := s.Settings.(*stage.ClassifySettings)
		if !ok || set.Policy == "" {
			continue
		}
		pp.policyFile = set.Policy
		if !filepath.IsAbs(pp.policyFile) {
			pp.policyFile = filepath.Join(filepath.Dir(pp.File), pp.policyFile)
		}
		p, _, ps := pp.ReadPolicy(pp.policyFile, opt)
		if len(ps) == 1 && ps[0].Code == config.CodeRead {
			return config.Problems{s.Node.Problem("policy", config.CodeRead, "the policy file "+pp.policyFile+" cannot be read",
				"the path counts from the folder of the pipeline file")}
		}
		pp.Policy = p
		return ps
	}
	p, err := decide.New(decide.File{}, pp.decides)
	if err != nil {
		return config.Problems{doc.Problem("retry", config.CodeValue, err.Error(), "")}
	}
	pp.Policy = p
	return nil
}

// PolicyFile is the policy file that the pipeline names; "" without one.
func (pp *PipelinePlan) PolicyFile() string { return pp.policyFile }

// ReadPolicy compiles a policy file for the pipeline, under the platform's bounds.
func (pp *PipelinePlan) ReadPolicy(file string, opt config.Options) (*decide.Policy, *config.Doc, config.Problems) {
	doc, ps := config.Read(file, opt)
	if doc == nil {
		return nil, nil, ps
	}
	p, more := pp.compile(doc)
	return p, doc, append(ps, more...).Sorted()
}

// compileText compiles the canonical form of a policy, as it travels.
func (pp *PipelinePlan) compileText(version string, text []byte) (*decide.Policy, config.Problems) {
	doc, ps := config.Parse("policy "+version, text, config.Options{Plain: true})
	if doc == nil || len(ps) > 0 {
		return nil, ps
	}
	p, ps := pp.compile(doc)
	if len(ps) == 0 && string(p.Digest()) != version {
		return nil, config.Problems{doc.Problem("", config.CodeValue, "it reads as another version here: "+string(p.Digest()), "update this program")}
	}
	return p, ps
}

func (pp *PipelinePlan) compile(doc *config.Doc) (*decide.Policy, config.Problems) {
	p, ps := decide.Load(doc, pp.decides)
	for i := range ps {
		if ps[i].Code == codeExpression {
			ps[i].Text = plainSyntax(ps[i].Text)
		}
	}
	if p == nil {
		return nil, ps
	}
	if reject, _ := p.Rules(); reject > 0 && !pp.hasKind("classify") {
		ps = append(ps, doc.Problem("reject", string(pipeline.CodePolicyUnread), "no stage of the pipeline asks these rules",
			"add '- classify: {policy: FILE}' to the pipeline "+pp.Config.Name))
	}
	return p, ps
}

// newest is what answers with the latest schema of a subject.
type newest interface {
	Latest(ctx context.Context, subject string) (*codec.Schema, *pipeline.Failure)
}

// CheckPolicy finds the places that rules read and that no record can have under the latest schema of a source topic. notes
// say what could not be looked at. doc may be nil. registry opens schema registries by name.
func (pp *PipelinePlan) CheckPolicy(ctx context.Context, p *decide.Policy, doc *config.Doc, registry func(string) (codec.Registry, error)) (ps config.Problems, notes []string) {
	reads := p.Reads()
	if len(reads) == 0 {
		return nil, nil
	}
	schemas, notes := pp.newestSchemas(ctx, registry)
	for _, place := range slices.Sorted(maps.Keys(reads)) {
		for _, path := range reads[place] {
			var without []string
			var nearest string
			for _, topic := range slices.Sorted(maps.Keys(schemas)) {
				s := schemas[topic]
				if has, known := s.Has(path); known && !has {
					without = append(without, fmt.Sprintf("%s (%s)", topic, s.Ref()))
					nearest = nearestPlace(path, s)
				}
			}
			if len(without) > 0 {
				text := fmt.Sprintf("no record of %s has %s", strings.Join(without, ", "), path)
				if doc == nil {
					ps = append(ps, config.Problem{Path: place, Code: string(pipeline.CodePolicyPath), Text: text, Suggestion: nearest})
				} else {
					ps = append(ps, doc.Problem(place, string(pipeline.CodePolicyPath), text, nearest))
				}
			}
		}
	}
	return ps.Sorted(), notes
}

// newestSchemas are the latest schemas of the source topics' values, by topic.
func (pp *PipelinePlan) newestSchemas(ctx context.Context, registry func(string) (codec.Registry, error)) (out map[string]*codec.Schema, notes []string) {
	out = map[string]*codec.Schema{}
	names := pp.registries()
	if len(names) == 0 {
		return out, []string{"no schema says which places records have: the paths of the rules were not looked up"}
	}
	for _, name := range names {
		r, err := registry(name)
		if err != nil {
			notes = append(notes, "registry "+name+": "+err.Error())
			continue
		}
		n, ok := r.(newest)
		if !ok {
			continue
		}
		for _, topic := range pp.Config.Source.Topics {
			s, f := n.Latest(ctx, topic+"-value")
			if f != nil {
				notes = append(notes, fmt.Sprintf("the paths of the rules were not looked up in %s-value of registry %s: %s", topic, name, f.Reason()))
				continue
			}
			out[topic] = s
		}
	}
	return out, notes
}

func nearestPlace(path *pipeline.Path, s *codec.Schema) string {
	var known []string
	for _, p := range s.Places() {
		known = append(known, p.Path)
	}
	return config.Nearest(path.Text, known)
}
