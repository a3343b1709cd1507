package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// What the type of a field cannot say. Each part checks itself; what needs two sections is in safety.go.

var (
	topicName    = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)
	pipelineName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._-]{0,99}$`)
)

// checkTopic judges the name of a topic.
func checkTopic(n Node, path, topic string) Problems {
	switch {
	case topic == "":
		return Problems{n.Problem(path, CodeMissing, "the topic has no name", "")}
	case topic[0] == '^':
		return Problems{n.Problem(path, CodeValue, "a pattern is not a topic: a new topic would be read before anybody has decided where its failures go", "name each topic")}
	case !topicName.MatchString(topic) || topic == "." || topic == "..":
		return Problems{n.Problem(path, CodeValue, "it is not a name that Kafka allows", "letters, digits, '.', '_' and '-', at most 249")}
	}
	return nil
}

// checkLocator judges where a name stands: a JSON pointer or header:NAME.
func checkLocator(n Node, path, where string) Problems {
	name, header := strings.CutPrefix(where, "header:")
	switch {
	case where == "" || header && name != "":
		return nil
	case header:
		return Problems{n.Problem(path, CodeValue, "the header has no name", "write header:NAME")}
	case where[0] != '/':
		return Problems{n.Problem(path, CodeValue, "it is neither a path nor a header", "write "+asPointer(n.At(path))+" for a field or header:NAME for a header")}
	}
	return nil
}

// asPointer is what a path in another spelling ("customer.id", "$.customer.id") is as a JSON pointer.
func asPointer(n Node) string {
	if !n.literal() {
		return "/field"
	}
	return "/" + strings.ReplaceAll(strings.TrimPrefix(n.Shown(), "$."), ".", "/")
}

// Validate checks the names that belong to the section alone.
func (s *Source) Validate(n Node) Problems {
	var ps Problems
	if len(s.Topics) == 0 {
		ps = append(ps, n.Problem("topics", CodeMissing, "no topic is named", "for example topics: [billing.invoices.v1]"))
	}
	read := make(map[string]bool, len(s.Topics))
	var written []string // topics that may stand in a suggestion
	for i, topic := range s.Topics {
		path := joinIndex("topics", i)
		if n.At(path).literal() {
			written = append(written, topic)
		}
		ps = append(ps, checkTopic(n, path, topic)...)
		if read[topic] {
			ps = append(ps, n.Problem(path, CodeValue, "the topic stands twice", "remove one of them"))
		}
		read[topic] = true
	}
	if s.Group == "" && n.Key("group").Exists() {
		ps = append(ps, n.Problem("group", CodeMissing, "the consumer group has no name", "it is the consumer's name in custody"))
	}
	for _, topic := range sortedKeys(s.Tenant.Allow) {
		if read[topic] {
			continue
		}
		suggestion := "name topics of source.topics"
		if near := nearest(topic, written); near != "" {
			suggestion = "did you mean " + near + "?"
		}
		ps = append(ps, n.Problem("tenant.allow."+topic, CodeValue, "the topic is not one that this pipeline reads", suggestion))
	}
	if s.Tenant.From == "topic" {
		for i, topic := range s.Topics {
			if len(s.Tenant.Allow[topic]) != 1 {
				shown := n.At(joinIndex("topics", i)).Shown()
				ps = append(ps, n.Problem("tenant.allow", CodeValue, fmt.Sprintf("with from: topic, topic %s needs exactly one tenant", shown), "for example "+shown+": [acme]"))
			}
		}
	}
	return ps
}

// Validate checks that from has what it needs.
func (t *Tenant) Validate(n Node) Problems {
	var ps Problems
	from := n.Key("from").Shown()
	need := map[string]string{"payload": "path", "header": "header", "fixed": "value"}[t.From]
	for _, f := range [...][2]string{{"path", t.Path}, {"header", t.Header}, {"value", t.Value}} {
		switch name, set := f[0], f[1] != ""; {
		case name == need && !set:
			ps = append(ps, n.Problem(name, CodeMissing, "it is required with from: "+from, "add "+name))
		case name != need && set && t.From != "":
			ps = append(ps, n.Problem(name, CodeValue, "it is not read with from: "+from, "remove it or change from"))
		case set && t.From == "":
			ps = append(ps, n.Problem("from", CodeMissing, "it is required beside "+name, "add from: payload, header, topic or fixed"))
		}
	}
	if t.From == "" && len(t.Allow) > 0 && len(ps) == 0 {
		ps = append(ps, n.Problem("from", CodeMissing, "it is required beside allow", "add from: payload, header, topic or fixed"))
	}
	if t.Path != "" && t.Path[0] != '/' {
		ps = append(ps, n.Problem("path", CodeValue, "a path starts with '/'", "write "+asPointer(n.Key("path"))))
	}
	for _, topic := range sortedKeys(t.Allow) {
		for i, tenant := range t.Allow[topic] {
			if tenant == "" {
				ps = append(ps, n.Problem(joinIndex("allow."+topic, i), CodeValue, "a tenant has a name", ""))
			}
		}
	}
	return ps
}

// Validate checks the form of each place.
func (i *Identity) Validate(n Node) Problems {
	var ps Problems
	for _, f := range i.Fields() {
		ps = append(ps, checkLocator(n, f[0], f[1])...)
	}
	return ps
}

// Validate checks that what is blocked is what is in order.
func (o *Ordering) Validate(n Node) Problems {
	if o.Scope != "key" && (o.OnQuarantine == "block_key" || o.OnQuarantine == "skip_with_gap") {
		return Problems{n.Problem("on_quarantine", CodeValue, o.OnQuarantine+" needs an order by key", "add scope: key")}
	}
	return nil
}

// Validate checks the numbers.
func (r *Retry) Validate(n Node) Problems {
	var ps Problems
	if r.Topic != "" {
		ps = append(ps, checkTopic(n, "topic", r.Topic)...)
	}
	if r.Attempts < 0 || r.Attempts > 100 {
		ps = append(ps, n.Problem("attempts", CodeValue, "retries are between 0 and 100", "5 is the platform's bound unless the worker file says otherwise"))
	}
	return ps
}

// Validate checks the numbers.
func (b *Backoff) Validate(n Node) Problems {
	var ps Problems
	if b.Initial <= 0 {
		ps = append(ps, n.Problem("initial", CodeValue, "the first wait must be longer than nothing", "for example 100ms"))
	}
	if b.Factor < 1 || b.Factor > 100 {
		ps = append(ps, n.Problem("factor", CodeValue, "the factor is between 1 and 100", "2 doubles each wait"))
	}
	if b.Max != 0 && b.Max < b.Initial {
		ps = append(ps, n.Problem("max", CodeValue, "the longest wait is shorter than the first", ""))
	}
	if b.Jitter < 0 || b.Jitter > 1 {
		ps = append(ps, n.Problem("jitter", CodeValue, "the random part is between 0 and 1", "for example 0.1"))
	}
	return ps
}

// Validate checks what the section alone can tell.
func (q *Quarantine) Validate(n Node) Problems {
	var ps Problems
	if n.Key("topic").Exists() {
		ps = append(ps, checkTopic(n, "topic", q.Topic)...)
	}
	if q.Retention <= 0 {
		ps = append(ps, n.Problem("retention", CodeValue, "letters must be kept for some time", "for example 30d"))
	}
	if q.Partitions < 1 || q.Partitions > 10000 {
		ps = append(ps, n.Problem("partitions", CodeValue, "partitions are between 1 and 10000", "for example 6"))
	}
	return ps
}

// Validate checks that one store is named.
func (f *Fallback) Validate(n Node) Problems {
	if (f.Ledger == "") == (f.Blob == "") {
		return Problems{n.Problem("", CodeValue, "a fallback store is exactly one of ledger and blob", "write '- ledger: main'")}
	}
	return nil
}

// Validate checks the numbers.
func (b *Breaker) Validate(n Node) Problems {
	var ps Problems
	if b.FailureRatio <= 0 || b.FailureRatio > 1 {
		ps = append(ps, n.Problem("failure_ratio", CodeValue, "the share of failures is above 0 and at most 1", "for example 0.2"))
	}
	if b.MinRecords < 1 {
		ps = append(ps, n.Problem("min_records", CodeValue, "at least one record is needed to judge", "for example 100"))
	}
	if b.Window < Duration(1e9) {
		ps = append(ps, n.Problem("window", CodeValue, "the window is at least 1s", "for example 10s"))
	}
	return ps
}

// Validate checks the conditions of a question.
func (r *ReconcileHTTP) Validate(n Node) Problems {
	if r.URL != "" && !strings.HasPrefix(r.URL, "http://") && !strings.HasPrefix(r.URL, "https://") {
		return Problems{n.Problem("url", CodeValue, "it is not an HTTP address", "for example https://payments/{event_id}")}
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
