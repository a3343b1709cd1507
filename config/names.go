package config

import (
	"reflect"
	"slices"
	"strings"
)

// unknown reports a key that nobody reads, with the name that was probably meant.
func (d *decoder) unknown(e *entry, path string, known []string) {
	full := join(path, e.key)
	at := &value{line: e.line, column: e.column}
	if d.more {
		return
	}
	if d.foreign(e, path) {
		return
	}
	if strings.Contains(e.key, "${") {
		return // told by Parse: the name is not known at all
	}
	suggestion := ""
	place := elsewhere(d.root, e.key)
	first, rest, dotted := strings.Cut(e.key, ".")
	switch {
	case dotted && path == "" && hasPath(d.root, e.key):
		suggestion = "write it in two steps: " + first + ": {" + rest + ": ...}"
	case nearest(e.key, known) == "" && place != "" && place != full && !strings.Contains(path, "["):
		suggestion = "it belongs to " + place
	default:
		suggestion = Nearest(e.key, known)
	}
	if suggestion == "" && path == "" {
		suggestion = otherFile(d.root, e.key)
	}
	d.problem(at, full, CodeUnknownKey, "unknown key", suggestion)
}

// nearest is the known name that a slip of the finger away from name, or "".
func nearest(name string, known []string) string {
	if len(known) > maxProblems || len(name) > 100 {
		return "" // a suggestion is not worth the time
	}
	best, least := "", 1+max(1, len(name)/3)
	folded := fold(name)
	for _, k := range known {
		if fold(k) == folded {
			return k
		}
		if n := distance(name, k, least); n < least {
			best, least = k, n
		}
	}
	if best == "" && len(name) >= 4 { // half a name: "backoff_initial", "topic_name"
		for _, k := range known {
			if len(k) >= 4 && (strings.HasPrefix(name, k) || strings.HasPrefix(k, name)) {
				return k
			}
		}
	}
	return best
}

// fold drops what styles of names differ in.
func fold(s string) string {
	return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
}

// distance is the number of inserted, removed, changed or swapped neighbouring bytes between a and b, or most when it is at
// least that.
func distance(a, b string, most int) int {
	if len(a) > 64 || len(b) > 64 || len(a)-len(b) >= most || len(b)-len(a) >= most {
		return most
	}
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return min(last[len(b)], most)
}

// hasPath tells whether the file form has a key at a path of two names.
func hasPath(root reflect.Type, path string) bool {
	section, key, _ := strings.Cut(path, ".")
	if deref(root).Kind() != reflect.Struct {
		return false
	}
	for _, f := range fieldsOf(deref(root)) {
		t := deref(f.typ)
		if f.name != section || t.Kind() != reflect.Struct || t == nodeType {
			continue
		}
		for _, sub := range fieldsOf(t) {
			if sub.name == key {
				return true
			}
		}
	}
	return false
}

// elsewhere is the first path in the whole file form that ends in name: the key stands in the wrong section.
func elsewhere(root reflect.Type, name string) string {
	var walk func(t reflect.Type, path string, deep int) string
	walk = func(t reflect.Type, path string, deep int) string {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct || t == nodeType || isScalarStruct(t) || deep > 1 {
			return ""
		}
		fields := fieldsOf(t)
		for _, f := range fields {
			if f.name == name && !f.rest {
				return join(path, f.name)
			}
		}
		for _, f := range fields {
			if found := walk(f.typ, join(path, f.name), deep+1); found != "" && !f.rest {
				return found
			}
		}
		return ""
	}
	return walk(root, "", 0)
}

// otherFile tells of a key of the first level that it is one of the other kind of file.
func otherFile(root reflect.Type, name string) string {
	pipelineFile, workerFile := reflect.TypeFor[Pipeline](), reflect.TypeFor[Worker]()
	has := func(t reflect.Type) bool {
		return slices.ContainsFunc(fieldsOf(t), func(f field) bool { return f.name == name && !f.rest })
	}
	switch root = deref(root); {
	case root == pipelineFile && has(workerFile):
		return "that is a section of the worker file, which is named with --config FILE"
	case root == workerFile && has(pipelineFile):
		return "that is a section of a pipeline file, which is named as an argument; --config names the worker file"
	}
	return ""
}

