package transforms

import (
	"context"

	"reprieve.dev/pipeline"
)

// Info names one configured transform.
type Info struct {
	Name     string          // "set", "acme/normalize-currency"
	Version  string          // semver; never "latest"
	Artifact pipeline.Digest // of what runs: the declared version of a built-in, the files of a plugin
	Config   pipeline.Digest // of the configuration
	Level    string          // how it runs: "builtin", or a sandbox level
}

// Ref is "name@version".
func (i Info) Ref() string { return i.Name + "@" + i.Version }

// Envelope is one item to repair, with its original bytes.
type Envelope struct {
	Item     pipeline.ID
	Topic    string          // where the record first stood
	Record   pipeline.Record // original key, value, headers, times; a transform never writes to them
	Schema   string          // as custody knows it: "avro:7", "guid:...", "json"
	Identity pipeline.Identity
	Code     pipeline.Code // why it failed
}

// Report says what a repair did, without payload.
type Report struct {
	Changed []string `json:"changed"`         // JSON pointers into the value; "key", "headers/NAME", "schema"
	Notes   []string `json:"notes,omitempty"` // sentences for people
}

// Result is one repaired envelope, or why it could not be repaired. Bytes that did not change may alias the envelope's.
type Result struct {
	Key     []byte
	Value   []byte
	Headers []pipeline.Header
	Schema  string
	Failure *pipeline.Failure // ERR_TRANSFORM_*; nil: repaired
	Report  Report
}

// OK tells whether the item was repaired.
func (r *Result) OK() bool { return r.Failure == nil }

// Transform repairs batches. It is pure: the same envelopes give the same results; no clock, no I/O, no memory of earlier
// calls. Built-in and third-party transforms look the same to the caller. Safe for concurrent use.
type Transform interface {
	Info() Info
	// Repair returns one Result for each envelope, in the same order. An error is about the transform, not about a record:
	// the caller bisects the batch.
	Repair(ctx context.Context, in []Envelope) ([]Result, error)
}

// unchanged is the result that repairs nothing yet.
func unchanged(e *Envelope) Result {
	return Result{Key: e.Record.Key, Value: e.Record.Value, Headers: e.Record.Headers, Schema: e.Schema}
}

// refuse makes the failure of one item. Params never hold payload.
func refuse(code pipeline.Code, what string, more ...pipeline.Param) *pipeline.Failure {
	return &pipeline.Failure{Stage: "repair", Code: code, Params: append([]pipeline.Param{pipeline.Str("what", what)}, more...)}
}
