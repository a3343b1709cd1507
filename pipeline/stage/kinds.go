// Package stage holds the built-in kinds of the live lane: decode, classify, redact, enrich, route. A stage marks records and
// fills outputs; it has no effects, reorders and drops nothing. The settings of a kind stand beside it.
package stage

import "reprieve.dev/pipeline"

// Kinds are the built-in kinds, in the order of their phases.
func Kinds() []pipeline.Kind {
	return []pipeline.Kind{decodeKind(), classifyKind(), redactKind(), enrichKind(), routeKind()}
}

// The resources that the worker gives to built-in kinds (pipeline.Env.Resource).
const (
	ResourceRegistry = "registry" // codec.Registry, by the name in the worker file
	ResourceIdentity = "identity" // *Identity of the pipeline
	ResourceHashKey  = "hash"     // []byte, the key of hashing and tokenising
	ResourceFile     = "file"     // []byte of a file, by its path from the folder of the pipeline file
	ResourceTopic    = "topic"    // Follower, by the stage's name
	ResourceEach     = "each"     // bool: outage: quarantine, each record asks the service that it needs itself; ERR_CONFIG_REFERENCE: it does not
	ResourceHTTP     = "http"     // call.Doer that stands for the service of a stage, by the stage's name; ERR_CONFIG_REFERENCE: the service itself
)

// resource asks for a named thing of the right type.
func resource[T any](env pipeline.Env, kind, name string) (T, error) {
	var zero T
	r, err := env.Resource(kind, name)
	if err != nil {
		return zero, err
	}
	v, ok := r.(T)
	if !ok {
		return zero, pipeline.Errorf(pipeline.CodeInternal, env.Name, "the worker gave a %T as %s %q", r, kind, name)
	}
	return v, nil
}
