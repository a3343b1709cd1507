package worker

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/seal"
)

// checkWorker finds what is wrong in the worker file beyond its form.
func checkWorker(w *config.Worker, doc *config.Doc) (ps config.Problems) {
	if len(w.Clusters) == 0 && !broken(doc, "clusters") {
		ps = append(ps, doc.Problem("clusters", config.CodeMissing, "no Kafka cluster is named", "write clusters: {main: {bootstrap.servers: HOST:9092}}"))
	}
	for _, name := range slices.Sorted(maps.Keys(w.Clusters)) {
		for _, e := range (kafka.Cluster{Name: name, Properties: w.Clusters[name]}).Check() {
			if w.Clusters[name]["bootstrap.servers"] == "" && strings.HasPrefix(e.Text, "bootstrap.servers") {
				continue // told already
			}
			ps = append(ps, doc.Problem("clusters."+name, config.CodeValue, e.Text, e.Remedy))
		}
	}
	if len(w.Keys.HMAC) == 0 && !broken(doc, "keys.hmac") {
		ps = append(ps, doc.Problem("keys.hmac", config.CodeMissing, "no key signs headers; unsigned attempts are not believed",
			"write keys: {hmac: [{id: k1, secret: '${file:keys/hmac}'}]}"))
	}
	if w.Keys.Identity.Secret.Reveal() == "" && !broken(doc, "keys.identity") {
		ps = append(ps, doc.Problem("keys.identity", config.CodeMissing, "no key makes quarantine ids",
			"write keys: {identity: {id: i1, secret: '${file:keys/identity}'}}; it is never rotated"))
	}
	for i, a := range w.Approvers {
		ps = append(ps, checkPublic(doc, "approvers["+strconv.Itoa(i)+"].public", a.Public)...)
	}
	for i, k := range w.Keys.Writers {
		ps = append(ps, checkPublic(doc, "keys.writers["+strconv.Itoa(i)+"].public", k.Public)...)
	}
	ps = append(ps, checkCallers(w, doc)...)
	ps = append(ps, checkAdopted(w, doc)...)
	for _, x := range []struct{ path, what string }{{"http.oidc", "sign-ins by OpenID Connect"}, {"telemetry.otlp", "traces"},
		{"bounds.lease_extensions", "extended leases"}} {
		if doc.Has(x.path) {
			ps = append(ps, notYet(doc.At(x.path), "", x.what))
		}
	}
	ps = ps.Sorted()
	return ps
}

// checkCallers checks tokens and roles of section http.
func checkCallers(w *config.Worker, doc *config.Doc) (ps config.Problems) {
	known := custody.DefaultRoles()
	for _, name := range slices.Sorted(maps.Keys(w.HTTP.Roles)) {
		path := "http.roles." + name
		if known[name] = nil; name == "system" {
			ps = append(ps, doc.Problem(path, config.CodeUnsafe, "the role system is the worker's own", "use another name"))
		}
		for _, p := range w.HTTP.Roles[name] {
			if !slices.Contains(custody.Permissions(), custody.Permission(p)) {
				var names []string
				for _, k := range custody.Permissions() {
					names = append(names, string(k))
				}
				ps = append(ps, doc.Problem(path, config.CodeValue, "there is no permission "+strconv.Quote(p), config.Nearest(p, names)))
			}
		}
	}
	subjects := map[string]bool{}
	for i, t := range w.HTTP.Tokens {
		path := "http.tokens[" + strconv.Itoa(i) + "]"
		if subjects[t.Subject] {
			ps = append(ps, doc.Problem(path+".subject", config.CodeValue, "two tokens have this subject", "each program has a name of its own"))
		}
		subjects[t.Subject] = true
		if text := t.Token.Reveal(); text != "" && len(text) < 24 {
			ps = append(ps, doc.Problem(path+".token", config.CodeUnsafe, "the token is shorter than 24 characters: it could be guessed", "make one: head -c 32 /dev/urandom | base64"))
		}
		for _, role := range t.Roles {
			if _, ok := known[role]; !ok || role == "system" {
				ps = append(ps, doc.Problem(path+".roles", config.CodeReference, "there is no role "+strconv.Quote(role)+" for callers", config.Nearest(role, slices.Sorted(maps.Keys(known)))))
			}
		}
	}
	return ps
}

