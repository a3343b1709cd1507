package transforms

import (
	"context"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Lineage says how one repair was made: enough to make it again and see that it is the same. Digests of values are keyed: they
// are of unredacted bytes.
type Lineage struct {
	V             int             `json:"v"`
	Item          pipeline.ID     `json:"quarantine_id"`
	Transform     string          `json:"transform"` // name@version
	Artifact      pipeline.Digest `json:"artifact"`
	Config        pipeline.Digest `json:"config"`
	Input         pipeline.Digest `json:"input"`  // of the original value: every repair starts there
	Output        pipeline.Digest `json:"output"` // of the repaired value
	OutputKey     pipeline.Digest `json:"output_key"`
	OutputHeaders pipeline.Digest `json:"output_headers"`
	SchemaFrom    string          `json:"schema_from,omitempty"`
	SchemaTo      string          `json:"schema_to,omitempty"`
	Report        Report          `json:"report"`
	By            string          `json:"by"`
	At            string          `json:"at"` // RFC 3339, UTC, milliseconds
}

// NewLineage describes a repair that succeeded (INV-REPAIR-01: Input is of the original bytes).
func NewLineage(info Info, e *Envelope, r *Result, key *seal.IdentityKey, by string, at time.Time) Lineage {
	return Lineage{
		V: 1, Item: e.Item, Transform: info.Ref(), Artifact: info.Artifact, Config: info.Config,
		Input:  pipeline.Digest(key.Digest(e.Record.Value)),
		Output: pipeline.Digest(key.Digest(r.Value)), OutputKey: pipeline.Digest(key.Digest(r.Key)),
		OutputHeaders: pipeline.Digest(key.Digest(headerBytes(r.Headers))),
		SchemaFrom:    e.Schema, SchemaTo: r.Schema, Report: r.Report, By: by,
		At: at.UTC().Format("2006-01-02T15:04:05.000Z"),
	}
}

// Repeat makes the repair again from the original bytes and tells whether it is the same bit for bit. t must be the transform
// that the lineage names; a third-party one makes it in two processes. Codes: ERR_TRANSFORM_UNKNOWN (another transform, artifact or configuration), ERR_TRANSFORM_FAILED (other bytes, with both digests),
// ERR_PLUGIN_NONDETERMINISTIC, ERR_PLUGIN_UNAVAILABLE.
func (l *Lineage) Repeat(ctx context.Context, t Transform, e *Envelope, key *seal.IdentityKey) (Result, error) {
	i := t.Info()
	if i.Ref() != l.Transform || i.Artifact != l.Artifact || i.Config != l.Config {
		return Result{}, pipeline.Errorf(pipeline.CodeTransformUnknown, string(l.Item), "the repair was made by %s of artifact %s and configuration %s; here is %s of %s and %s",
			l.Transform, l.Artifact, l.Config, i.Ref(), i.Artifact, i.Config).With("Install and pin the artifact that made it.")
	}
	if got := pipeline.Digest(key.Digest(e.Record.Value)); got != l.Input {
		return Result{}, pipeline.Errorf(pipeline.CodeTransformFailed, string(l.Item), "these are not the bytes that the repair started from: then %s, now %s", l.Input, got)
	}
	out, err := Run(Twice(ctx), t, nil, []Envelope{*e})
	if err != nil {
		return Result{}, err
	}
	r := out[0]
	if r.Failure != nil {
		code := pipeline.CodeTransformFailed
		if c := r.Failure.Code; c == pipeline.CodePluginNondeterministic || c == pipeline.CodePluginUnavailable {
			code = c
		}
		return r, pipeline.Errorf(code, string(l.Item), "%s", r.Failure.Reason())
	}
	for _, made := range []struct {
		what  string
		then  pipeline.Digest
		bytes []byte
	}{{"value", l.Output, r.Value}, {"key", l.OutputKey, r.Key}, {"headers", l.OutputHeaders, headerBytes(r.Headers)}} {
		if now := pipeline.Digest(key.Digest(made.bytes)); now != made.then {
			return r, pipeline.Errorf(pipeline.CodeTransformFailed, string(l.Item), "the repair gives other bytes than before: its %s was %s then and is %s now", made.what, made.then, now).
				With("The transform is not deterministic; do not use this version.")
		}
	}
	return r, nil
}

// headerBytes is an unambiguous form of headers, null apart from empty.
func headerBytes(hs []pipeline.Header) []byte {
	fields := make([][]byte, 0, 3*len(hs))
	for _, h := range hs {
		null := []byte{0}
		if h.Value == nil {
			null[0] = 1
		}
		fields = append(fields, []byte(h.Name), null, h.Value)
	}
	return seal.LP(fields...)
}
