package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Validate checks what needs two sections of the file: nothing may loop, leak or be lost (ERR_CONFIG_UNSAFE). Order of
// stages and conditions are checked by who knows the kinds.
func (p *Pipeline) Validate(n Node) Problems {
	var ps Problems
	if p.Name != "" && !pipelineName.MatchString(p.Name) {
		ps = append(ps, n.Problem("pipeline", CodeValue, "it is not a name", "letters, digits, '.', '_' and '-', at most 100"))
	}
	if len(p.Stages) == 0 && n.Key("stages").Exists() {
		ps = append(ps, n.Problem("stages", CodeMissing, "no stage is named", "at least decode and route are needed"))
	}
	names := map[string]bool{}
	for _, s := range p.Stages {
		if names[s.Name] {
			ps = append(ps, s.Place.Problem("", CodeValue, "two stages are called "+cmp.Or(s.Place.Key("name").Shown(), s.Kind), "give one of them a name: of its own"))
		}
		names[s.Name] = s.Name != ""
	}
	ps = append(ps, p.checkTopics(n, p.Quarantine.Cluster == "" || p.Quarantine.Cluster == p.Source.Cluster)...)
	ps = append(ps, p.checkRedaction()...)
	return ps
}

// checkTopics refuses every way in which a topic could be read by who writes it. sameCluster says that letters go to the cluster
// that the source stands on.
func (p *Pipeline) checkTopics(n Node, sameCluster bool) Problems {
	var ps Problems
	unsafe := func(path, text, suggestion string) {
		ps = append(ps, n.Problem(path, CodeUnsafe, text, suggestion))
	}
	first := cmp.Or(n.At("source.topics[0]").Shown(), "<topic>") // what is suggested is made of what the file says
	read := make(map[string]bool, len(p.Source.Topics))
	for _, topic := range p.Source.Topics {
		read[topic] = topic != ""
	}
	isSource := func(topic string) bool { return read[topic] }
	retry := p.Retry.Topic
	if retry == "" && len(p.Source.Topics) == 1 {
		retry = p.Source.Topics[0] + ".retry"
	}
	if retry == "" && len(p.Source.Topics) > 1 && !n.unjudged("source.topics") {
		ps = append(ps, n.Problem("retry.topic", CodeMissing, "it is required with more than one source topic", "retry: {topic: "+n.Key("pipeline").Shown()+".retry}"))
	}
	if isSource(p.Retry.Topic) {
		unsafe("retry.topic", "the retry topic is a source topic: a retry would be read as a new record", "use a topic of its own: "+first+".retry")
	}
	if quarantine := p.Quarantine.Topic; quarantine != "" && sameCluster {
		switch {
		case isSource(quarantine):
			unsafe("quarantine.topic", "the dead-letter topic is a source topic: every letter would be read and fail again", "use a topic of its own: "+first+".dlq")
		case quarantine == retry:
			unsafe("quarantine.topic", "the dead-letter topic is the retry topic: every letter would be retried", "use a topic of its own: "+first+".dlq")
		case quarantine+".vault" == retry:
			unsafe("quarantine.topic", "the vault of this dead-letter topic, its name with .vault, is the retry topic", "use another retry topic")
		case isSource(quarantine + ".vault"):
			unsafe("quarantine.topic", "the vault of this dead-letter topic, its name with .vault, is a source topic", "use another dead-letter topic")
		}
	}
	primaries := map[string]bool{}
	for _, s := range p.Stages {
		if s.Kind != "route" {
			continue
		}
		for _, to := range routeTopics(s.Settings) {
			topic, _ := to.Text()
			primaries[topic] = true
			if topic != "" {
				ps = append(ps, checkTopic(to, "", topic)...)
			}
			switch {
			case isSource(topic):
				ps = append(ps, to.Problem("", CodeUnsafe, "the destination is a source topic: the pipeline would read its own output for ever", "use another topic"))
			case topic == retry && topic != "":
				ps = append(ps, to.Problem("", CodeUnsafe, "the destination is the retry topic: records would come back as retries without a trail", "use another topic"))
			case topic == p.Quarantine.Topic+".vault" && p.Quarantine.Topic != "" && sameCluster:
				ps = append(ps, to.Problem("", CodeUnsafe, "the destination is the vault of the dead-letter topic", "use another topic"))
			case topic == p.Quarantine.Topic && topic != "" && sameCluster:
				ps = append(ps, to.Problem("", CodeUnsafe, "the destination is the dead-letter topic: healthy records would be taken for letters", "use another topic, or reject records in the classify stage"))
			}
		}
	}
	enter := cmp.Or(n.At("retry.topic").Shown(), first+".retry")
	if isSource(retry) {
		enter = first + ".retry" // the retry topic itself was refused above
	}
	switch to := p.Redrive.Destination; {
	case to == "":
	case isSource(to):
		unsafe("redrive.destination", "a redrive straight into a source topic would repeat the effects of every other consumer", "use the retry topic: "+enter)
	case primaries[to]:
		unsafe("redrive.destination", "a redrive straight into an output would skip every stage", "use the retry topic: "+enter)
	case to == p.Quarantine.Topic && sameCluster:
		unsafe("redrive.destination", "a redrive into the dead-letter topic would quarantine the records again", "use the retry topic: "+enter)
	default:
		ps = append(ps, checkTopic(n, "redrive.destination", to)...)
	}
	return ps
}

