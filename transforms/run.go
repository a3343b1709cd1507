package transforms

import (
	"context"
	"errors"

	"reprieve.dev/pipeline"
)

// Run repairs a batch and checks every result; checks may be nil only for a transform whose results are not kept. A transform
// that fails as a whole is called again with halves, so that one envelope which it cannot stand fails alone. Run returns one
// result each, in order; the error is only ctx's.
func Run(ctx context.Context, t Transform, checks *Checker, in []Envelope) ([]Result, error) {
	out, err := bisect(ctx, t, in)
	if err != nil || checks == nil {
		return out, err
	}
	for i := range out {
		if out[i].Failure == nil {
			out[i].Failure = checks.Check(ctx, &in[i], &out[i])
		}
	}
	return out, ctx.Err()
}

func bisect(ctx context.Context, t Transform, in []Envelope) ([]Result, error) {
	if len(in) == 0 {
		return nil, ctx.Err()
	}
	out, err := t.Repair(ctx, in)
	if err == nil && len(out) == len(in) {
		return out, nil
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if len(in) == 1 {
		r := unchanged(&in[0])
		r.Failure = refuse(pipeline.CodeTransformFailed, "the transform gave no result")
		if err != nil {
			r.Failure.Params[0].Text = "the transform failed"
			if c := pipeline.CodeOf(err); c != "" {
				r.Failure.Params = append(r.Failure.Params, pipeline.Str("code", string(c)))
			}
			r.Failure.Cause = err
		} else {
			r.Failure.Cause = errors.New("one result a record is required")
		}
		return []Result{r}, nil
	}
	half := len(in) / 2
	left, err := bisect(ctx, t, in[:half:half])
	if err != nil {
		return nil, err
	}
	right, err := bisect(ctx, t, in[half:])
	if err != nil {
		return nil, err
	}
	return append(left, right...), nil
}

type twiceKey struct{}

// Twice makes each batch of third-party transforms be asked for in two processes whose answers must be the same byte for byte:
// for dry runs and replays, where nothing may rest on luck.
func Twice(ctx context.Context) context.Context { return context.WithValue(ctx, twiceKey{}, true) }

// EachTwice tells whether ctx comes from Twice.
func EachTwice(ctx context.Context) bool { return ctx.Value(twiceKey{}) != nil }
