package worker

import (
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

func TestNamesOfAdoptedRecords(t *testing.T) {
	a := config.Adopt{Topic: "orders.dlq", Tenant: config.Tenant{From: "payload", Path: "/tenant", Allow: map[string][]string{"orders.dlq": {"acme", "globex"}}},
		Identity: config.Identity{EventID: "/id", Entity: "header:account", Version: "/seq"}}
	id, err := adoptedIdentity(a)
	if err != nil {
		t.Fatal(err)
	}
	read := identify(t.Context(), id)
	for value, want := range map[string]pipeline.Identity{
		`{"id": "o-1", "tenant": "acme", "seq": 9007199254740993}`: {EventID: "o-1", Tenant: "acme", Version: "9007199254740993", Entity: "A-1"},
		`{"id": "o-2", "tenant": "other"}`:                         {EventID: "o-2", Tenant: pipeline.TenantUnassigned, Entity: "A-1"},
		`{"id": `:                                                  {Tenant: pipeline.TenantUnassigned, Entity: "A-1"},
		``:                                                         {Tenant: pipeline.TenantUnassigned, Entity: "A-1"},
	} {
		r := &pipeline.Record{Value: []byte(value), Headers: []pipeline.Header{{Name: "account", Value: []byte("A-1")}}}
		if got := read("orders.dlq", r); got != want {
			t.Errorf("%s: %+v", value, got)
		}
	}
	if none, err := adoptedIdentity(config.Adopt{Topic: "x"}); none != nil || err != nil {
		t.Fatal(none, err)
	}
	if _, err := adoptedIdentity(config.Adopt{Identity: config.Identity{EventID: "no path"}}); err == nil {
		t.Fatal("a path that is none was taken")
	}
}