// checkPublic tells whether a person's or a program's public key can be read.
func checkPublic(doc *config.Doc, path, text string) config.Problems {
	if _, err := seal.ParseVerifier([]byte(text)); err != nil && !broken(doc, path) && text != "" {
		return config.Problems{doc.Problem(path, config.CodeValue, "it is not an Ed25519 public key", "write it as base64 or PEM, as the key's owner gives it")}
	}
	return nil
}

func broken(doc *config.Doc, path string) bool { return doc.At(path).Broken() }

// checkPipeline finds what is wrong in a pipeline file beyond its form: names that the worker file must define, the order of
// work, and what this version does not do.
func checkPipeline(pp *PipelinePlan, w *config.Worker, doc *config.Doc) (ps config.Problems) {
	c := pp.Config
	if w != nil {
		ps = append(ps, config.CheckTogether(c, doc, w, config.TogetherOptions{})...)
	}
	ps = append(ps, checkQuestion(c, doc)...)
	ps = append(ps, compensation(c, doc)...)
	ps = append(ps, pp.order(doc)...)
	ps = append(ps, pp.effects()...)
	ps = append(ps, pp.encoding()...)
	ps = append(ps, pp.tenant(doc)...)
	for _, name := range slices.Sorted(maps.Keys(c.Redrive.Invariants)) {
		if _, err := expr.Condition(c.Redrive.Invariants[name]); err != nil {
			ps = append(ps, expressionProblems(doc.At("redrive.invariants"), name, err)...)
		}
	}
	return append(ps, unavailable(c, doc)...)
}

// compensation refuses an effect that undoes another one unless its result can be proven and two people decide (ADV-UC-01).
func compensation(c *config.Pipeline, doc *config.Doc) config.Problems {
	if !c.Effect.Compensates || (c.Reconcile.Mode == "http" || c.Reconcile.Mode == "outcomes") && c.Redrive.Approval == "dual" {
		return nil
	}
	return config.Problems{doc.Problem("effect.compensates", string(pipeline.CodeCompensation),
		"the effect compensates, and nothing verified decides about it", "say reconcile: {http: ...} or reconcile: outcomes, and redrive: {approval: dual}")}
}

// order checks that fields are decoded before they are looked at, and that there is a way out.
func (pp *PipelinePlan) order(doc *config.Doc) (ps config.Problems) {
	phases := map[pipeline.Phase]int{}
	for _, s := range pp.Stages {
		phases[s.Kind.Phase]++
		if s.Kind.Phase > pipeline.PhaseDecode && phases[pipeline.PhaseDecode] == 0 {
			ps = append(ps, s.Node.Problem("", config.CodeUnsafe, s.Name+" looks at fields, but nothing decodes the record before it",
				"begin with '- decode: {format: avro, registry: main}'"))
			break
		}
	}
	if len(pp.Stages) > 0 && phases[pipeline.PhaseRoute] == 0 {
		ps = append(ps, doc.Problem("stages", config.CodeMissing, "no stage says where records go", "end with '- route: {default: {topic: NAME}}'"))
	}
	if len(pp.Stages) > 0 && phases[pipeline.PhaseRedact] == 0 {
		ps = append(ps, doc.Problem("stages", config.CodeUnsafe, "records would leave unredacted",
			"add '- redact: {detectors: [pan, cvv, authorization]}' before enrich and route"))
	}
	return ps
}

// unavailable names what the file asks for and this version does not do.
func unavailable(c *config.Pipeline, doc *config.Doc) (ps config.Problems) {
	add := func(asked bool, path, what string) {
		if asked {
			ps = append(ps, notYet(doc.At(path), "", what))
		}
	}
	add(c.Source.Ordering.Scope != "none" && c.Source.Ordering.OnQuarantine != "none", "source.ordering", "blocked keys and partitions (ordering)")
	add(doc.Has("breaker") && !c.Breaker.Off, "breaker", "breakers")
	return ps
}

