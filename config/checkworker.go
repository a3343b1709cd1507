package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
	"time"
)

const minSecretBytes = 16

// Validate checks the worker file as far as it alone tells.
func (w *Worker) Validate(n Node) Problems {
	var ps Problems
	for _, name := range sortedKeys(w.Clusters) {
		if w.Clusters[name]["bootstrap.servers"] == "" && w.Clusters[name]["metadata.broker.list"] == "" {
			ps = append(ps, n.Problem("clusters."+name, CodeMissing, "the cluster has no bootstrap.servers", "add bootstrap.servers: host:9092"))
		}
	}
	for _, name := range sortedKeys(w.Ledgers) {
		if u := w.Ledgers[name].URL.Reveal(); !strings.HasPrefix(u, "sqlite:") && !strings.HasPrefix(u, "postgres://") && !strings.HasPrefix(u, "postgresql://") {
			ps = append(ps, n.Problem("ledgers."+name, CodeValue, "it is not the URL of a ledger", "write sqlite:PATH or postgres://user@host/database"))
		}
	}
	if prefix := w.Topics.Prefix; !topicName.MatchString(prefix) || len(prefix) > 200 {
		ps = append(ps, n.Problem("topics.prefix", CodeValue, "it cannot begin the name of a topic", "letters, digits, '.', '_' and '-'"))
	}
	if host, port, err := net.SplitHostPort(w.HTTP.Address); err != nil || port == "" || strings.ContainsAny(host, "/ ") {
		ps = append(ps, n.Problem("http.address", CodeValue, "it is not a host and a port", "for example 127.0.0.1:8080"))
	}
	keys := map[string]bool{}
	for i, a := range w.Approvers {
		if keys[a.Public] {
			ps = append(ps, n.Problem(joinIndex("approvers", i)+".public", CodeUnsafe, "two approvers have the same key: one person could approve twice", "each person signs with a key of their own"))
		}
		keys[a.Public] = a.Public != ""
	}
	return ps
}

// Validate checks the URL.
func (r *Registry) Validate(n Node) Problems {
	for _, part := range strings.Split(r.URL, ",") {
		if u, err := url.Parse(strings.TrimSpace(part)); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return Problems{n.Problem("url", CodeValue, "it is not an HTTP address", "for example http://registry:8081")}
		} else if u.User != nil {
			return Problems{n.Problem("url", CodeUnsafe, "the address holds a password, and addresses are shown", "use user and password")}
		}
	}
	if r.Concurrency < 1 || r.Concurrency > 1000 {
		return Problems{n.Problem("concurrency", CodeValue, "requests at once are between 1 and 1000", "for example 8")}
	}
	return nil
}

// Validate checks ids and secrets.
func (k *Keys) Validate(n Node) Problems {
	var ps Problems
	ids := map[string]bool{}
	for i, key := range k.HMAC {
		path := joinIndex("hmac", i)
		if ids[key.ID] {
			ps = append(ps, n.Problem(path+".id", CodeValue, "two keys have this id", "a new key has a new id"))
		}
		ids[key.ID] = key.ID != ""
		ps = append(ps, checkSecret(n, path, key.ID, key.Secret)...)
		if key.From != "" && !isDate(key.From) {
			ps = append(ps, n.Problem(path+".from", CodeValue, "it is not a time", "for example 2026-09-15 or 2026-09-15T10:00:00Z"))
		}
	}
	id := k.Identity
	switch {
	case id.ID == "" && id.Secret.IsZero():
	case id.ID == "":
		ps = append(ps, n.Problem("identity.id", CodeMissing, "it is required beside secret", "add id: id1"))
	case id.Secret.IsZero():
		ps = append(ps, n.Problem("identity.secret", CodeMissing, "it is required beside id", "add secret: ${file:keys/identity}"))
	default:
		ps = append(ps, checkSecret(n, "identity", id.ID, id.Secret)...)
	}
	return ps
}