// foreignNames are names that users bring from other systems, and what they are called here.
var foreignNames = [...]struct{ name, system, here string }{
	{"name", "Kafka Connect", "pipeline"},
	{"errors.tolerance", "Kafka Connect", "every failed record is decided by policy: name the dead-letter topic in quarantine.topic and the rules in stages: classify.policy"},
	{"errors.retry.timeout", "Kafka Connect", "retry.attempts and retry.backoff"},
	{"errors.retry.delay.max.ms", "Kafka Connect", "retry.backoff.max"},
	{"errors.log.enable", "Kafka Connect", "nothing: every failure is logged with its code, never with its payload"},
	{"errors.log.include.messages", "Kafka Connect", "nothing: payloads never stand in logs"},
	{"errors.deadletterqueue.topic.name", "Kafka Connect", "quarantine.topic"},
	{"errors.deadletterqueue.topic.replication.factor", "Kafka Connect", "nothing: 'reprieve topics plan' makes the topics"},
	{"errors.deadletterqueue.context.headers.enable", "Kafka Connect", "quarantine.profile: [death, connect]"},
	{"errors.deadletterqueue.copy.record.enable", "Kafka share groups", "nothing: the record always comes along, redacted"},
	{"errors.deadletterqueue.group.enable", "Kafka share groups", "quarantine.topic"},
	{"errors.deadletterqueue.topic.name.prefix", "Kafka share groups", "quarantine.topic"},
	{"errors.deadletterqueue.auto.create.topics.enable", "Kafka share groups", "nothing: 'reprieve topics plan' makes the topics"},
	{"errors.dead.letter.queue.topic.name", "Kafka Streams", "quarantine.topic"},
	{"group.id", "Kafka", "source.group"},
	{"bootstrap.servers", "Kafka", "clusters.NAME of the worker file, and its name in source.cluster"},
	{"schema.registry.url", "Confluent", "registries.NAME.url of the worker file, and its name in decode.registry"},
	{"basic.auth.user.info", "Confluent", "registries.NAME.user and .password of the worker file"},
	{"value.converter", "Kafka Connect", "stages: decode.format"},
	{"key.converter", "Kafka Connect", "nothing: keys are kept byte for byte"},
	{"transforms", "Kafka Connect", "stages"},
	{"predicates", "Kafka Connect", "when, beside the stage"},
	{"connector.class", "Kafka Connect", "source and the route stage"},
	{"tasks.max", "Kafka Connect", "nothing: start more workers with the same group"},
	{"dead-letter-queue", "Conduit", "quarantine"},
	{"processors", "Benthos and Conduit", "stages"},
	{"dlq", "other systems", "quarantine.topic"},
	{"dlt", "Spring", "quarantine.topic"},
	{"deadLetterQueue", "other systems", "quarantine.topic"},
	{"dead_letter_queue", "other systems", "quarantine.topic"},
	{"dead-letter-topic.name", "other systems", "quarantine.topic"},
	{"on_error", "other systems", "quarantine and stages: classify.policy"},
	{"sink", "other systems", "the route stage"},
	{"steps", "other systems", "stages"},
	{"retries", "other systems", "retry.attempts"},
	{"brokers", "other systems", "clusters.NAME of the worker file, with bootstrap.servers"},
	{"kafka", "other systems", "clusters.NAME of the worker file"},
	{"schema_registry", "Benthos", "registries.NAME of the worker file"},
	{"database", "other systems", "ledgers.NAME of the worker file"},
	{"pipeline.processors", "Benthos", "stages"},
	{"input", "Benthos", "source"},
	{"output", "Benthos", "the route stage"},
	{"max_retries", "Benthos", "retry.attempts"},
	{"maxAttempts", "Spring", "retry.attempts"},
	{"max-attempts", "Spring", "retry.attempts"},
	{"backOff", "Spring", "retry.backoff"},
	{"enableDlq", "Spring Cloud Stream", "quarantine.topic"},
	{"dlqName", "Spring Cloud Stream", "quarantine.topic"},
	{"dltTopicSuffix", "Spring", "quarantine.topic"},
	{"retryTopicSuffix", "Spring", "retry.topic"},
	{"spring.cloud.stream.kafka.bindings", "Spring Cloud Stream", "quarantine.topic"},
	{"dead-letter-topic", "SmallRye", "quarantine.topic"},
	{"failure-strategy", "SmallRye", "quarantine.topic and stages: classify.policy"},
	{"dead-letter-queue.topic", "SmallRye", "quarantine.topic"},
}