// routeTopics are the topics that a route stage names, wherever it names them.
func routeTopics(settings Node) []Node {
	var out []Node
	add := func(n Node) {
		if _, ok := n.Text(); ok {
			out = append(out, n)
		}
	}
	for _, rule := range settings.Key("rules").Items() {
		add(rule.Key("topic"))
	}
	add(settings.Key("default").Key("topic"))
	return out
}

// checkRedaction refuses to redact what identifies a record: a repaired or repeated record could not be found again.
func (p *Pipeline) checkRedaction() Problems {
	var ps Problems
	names := p.Source.Identity.Fields()
	protected := append(names[:], [2]string{"tenant", p.Source.Tenant.Path})
	for _, s := range p.Stages {
		if s.Kind != "redact" {
			continue
		}
		for _, f := range s.Settings.Key("fields").Items() {
			path, byPath := f.Key("path").Text()
			name, byName := f.Key("name").Text()
			for _, id := range protected {
				at := "path"
				switch {
				case id[1] == "" || id[1][0] != '/':
					continue
				case byPath && overlaps(strings.Split(path, "/"), strings.Split(id[1], "/")):
				case byName && hasMember(id[1], name):
					at = "name"
				default:
					continue
				}
				where := "source.identity." + id[0]
				if id[0] == "tenant" {
					where = "source.tenant"
				}
				ps = append(ps, f.Problem(at, CodeUnsafe,
					fmt.Sprintf("the field is %s: redacted, the record could not be told from others", where),
					"redact another field, or identify by one that holds no personal data"))
				break
			}
		}
	}
	return ps
}

// overlaps tells whether a redacted place is, or holds, an identifying one; "*" is any member, "**" any number of them.
func overlaps(redacted, id []string) bool {
	switch {
	case len(redacted) == 0:
		return true
	case redacted[0] == "**":
		for i := range len(id) + 1 {
			if overlaps(redacted[1:], id[i:]) {
				return true
			}
		}
		return false
	case len(id) == 0:
		return false
	}
	return (redacted[0] == id[0] || redacted[0] == "*") && overlaps(redacted[1:], id[1:])
}

// hasMember tells whether a member of that name stands on a JSON pointer; case, '_' and '-' do not matter.
func hasMember(pointer, name string) bool {
	return slices.ContainsFunc(strings.Split(pointer, "/"), func(seg string) bool { return seg != "" && fold(seg) == fold(name) })
}

// TogetherOptions are what CheckTogether takes for granted.
type TogetherOptions struct {
	Demo bool // a SQLite ledger is good enough as a fallback store
}