// schemaFiles checks the schemas that a decode stage takes from files.
func (pp *PipelinePlan) schemaFiles(set *stage.DecodeSettings, n config.Node) (ps config.Problems) {
	from := stage.Source{File: pp.readFile, Registry: func(string) (codec.Registry, error) { return unasked{}, nil }}
	tell := func(at string, err error) {
		if err == nil {
			return
		}
		place := at + "schema"
		e, ok := errors.AsType[*pipeline.Error](err)
		if ok && e.Place == "reader" {
			place = "reader"
		}
		text := err.Error()
		if ok && e.Cause != nil {
			text = e.Cause.Error()
		}
		ps = append(ps, n.Problem(place, string(pipeline.CodeOf(err)), "the schema file cannot be used: "+text, "the path counts from the folder of the pipeline file"))
	}
	_, _, err := set.Decoder(from)
	tell("", err)
	_, err = set.KeyDecoder(from)
	tell("key.", err)
	return ps
}

// unasked stands for a registry while files are checked.
type unasked struct{}

func (unasked) ByID(context.Context, int32) (*codec.Schema, *pipeline.Failure) {
	return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable}
}
func (unasked) ByGUID(context.Context, string) (*codec.Schema, *pipeline.Failure) {
	return nil, &pipeline.Failure{Code: pipeline.CodeRegistryUnavailable}
}

// tenant checks that what the file says of tenants is asked of every record.
func (pp *PipelinePlan) tenant(doc *config.Doc) (ps config.Problems) {
	t := pp.Config.Source.Tenant
	switch t.From {
	case "fixed":
		for _, topic := range slices.Sorted(maps.Keys(t.Allow)) {
			if t.Value != "" && !slices.Contains(t.Allow[topic], t.Value) {
				ps = append(ps, doc.Problem("source.tenant.allow."+topic, config.CodeValue, "the topic may not carry the tenant that all its records have", "add it, or leave allow out"))
			}
		}
	case "payload", "header":
		asked := slices.ContainsFunc(pp.Stages, func(s StagePlan) bool { return s.Kind.Phase == pipeline.PhaseClassify })
		if len(t.Allow) > 0 && !asked && len(pp.Stages) > 0 {
			ps = append(ps, doc.Problem("source.tenant.allow", config.CodeUnsafe, "no stage asks whether a topic may carry the tenant of a record", "add '- classify: {policy: FILE}' behind decode"))
		}
	}
	return ps
}

// registries are the names that the stages use, those of decode first.
func (pp *PipelinePlan) registries() (out []string) {
	add := func(names ...string) {
		for _, name := range names {
			if name != "" && !slices.Contains(out, name) {
				out = append(out, name)
			}
		}
	}
	for _, s := range pp.Stages {
		switch set := s.Settings.(type) {
		case *stage.DecodeSettings:
			add(set.Registries()...)
		case *stage.EnrichSettings:
			if set.Table != nil {
				add(set.Table.Registry)
			}
		case *stage.RouteSettings:
			add(set.Encode.Registry)
		}
	}
	return out
}

// encoding checks that what is to enter the value can: the last route stage writes it anew.
func (pp *PipelinePlan) encoding() (ps config.Problems) {
	var routes []StagePlan
	for _, s := range pp.Stages {
		if _, ok := s.Settings.(*stage.RouteSettings); ok {
			routes = append(routes, s)
		}
	}
	encodes := false
	for i, s := range routes {
		e := s.Settings.(*stage.RouteSettings).Encode
		switch {
		case e.Format == "":
			continue
		case i < len(routes)-1:
			ps = append(ps, s.Node.Problem("encode", config.CodeUnsafe, "a later route stage would look at a value that is written anew already", "say encode in the last route stage"))
		case s.When != nil:
			ps = append(ps, s.Node.Problem("encode", config.CodeUnsafe, "records that the stage skips would leave in another form than the others", "take when away from this stage"))
		case e.Format == "avro" && e.Registry == "" && len(pp.registries()) == 0:
			ps = append(ps, s.Node.Problem("encode.registry", config.CodeMissing, "no stage names a schema registry", "write encode: {avro: SUBJECT, registry: main}"))
		}
		encodes = true
	}
	for _, s := range pp.Stages {
		_, ok := s.Settings.(*stage.EnrichSettings)
		if !ok || encodes {
			continue
		}
		for _, at := range [...]string{"http.into", "table.into"} {
			if s.Node.At(at).Exists() {
				ps = append(ps, s.Node.Problem(at, config.CodeUnsafe, "the value that leaves is the source's bytes: it takes no member",
					"write encode: json, or encode: {avro: SUBJECT}, in the route stage"))
			}
		}
	}
	return ps
}
