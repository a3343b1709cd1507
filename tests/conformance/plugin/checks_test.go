package plugin

import (
	"context"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// What a plugin says of its work is a claim: identity, tenant, key, schema, invariants and size are looked at by the host.
func TestARepairThatLiesAboutTheRecordIsRefusedByTheChecks(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err)
	}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	if err != nil {
		t.Fatal(err)
	}
	checks, err := transforms.NewChecker(transforms.Rules{EventID: "/event_id", Tenant: "/tenant", MaxBytes: 4096,
		Invariants: []transforms.Invariant{{Name: "balanced", CEL: "view.net + view.tax == view.amount"}}}, dec)
	if err != nil {
		t.Fatal(err)
	}
	const good = `{"event_id":"e1","tenant":"acme","net":1,"tax":2,"amount":3}`
	for name, c := range map[string]struct {
		value string
		want  pipeline.Code
	}{
		"honest":                 {"value: " + good, ""},
		"another event":          {`value: {"event_id":"e2","tenant":"acme","net":1,"tax":2,"amount":3}`, pipeline.CodeTransformIdentity},
		"no event":               {`value: {"tenant":"acme","net":1,"tax":2,"amount":3}`, pipeline.CodeTransformIdentity},
		"another tenant":         {`value: {"event_id":"e1","tenant":"globex","net":1,"tax":2,"amount":3}`, pipeline.CodeRedriveTenant},
		"another key":            {"key: other", pipeline.CodeTransformKey},
		"unbalanced":             {`value: {"event_id":"e1","tenant":"acme","net":1,"tax":2,"amount":4}`, pipeline.CodeTransformInvariant},
		"no JSON":                {"value: {", pipeline.CodeTransformSchema},
		"a header of ours":       {"header: reprieve-tenant", pipeline.CodeTransformFailed},
		"too large":              {"value: " + strings.Replace(good, "e1", "e1\",\"x\":\""+strings.Repeat("x", 5000), 1), pipeline.CodeTransformSize},
		"a delete marker of it":  {"delete: ", pipeline.CodeTransformFailed},
		"the key, as it was":     {"key: k", pipeline.CodeTransformSchema}, // the value stays what cannot be decoded
		"identity of the ledger": {`value: {"event_id":"","tenant":"acme","net":1,"tax":2,"amount":3}`, pipeline.CodeTransformIdentity},
	} {
		t.Run(name, func(t *testing.T) {
			in := envelopes(c.value)
			in[0].Identity = pipeline.Identity{EventID: "e1", Tenant: "acme"}
			out, err := transforms.Run(context.Background(), tr, checks, in)
			if err != nil {
				t.Fatal(err)
			}
			if got := code(&out[0]); got != c.want {
				t.Errorf("%q, want %q: %+v", got, c.want, out[0].Failure)
			}
		})
	}
}
