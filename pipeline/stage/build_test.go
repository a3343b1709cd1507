package stage_test

import (
	"slices"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/stage"
)

// build makes the stage of a kind from its YAML, as a pipeline file would have it.
func build(t testing.TB, env pipeline.Env, kind, yaml string) pipeline.Stage {
	t.Helper()
	kinds := stage.Kinds()
	k := kinds[slices.IndexFunc(kinds, func(k pipeline.Kind) bool { return k.Name == kind })]
	settings := k.Settings()
	doc, ps := config.Parse("stage.yaml", []byte(yaml), config.Options{})
	if len(ps) == 0 {
		ps = doc.Decode(settings)
	}
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	env.Name = kind
	built, shut, err := k.Build(settings, env)
	if err != nil {
		t.Fatal(err)
	}
	if shut != nil {
		t.Cleanup(func() { _ = shut() })
	}
	return built
}
