package stage

import (
	"context"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/expr"
)

// RouteSettings of a route stage.
type RouteSettings struct {
	Rules   []RouteRule  `yaml:"rules" doc:"Tried in order; the first whose condition holds decides."`
	Default *Destination `yaml:"default" doc:"Where a record goes that no rule matched; without it such a record is quarantined."`
}

// RouteRule is one destination under a condition.
type RouteRule struct {
	When  string `yaml:"when" required:"true" doc:"CEL condition over view, headers, key and topic."`
	Topic string `yaml:"topic" required:"true" doc:"Destination topic."`
}

// Destination is where records go.
type Destination struct {
	Topic string `yaml:"topic" required:"true" doc:"Destination topic."`
}

// Topics are all destinations of the settings.
func (s *RouteSettings) Topics() []string {
	var out []string
	for _, r := range s.Rules {
		out = append(out, r.Topic)
	}
	if s.Default != nil {
		out = append(out, s.Default.Topic)
	}
	return out
}

func routeKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "route", Phase: pipeline.PhaseRoute,
		Doc:      "Says which topic a record goes to. The partition is murmur2 of the key, as Java producers do.",
		Settings: func() any { return &RouteSettings{} },
		Build:    buildRoute,
	}
}

type route struct {
	name  string
	rules []routeRule
	other string
}

type routeRule struct {
	when  *expr.Cond
	name  string
	topic string
}

func buildRoute(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	s := settings.(*RouteSettings)
	r := &route{name: env.Name}
	for i, rule := range s.Rules {
		c, err := expr.Condition(rule.When)
		if err != nil {
			return nil, nil, pipeline.Errorf(pipeline.CodeConfigExpression, "rules/"+strconv.Itoa(i)+"/when", "%w", err)
		}
		r.rules = append(r.rules, routeRule{c, "rules/" + strconv.Itoa(i), rule.Topic})
	}
	if s.Default != nil {
		r.other = s.Default.Topic
	}
	return r, nil, nil
}

// Process sets the target of each live record. A condition that fails fails the record with ERR_ROUTE_RULE; a record without a
// destination is ERR_ROUTE_NONE.
func (r *route) Process(_ context.Context, b *pipeline.Batch) error {
records:
	for i := range b.Recs {
		if !b.Live(i) {
			continue
		}
		for k := range r.rules {
			if b.Views[i] == nil && r.rules[k].when.ReadsView() {
				continue // a delete marker has no fields
			}
			ok, err := r.rules[k].when.Eval(b, i)
			if err != nil {
				b.Fail(i, pipeline.Failure{Stage: r.name, Code: pipeline.CodeRouteRule,
					Params: []pipeline.Param{pipeline.Str("rule", r.rules[k].name)}, Cause: err})
				continue records
			}
			if ok {
				b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: r.rules[k].topic, Partition: -1}
				continue records
			}
		}
		if r.other == "" {
			b.Fail(i, pipeline.Failure{Stage: r.name, Code: pipeline.CodeRouteNone})
			continue
		}
		b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: r.other, Partition: -1}
	}
	return nil
}