// Validate checks that one way is named, and that no secret stands in the file.
func (k *Keeper) Validate(n Node) Problems {
	scheme, _, ok := strings.Cut(k.URL, "://")
	switch {
	case k.File != "" && k.URL != "":
		return Problems{n.Problem("url", CodeValue, "a keeper is a file or a URL, not both", "remove one of them")}
	case k.URL == "":
		return nil
	case !ok:
		return Problems{n.Problem("url", CodeValue, "it is not the URL of a key", "for example hashivault://reprieve")}
	case scheme == "base64key":
		return Problems{n.Problem("url", CodeUnsafe, "the key itself stands in the URL, and URLs are shown", "put it into a file of mode 0600: keeper: {file: keys/keeper}")}
	}
	return nil
}

func checkSecret(n Node, path, id string, s Secret) Problems {
	var ps Problems
	if id != "" && strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.@/", r))
	}) {
		ps = append(ps, n.Problem(path+".id", CodeValue, "it cannot stand in a header", "letters, digits and - _ . @ /"))
	}
	if !s.IsZero() && len(s.Reveal()) < minSecretBytes {
		ps = append(ps, n.Problem(path+".secret", CodeUnsafe, "the secret is shorter than 16 bytes: it could be guessed", "make one: head -c 32 /dev/urandom | base64 > keys/hmac"))
	}
	return ps
}

func isDate(s string) bool {
	for _, layout := range [...]string{time.RFC3339, time.DateOnly} {
		if _, err := time.Parse(layout, s); err == nil {
			return true
		}
	}
	return false
}

// Validate checks the times against each other.
func (r *Retention) Validate(n Node) Problems {
	var ps Problems
	if r.Default <= 0 {
		ps = append(ps, n.Problem("default", CodeValue, "items must be kept for some time", "for example 30d"))
	}
	if n.IsMap() && r.Tell >= r.Default {
		ps = append(ps, n.Problem("tell", CodeValue, "the owner would be told when the item is gone", "tell must be shorter than default"))
	}
	classes := []string{"transient", "payload", "domain", "authorization", "consumer_defect", "ambiguous", "resource"}
	for _, class := range sortedKeys(r.Classes) {
		if !slices.Contains(classes, class) {
			suggestion := "the classes are " + strings.Join(classes, ", ")
			if near := nearest(class, classes); near != "" {
				suggestion = "did you mean " + near + "?"
			}
			ps = append(ps, n.Problem("classes."+class, CodeValue, "it is not a failure class", suggestion))
		}
	}
	return ps
}

// Validate checks that nothing goes round.
func (a *Adopt) Validate(n Node) Problems {
	ps := checkTopic(n, "topic", a.Topic)
	if a.Redrive != "" && a.Redrive == a.Topic {
		ps = append(ps, n.Problem("redrive", CodeUnsafe, "a redrive into the dead-letter topic itself would quarantine the records again", "name the retry topic"))
	}
	if a.Redrive != "" {
		ps = append(ps, checkTopic(n, "redrive", a.Redrive)...)
	}
	return ps
}

// Validate checks the limits.
func (b *Bounds) Validate(n Node) Problems {
	if b.Attempts < 0 || b.Attempts > 100 {
		return Problems{n.Problem("attempts", CodeValue, "retries are between 0 and 100", "for example 5")}
	}
	return nil
}

// Validate checks the numbers.
func (u *UnknownErrors) Validate(n Node) Problems {
	var ps Problems
	if u.Window < 0 || u.Window > 10_000_000 {
		ps = append(ps, n.Problem("window", CodeValue, "outcomes that are looked at are between 0 and 10000000", "for example 10000"))
	}
	if u.Tolerated < 0 {
		ps = append(ps, n.Problem("tolerated", CodeValue, "a number of failures is not negative", "0 halts at the first"))
	}
	return ps
}

// Validate checks the share.
func (o *OTLP) Validate(n Node) Problems {
	if o.Sample < 0 || o.Sample > 1 {
		return Problems{n.Problem("sample", CodeValue, "the share is between 0 and 1", "for example 0.01")}
	}
	return nil
}