// foreign reports the leaves of an unknown entry that are, or nearly are, names of another system, and tells whether there
// was one.
func (d *decoder) foreign(e *entry, path string) bool {
	type leaf struct {
		name string
		at   *entry
		into int // bytes of name before the last key
	}
	var leaves []leaf
	var walk func(e *entry, prefix string)
	walk = func(e *entry, prefix string) {
		name := join(prefix, e.key)
		_, _, _, whole := foreignName(name)
		if !whole && e.value.kind == kindMap && len(e.value.entries) > 0 && len(leaves) < maxProblems {
			for i := range e.value.entries {
				walk(&e.value.entries[i], name)
			}
			return
		}
		leaves = append(leaves, leaf{name, e, len(name) - len(e.key)})
	}
	walk(e, "")
	found := false
	var tolerant *entry
	var rest []leaf
	for _, l := range leaves {
		known, system, here, exact := foreignName(l.name)
		// A single word means something everywhere: it is foreign at the top, or in the section that has its namesake.
		if known != "" && !strings.ContainsAny(known, ".-") && path != "" && !strings.HasPrefix(here, path+".") {
			known = ""
		}
		if known == "" {
			rest = append(rest, l)
			continue
		}
		found = true
		suggestion := "that is a name of " + system + "; here it is " + here
		if strings.HasPrefix(here, "nothing") || strings.HasPrefix(here, "every") {
			suggestion = "that is a name of " + system + "; here " + here
		}
		if !exact {
			meant := known
			if l.into <= len(known) && known[:l.into] == l.name[:l.into] {
				meant = known[l.into:]
			}
			suggestion = "did you mean " + meant + "? " + suggestion
		}
		d.problem(&value{line: l.at.line, column: l.at.column}, join(path, l.name), CodeUnknownKey, "unknown key", suggestion)
		if known == "errors.tolerance" && l.at.value.text == "all" {
			tolerant = l.at
		}
	}
	if !found {
		return false
	}
	for _, l := range rest {
		d.problem(&value{line: l.at.line, column: l.at.column}, join(path, l.name), CodeUnknownKey, "unknown key", "")
	}
	target := d.doc.Has("errors.deadletterqueue.topic.name") || d.doc.Has("errors.dead.letter.queue.topic.name") || d.doc.Has("quarantine.topic")
	if tolerant != nil && !target {
		d.problem(&value{line: tolerant.value.line, column: tolerant.value.column}, join(path, "errors.tolerance"), CodeUnsafe,
			"'tolerance: all' without a dead-letter topic drops failed records", "name the topic in quarantine.topic")
	}
	return true
}

// foreignName finds a name of another system, with at most two slips in a long one.
func foreignName(name string) (known, system, here string, exact bool) {
	for _, f := range foreignNames {
		if f.name == name {
			return f.name, f.system, f.here, true
		}
	}
	if len(name) < 10 {
		return "", "", "", false
	}
	least := 3
	for _, f := range foreignNames {
		if n := distance(name, f.name, least); n < least {
			known, system, here, least = f.name, f.system, f.here, n
		}
	}
	return known, system, here, false
}
