package stage

import (
	"context"
	"errors"
	"slices"
	"strconv"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/expr"
)

// RouteSettings of a route stage.
type RouteSettings struct {
	Rules   []RouteRule   `yaml:"rules" doc:"Tried in order; the first whose condition holds decides."`
	Default *Destination  `yaml:"default" doc:"Where a record goes that no rule matched; without it such a record is quarantined."`
	Encode  config.Encode `yaml:"encode" doc:"How the value that leaves is written anew, with what enrich stages gave it (into); if not said it is the source's bytes, redacted in place. A view becomes JSON, or a record of the newest schema of a subject; what does not fit that schema is quarantined. A delete marker stays one."`
}

// RouteRule is one destination under a condition.
type RouteRule struct {
	When  string      `yaml:"when" required:"true" doc:"CEL condition over view, headers, key and topic."`
	Topic string      `yaml:"topic" doc:"Destination topic."`
	HTTP  *HTTPEffect `yaml:"http" doc:"Service to call instead of a topic."`
}

// Destination is where records go: a topic or a call.
type Destination struct {
	Topic string      `yaml:"topic" doc:"Destination topic."`
	HTTP  *HTTPEffect `yaml:"http" doc:"Service to call instead of a topic."`
}

// Validate checks that there is one destination.
func (r *RouteRule) Validate(n config.Node) config.Problems {
	return oneDestination(n, r.Topic, r.HTTP)
}

// Validate checks that there is one destination.
func (d *Destination) Validate(n config.Node) config.Problems {
	return oneDestination(n, d.Topic, d.HTTP)
}

func oneDestination(n config.Node, topic string, http *HTTPEffect) config.Problems {
	switch {
	case topic == "" && http == nil && !n.Key("topic").Broken():
		return config.Problems{n.Problem("topic", config.CodeMissing, "it is required, or http", "for example topic: billing.ledger.v1")}
	case topic != "" && http != nil:
		return config.Problems{n.Problem("http", config.CodeValue, "a destination is a topic or a call, not both", "write another rule for the other one")}
	}
	return nil
}

// Topics are all topics of the settings.
func (s *RouteSettings) Topics() (out []string) {
	for _, r := range s.Rules {
		if r.Topic != "" {
			out = append(out, r.Topic)
		}
	}
	if s.Default != nil && s.Default.Topic != "" {
		out = append(out, s.Default.Topic)
	}
	return out
}

// NamedEffect is one call that a route stage makes.
type NamedEffect struct {
	Name string
	Path string // below the stage's settings: "rules[0].http"
	HTTP *HTTPEffect
}

// Effects are all calls of the settings of the stage of that name, in their order.
func (s *RouteSettings) Effects(stage string) (out []NamedEffect) {
	add := func(at, path string, h *HTTPEffect) {
		if h == nil {
			return
		}
		name := h.Name
		if name == "" {
			name = stage + "/" + at
		}
		out = append(out, NamedEffect{name, path + ".http", h})
	}
	for i, r := range s.Rules {
		add("rules/"+strconv.Itoa(i), "rules["+strconv.Itoa(i)+"]", r.HTTP)
	}
	if s.Default != nil {
		add("default", "default", s.Default.HTTP)
	}
	return out
}

func routeKind() pipeline.Kind {
	return pipeline.Kind{
		Name: "route", Phase: pipeline.PhaseRoute,
		Doc:      "Says which topic a record goes to, or which service is called with it. The partition is murmur2 of the key, as Java producers do.",
		Settings: func() any { return &RouteSettings{} },
		Build:    buildRoute,
	}
}

type route struct {
	name    string
	rules   []routeRule
	other   destination
	effects []*effect
	encode  *encoder // nil: the source's bytes leave
}

type routeRule struct {
	when *expr.Cond
	name string
	to   destination
}

// destination is a topic or a call; neither is none.
type destination struct {
	topic  string
	effect *effect
}

func buildRoute(settings any, env pipeline.Env) (pipeline.Stage, pipeline.Close, error) {
	s := settings.(*RouteSettings)
	r := &route{name: env.Name}
	var closers []pipeline.Close
	shut := func() error {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c())
		}
		return errors.Join(errs...)
	}
	effects := map[*HTTPEffect]*effect{}
	for _, ne := range s.Effects(env.Name) {
		e, c, err := buildEffect(ne.HTTP, ne.Name, env)
		if err != nil {
			return nil, nil, errors.Join(err, shut())
		}
		closers = append(closers, c)
		effects[ne.HTTP] = e
		r.effects = append(r.effects, e)
	}
	for i, rule := range s.Rules {
		c, err := expr.Condition(rule.When)
		if err != nil {
			return nil, nil, errors.Join(pipeline.Errorf(pipeline.CodeConfigExpression, "rules/"+strconv.Itoa(i)+"/when", "%w", err), shut())
		}
		r.rules = append(r.rules, routeRule{c, "rules/" + strconv.Itoa(i), destination{rule.Topic, effects[rule.HTTP]}})
	}
	if s.Default != nil {
		r.other = destination{s.Default.Topic, effects[s.Default.HTTP]}
	}
	if s.Encode.Format != "" {
		var err error
		if r.encode, err = buildEncoder(&s.Encode, env); err != nil {
			return nil, nil, errors.Join(err, shut())
		}
	}
	return r, shut, nil
}

// Calls are the effects of the stage by their names: what a call.Sink makes of its messages.
func (r *route) Calls() map[string]call.Effect {
	out := map[string]call.Effect{}
	for _, e := range r.effects {
		out[e.name] = e.call
	}
	return out
}

// Unhealthy tells whether the service that f is about is known to be down, for Facts.
func (r *route) Unhealthy(f *pipeline.Failure) bool {
	for _, e := range r.effects {
		if f.Stage == r.name && len(f.Params) > 0 && f.Params[0].Name == "target" && f.Params[0].Text == e.name {
			return !e.healthy()
		}
	}
	return false
}

// Process sets the target of each live record. A condition that fails fails the record with ERR_ROUTE_RULE; a record without a
// destination is ERR_ROUTE_NONE. One that a call cannot be made of is ERR_HTTP_REQUEST, or ERR_REDACT_IDENTITY when redaction
// changed what the call would be addressed or recognised by. With encode, a value that cannot be written anew is ERR_ROUTE_ENCODE.
func (r *route) Process(ctx context.Context, b *pipeline.Batch) error {
	r.direct(b)
	if r.encode != nil {
		r.encode.process(ctx, b)
	}
	return nil
}

func (r *route) direct(b *pipeline.Batch) {
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
				r.send(b, i, &r.rules[k].to)
				continue records
			}
		}
		r.send(b, i, &r.other)
	}
}

func (r *route) send(b *pipeline.Batch, i int, to *destination) {
	if o := &b.Outs[i]; o.To.Kind == pipeline.TargetCall { // an earlier route stage wanted a call
		o.Add = slices.DeleteFunc(o.Add, func(h pipeline.Header) bool { return h.Name == call.HeaderURL || h.Name == call.HeaderKey })
	}
	switch {
	case to.effect != nil:
		to.effect.to(b, i, r.name)
	case to.topic != "":
		b.Outs[i].To = pipeline.Target{Kind: pipeline.TargetTopic, Topic: to.topic, Partition: -1}
	default:
		b.Fail(i, pipeline.Failure{Stage: r.name, Code: pipeline.CodeRouteNone})
	}
}
