package plugin

import (
	"strings"
	"testing"

	"reprieve.dev/plugins/sandbox"
)

func TestAPluginRepairsLikeABuiltIn(t *testing.T) {
	w := open(t, nil)
	w.install(sandbox.Restricted)
	tr, err := w.transform("")
	if err != nil {
		t.Fatal(err, w.log)
	}
	out := repair(t, tr, "a", "same", "reason: this", "b")
	if string(out[0].Value) != "fixed" || string(out[3].Value) != "fixed" || string(out[1].Value) != "same" || code(&out[2]) != "ERR_TRANSFORM_FAILED" {
		t.Fatalf("%+v", out)
	}
	if len(out[0].Headers) != 2 || out[0].Headers[0].Value != nil || out[0].Headers[1].Value == nil || string(out[0].Key) != "k" {
		t.Fatalf("headers or key changed: %+v", out[0])
	}
	i := tr.Info()
	if l, _ := w.Level(); i.Level != l.String() || !strings.HasPrefix(string(i.Artifact), "sha256:") {
		t.Fatal(i)
	}
	t.Logf("tested at level %s", i.Level)
}
