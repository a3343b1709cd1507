package stage_test

import (
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/stage"
)

// A record's tenant is what the file says, or nobody's: a topic that may not carry it, and a tenant that cannot be read, fail closed.
func TestTheTenantIsAsDeclaredOrNobodys(t *testing.T) {
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	allow := map[string][]string{"shared": {"acme", "globex"}, "own": {"acme"}}
	payload := stage.IdentityConfig{Tenant: "/tenant", Allow: allow}
	header := stage.IdentityConfig{Tenant: "header:tenant", Allow: allow}
	topic := stage.IdentityConfig{Tenant: "topic", Allow: allow}
	fixed := stage.IdentityConfig{Fixed: "acme"}
	const nobody = pipeline.TenantUnassigned
	for name, c := range map[string]struct {
		config stage.IdentityConfig
		topic  string
		value  string // "" is null
		header string
		tenant string
		code   pipeline.Code
	}{
		"of the payload":                           {payload, "shared", `{"tenant":"globex"}`, "", "globex", ""},
		"of the payload, not the topic's":          {payload, "own", `{"tenant":"globex"}`, "", nobody, pipeline.CodeTenantDenied},
		"of the payload, nobody knows it":          {payload, "shared", `{"tenant":"initech"}`, "", nobody, pipeline.CodeTenantDenied},
		"of the payload, another spelling":         {payload, "shared", `{"tenant":"Acme"}`, "", nobody, pipeline.CodeTenantDenied},
		"of the payload, absent":                   {payload, "shared", `{}`, "acme", nobody, pipeline.CodeTenantUnreadable},
		"of the payload, empty":                    {payload, "shared", `{"tenant":""}`, "", nobody, pipeline.CodeTenantUnreadable},
		"of the payload, an object":                {payload, "shared", `{"tenant":{"id":"acme"}}`, "", nobody, pipeline.CodeTenantUnreadable},
		"of the payload, a delete marker":          {payload, "shared", ``, "", nobody, ""},
		"of the payload, a topic of one, absent":   {payload, "own", `{}`, "", "acme", pipeline.CodeTenantUnreadable},
		"of the payload, a topic that is open":     {payload, "open", `{"tenant":"initech"}`, "", "initech", ""},
		"of a header":                              {header, "shared", `{"tenant":"globex"}`, "acme", "acme", ""},
		"of a header, not the topic's":             {header, "own", `{"tenant":"acme"}`, "globex", nobody, pipeline.CodeTenantDenied},
		"of a header, absent":                      {header, "shared", `{"tenant":"acme"}`, "", nobody, pipeline.CodeTenantUnreadable},
		"of the topic":                             {topic, "own", `{"tenant":"globex"}`, "globex", "acme", ""},
		"of the topic, a delete marker":            {topic, "own", ``, "", "acme", ""},
		"of the topic, which is for two":           {topic, "shared", `{"tenant":"acme"}`, "", nobody, pipeline.CodeTenantUnreadable},
		"of the topic, whose name is the tenant's": {topic, "open", `{}`, "", "open", ""},
		"fixed": {fixed, "shared", `{"tenant":"globex"}`, "globex", "acme", ""},
	} {
		t.Run(name, func(t *testing.T) {
			id, err := stage.NewIdentity(c.config)
			if err != nil {
				t.Fatal(err)
			}
			r := pipeline.Record{Value: []byte(c.value)}
			if c.header != "" {
				r.Headers = []pipeline.Header{{Name: "tenant", Value: []byte(c.header)}}
			}
			var v pipeline.View
			if c.value == "" {
				r.Value = nil
			} else {
				view, f := dec.Decode(t.Context(), codec.NewScratch(), r.Value, nil)
				if f != nil {
					t.Fatal(f.Reason())
				}
				v = view
			}
			if got := id.Identify(c.topic, &r, v).Tenant; got != c.tenant {
				t.Errorf("the tenant is %q, want %q", got, c.tenant)
			}
			if code, ok := id.Check(c.topic, &r, v); code != c.code || ok != (c.code == "") {
				t.Errorf("it is %q, %v, want %q", code, ok, c.code)
			}
		})
	}
}