// CheckTogether checks a pipeline against the worker file that it runs under: every name is defined there, and letters live
// at least as long as custody. doc is the pipeline's. Codes: ERR_CONFIG_REFERENCE, ERR_CONFIG_UNSAFE.
func CheckTogether(p *Pipeline, doc *Doc, w *Worker, o TogetherOptions) Problems {
	var ps Problems
	reference := func(path, name, kind, plural string, known []string) {
		if slices.Contains(known, name) {
			return
		}
		at := doc.At(path)
		suggestion := "define it in " + plural + " of the worker file"
		if near := nearest(name, known); near != "" && (at.literal() || !at.Exists()) {
			suggestion = "did you mean " + near + "?"
		} else if len(known) > 0 && len(known) <= 12 {
			suggestion += ", or use one of " + strings.Join(known, ", ")
		}
		if at.Exists() {
			name = at.Shown()
		}
		ps = append(ps, doc.Problem(path, CodeReference, fmt.Sprintf("%s %q is not defined in the worker file", kind, name), suggestion))
	}
	clusters, registries, ledgers := sortedKeys(w.Clusters), sortedKeys(w.Registries), sortedKeys(w.Ledgers)
	reference("source.cluster", p.Source.Cluster, "cluster", "clusters", clusters)
	if p.Quarantine.Cluster != p.Source.Cluster {
		reference("quarantine.cluster", p.Quarantine.Cluster, "cluster", "clusters", clusters)
	}
	if p.Quarantine.Cluster != p.Source.Cluster && shareBroker(w.Clusters[p.Source.Cluster], w.Clusters[p.Quarantine.Cluster]) {
		known := p.checkTopics(doc.Root(), false) // the file alone told them
		for _, problem := range p.checkTopics(doc.Root(), true) {
			if !slices.Contains(known, problem) {
				ps = append(ps, problem)
			}
		}
	}
	if p.Quarantine.Data != "" {
		reference("quarantine.data", p.Quarantine.Data, "data class", "custody.retention.data", sortedKeys(w.Custody.Retention.Data))
	}
	for _, s := range p.Stages {
		for _, at := range [...]string{"registry", "key.registry", "encode.registry", "table.registry"} {
			if registry, ok := s.Settings.At(at).Text(); ok {
				reference(s.Path+"."+at, registry, "registry", "registries", registries)
			}
		}
		if cluster, ok := s.Settings.At("table.cluster").Text(); ok {
			reference(s.Path+".table.cluster", cluster, "cluster", "clusters", clusters)
		}
	}
	for i, f := range p.Quarantine.Fallback {
		if f.Ledger == "" {
			continue
		}
		path := joinIndex("quarantine.fallback", i) + ".ledger"
		reference(path, f.Ledger, "ledger", "ledgers", ledgers)
		if l, ok := w.Ledgers[f.Ledger]; ok && !o.Demo && strings.HasPrefix(l.URL.Reveal(), "sqlite:") {
			ps = append(ps, doc.Problem(path, CodeUnsafe, "a SQLite file on this machine is no fallback store: it fails with the machine", "name a PostgreSQL ledger or a blob bucket"))
		}
	}
	for _, sealing := range [...]struct {
		asked      bool
		path, what string
	}{{p.Quarantine.Encrypt, "quarantine.encrypt", "letters are sealed"}, {p.Quarantine.SealOriginals, "quarantine.seal_originals", "originals are sealed"}} {
		if sealing.asked && w.Keys.Keeper.IsZero() {
			ps = append(ps, doc.Problem(sealing.path, CodeMissing, sealing.what+", and the worker file names no keeper of the keys that open them",
				"make a key: head -c 32 /dev/urandom | base64 > keys/keeper; chmod 600 keys/keeper; then write keys: {keeper: {file: keys/keeper}} in the worker file"))
		}
	}
	if custody := w.Custody.Retention.Longest(); p.Quarantine.Retention < custody {
		ps = append(ps, doc.Problem("quarantine.retention", CodeUnsafe,
			fmt.Sprintf("the dead-letter topic keeps letters for %s, custody for %s: the ledger could not be rebuilt", p.Quarantine.Retention, custody),
			"write retention: "+custody.String()+" or shorten custody.retention of the worker file"))
	}
	return ps.Sorted()
}

// shareBroker tells whether two clusters are reached by the same address: then they are one cluster under two names.
func shareBroker(a, b Properties) bool {
	addresses := func(p Properties) []string {
		list := strings.Split(cmp.Or(p["bootstrap.servers"], p["metadata.broker.list"]), ",")
		for i, address := range list {
			list[i] = strings.TrimSpace(address)
		}
		return list
	}
	others := addresses(b)
	return slices.ContainsFunc(addresses(a), func(address string) bool { return address != "" && slices.Contains(others, address) })
}
