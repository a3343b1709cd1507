package stage

import (
	"slices"
	"strings"

	"reprieve.dev/pipeline"
)

// IdentityConfig says where a record's identity is read, as in the pipeline file's source section. A place is "/path" in the
// payload, "header:NAME", "key" or "topic".
type IdentityConfig struct {
	Fixed                                                          string // the tenant itself
	Consumer, Release                                              string
	Tenant, EventID, Entity, BusinessID, IdempotencyToken, Version string
	Allow                                                          map[string][]string // topic -> tenants that it may carry; empty: not checked
}

// Identity reads who a record says it is, and whether its topic may carry its tenant. It is immutable and safe for concurrent
// use.
type Identity struct {
	fixed                                           string
	consumer, release                               string
	tenant, event, entity, business, token, version place
	allow                                           map[string][]string
}

type place struct {
	path   *pipeline.Path
	header string
	key    bool
	topic  bool
}

func newPlace(s string) (p place, err error) {
	switch {
	case s == "":
	case s == "key":
		p.key = true
	case s == "topic":
		p.topic = true
	case strings.HasPrefix(s, "header:"):
		p.header = strings.TrimPrefix(s, "header:")
	default:
		p.path, err = pipeline.NewPath(s)
	}
	return p, err
}

// NewIdentity compiles the places. Codes: ERR_PATH_INVALID.
func NewIdentity(c IdentityConfig) (*Identity, error) {
	id := &Identity{consumer: c.Consumer, release: c.Release, fixed: c.Fixed, allow: c.Allow}
	for _, f := range []struct {
		to   *place
		from string
	}{{&id.tenant, c.Tenant}, {&id.event, c.EventID}, {&id.entity, c.Entity}, {&id.business, c.BusinessID},
		{&id.token, c.IdempotencyToken}, {&id.version, c.Version}} {
		p, err := newPlace(f.from)
		if err != nil {
			return nil, err
		}
		*f.to = p
	}
	return id, nil
}

// Paths are the payload paths that hold identity: redaction must not touch them.
func (id *Identity) Paths() []*pipeline.Path {
	var out []*pipeline.Path
	for _, p := range []place{id.tenant, id.event, id.entity, id.business, id.token, id.version} {
		if p.path != nil {
			out = append(out, p.path)
		}
	}
	return out
}

// Identify reads the identity; v may be nil. What cannot be read is "", but the tenant is then the only one that the topic may
// carry, else unassigned.
func (id *Identity) Identify(topic string, r *pipeline.Record, v pipeline.View) pipeline.Identity {
	out := pipeline.Identity{
		Consumer: id.consumer, Release: id.release,
		EventID: id.event.text(topic, r, v), Entity: id.entity.text(topic, r, v), BusinessID: id.business.text(topic, r, v),
		Token: id.token.text(topic, r, v), Version: id.version.text(topic, r, v),
	}
	allowed, checked := id.allow[topic]
	t := id.fixed
	switch {
	case t != "":
	case id.tenant.topic && checked: // its name stands for the tenant that it is for
	default:
		t = id.tenant.text(topic, r, v)
	}
	switch {
	case t != "" && (!checked || slices.Contains(allowed, t)):
		out.Tenant = t
	case t == "" && len(allowed) == 1:
		out.Tenant = allowed[0]
	default:
		out.Tenant = pipeline.TenantUnassigned
	}
	return out
}

// Check tells whether the topic may carry the record's tenant. It allocates nothing. Codes: ERR_TENANT_DENIED,
// ERR_TENANT_UNREADABLE.
func (id *Identity) Check(topic string, r *pipeline.Record, v pipeline.View) (pipeline.Code, bool) {
	allowed, checked := id.allow[topic]
	if !checked || id.fixed != "" {
		return "", true
	}
	if id.tenant.topic { // its name stands for the tenant that it is for
		if len(allowed) == 1 {
			return "", true
		}
		return pipeline.CodeTenantUnreadable, false
	}
	t := id.tenant.bytes(topic, r, v)
	if len(t) == 0 {
		if v == nil && r.Value == nil { // a delete marker has no payload to name a tenant
			return "", true
		}
		return pipeline.CodeTenantUnreadable, false
	}
	for _, a := range allowed {
		if a == string(t) {
			return "", true
		}
	}
	return pipeline.CodeTenantDenied, false
}

func (p *place) bytes(topic string, r *pipeline.Record, v pipeline.View) []byte {
	switch {
	case p.topic:
		return []byte(topic)
	case p.key:
		return r.Key
	case p.header != "":
		b, _ := r.Header(p.header)
		return b
	case p.path != nil && v != nil:
		if val, ok := v.Get(p.path); ok {
			if val.Bytes != nil {
				return val.Bytes
			}
			return val.AppendText(nil)
		}
	}
	return nil
}

func (p *place) text(topic string, r *pipeline.Record, v pipeline.View) string {
	return strings.ToValidUTF8(string(p.bytes(topic, r, v)), "\uFFFD")
}
