package deadletter

import (
	"bytes"
	"strings"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

func TestQuarantineID(t *testing.T) {
	key, err := seal.NewIdentityKey("i1", bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	id := pipeline.Identity{Consumer: "c", Tenant: "acme", EventID: "e", Release: "r@1", Entity: "x"}
	at, value := position("t", 1, 2), []byte("v")
	base := QuarantineID(key, id, "cl", at, value)
	const vector = "qyxeq5tl4qwqh4ilp433vozhvvffhga6l" // the identity key is never rotated: this never changes
	if base != vector {
		t.Errorf("the id is %s, not %s", base, vector)
	}
	if !strings.HasPrefix(string(base), "q") || len(base) != 33 {
		t.Errorf("form of %s", base)
	}
	same := map[string]pipeline.ID{}
	moved := id
	moved.Release, moved.Entity = "r@2", "y"
	same["another position and release"] = QuarantineID(key, moved, "other", position("t2", 5, 9), value)
	for name, got := range same {
		if got != base {
			t.Errorf("%s: another item", name)
		}
	}
	differs := map[string]pipeline.ID{}
	change := func(name string, f func(*pipeline.Identity)) {
		other := id
		f(&other)
		differs[name] = QuarantineID(key, other, "cl", at, value)
	}
	change("consumer", func(i *pipeline.Identity) { i.Consumer = "c2" })
	change("tenant", func(i *pipeline.Identity) { i.Tenant = "globex" })
	change("event", func(i *pipeline.Identity) { i.EventID = "e2" })
	change("shifted fields", func(i *pipeline.Identity) { i.Consumer, i.Tenant = "ca", "cme" })
	differs["value"] = QuarantineID(key, id, "cl", at, []byte("w"))
	differs["empty value"] = QuarantineID(key, id, "cl", at, []byte{})
	differs["null value"] = QuarantineID(key, id, "cl", at, nil)
	none := id
	none.EventID = ""
	differs["no event id"] = QuarantineID(key, none, "cl", at, value)
	differs["no event id, next offset"] = QuarantineID(key, none, "cl", position("t", 1, 3), value)
	differs["no event id, other cluster"] = QuarantineID(key, none, "cl2", at, value)
	seen := map[pipeline.ID]string{base: "base"}
	for name, got := range differs {
		if other, dup := seen[got]; dup {
			t.Errorf("%s and %s are one item", name, other)
		}
		seen[got] = name
	}
}

func TestFingerprintIsStable(t *testing.T) {
	f := &pipeline.Failure{Stage: "decode", Code: pipeline.CodeDecodeTruncated, Params: []pipeline.Param{pipeline.Int("at", 17), pipeline.Str("schema", "avro:7")}}
	base := Fingerprint("c", f)
	const vector = "f17jz32b7nsxgv6wopbquhtiexh4"
	if base != vector {
		t.Errorf("the fingerprint is %s, not %s: groups of earlier versions would split", base, vector)
	}
	g := *f
	g.Params = []pipeline.Param{pipeline.Str("schema", "avro:7"), pipeline.Int("at", 99), pipeline.Str("more", "x")}
	g.Index, g.Stack, g.Origin, g.RetryAfter = 5, "stack", "E", 100
	if Fingerprint("c", &g) != base {
		t.Error("what is not identifying changes it")
	}
	for name, change := range map[string]func(*pipeline.Failure){
		"code":  func(f *pipeline.Failure) { f.Code = pipeline.CodeDecodeLeftover },
		"stage": func(f *pipeline.Failure) { f.Stage = "enrich" },
		"param": func(f *pipeline.Failure) { f.Params = []pipeline.Param{pipeline.Str("schema", "avro:8")} },
	} {
		g := *f
		change(&g)
		if Fingerprint("c", &g) == base {
			t.Errorf("another %s is the same group", name)
		}
	}
	if Fingerprint("c2", f) == base {
		t.Error("another consumer is the same group")
	}
}
