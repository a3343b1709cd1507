package expr

import (
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"

	"reprieve.dev/pipeline"
)

// activation gives one evaluation its variables. Each is made when it is first asked for.
type activation struct {
	b       *pipeline.Batch
	i       int
	f       *pipeline.Facts
	view    pipeline.View
	viewSet bool // view is given, not that of the batch
	status  int64
	paths   *pathSet
	meter   meter
	made    ref.Val // the view's value: asked for once for each mention of it
	key     ref.Val // the same of the key
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	if name == meterName {
		return &a.meter, true
	}
	if a.f != nil {
		return a.fact(name)
	}
	switch name {
	case "view", "body":
		if a.made == nil {
			v := a.view
			if !a.viewSet {
				v = a.b.Views[a.i]
			}
			a.made = viewVal(v, a.paths, &a.meter)
		}
		return a.made, true
	case "status":
		return types.Int(a.status), true
	}
	if a.b == nil {
		return nil, false
	}
	r := &a.b.Recs[a.i]
	switch name {
	case "headers":
		own, added := headersOf(a.b, a.i)
		return &headers{of: own, added: added, meter: &a.meter}, true
	case "header_list":
		own, added := headersOf(a.b, a.i)
		return headerList(own, added, &a.meter), true
	case "key":
		if v := a.b.KeyView(a.i); v != nil {
			if a.key == nil {
				a.key = viewVal(v, a.paths, &a.meter)
			}
			return a.key, true
		}
		return textOrNull(r.Key), true
	case "topic":
		return types.String(a.b.TP.Topic), true
	case "partition":
		return types.Int(a.b.TP.Partition), true
	case "offset":
		return types.Int(r.Offset), true
	case "timestamp":
		if o := fromTime(r.TimeMS, 1000); o.kind == kindTime {
			return timestamp(o), true
		}
		return types.WrapErr(errBadValue), true
	}
	return nil, false
}

func (a *activation) fact(name string) (any, bool) {
	f := a.f
	switch name {
	case "code":
		return types.String(f.Code), true
	case "class":
		return types.String(f.Class.String()), true
	case "three_way":
		return types.String(f.Class.ThreeWay()), true
	case "stage":
		return types.String(f.Stage), true
	case "attempt":
		return types.Int(f.Attempt), true
	case "rung":
		return types.Int(f.Rung), true
	case "age":
		return types.Duration{Duration: ageOf(f)}, true
	case "retry_after":
		return types.Duration{Duration: milliseconds(f.RetryAfter)}, true
	case "retryable":
		return types.Bool(pipeline.Lookup(f.Code).Retryable()), true
	case "schema":
		return types.String(f.Schema), true
	case "tenant":
		return types.String(f.Tenant), true
	case "topic":
		return types.String(f.Topic), true
	case "release":
		return types.String(f.Release), true
	case "lane":
		return types.String(laneName(f.Lane)), true
	case "redriven":
		return types.Bool(f.Redriven), true
	case "healthy":
		return types.Bool(!f.Unhealthy), true
	}
	return nil, false
}

// ageOf is how long the record has been in the source; unknown or in the future is 0.
func ageOf(f *pipeline.Facts) time.Duration {
	if f.FirstMS <= 0 || f.NowMS <= f.FirstMS {
		return 0
	}
	return milliseconds(f.NowMS - f.FirstMS)
}

// milliseconds makes a duration and keeps to the largest one.
func milliseconds(ms int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(min(max(ms, -most), most)) * time.Millisecond
}

func laneName(l pipeline.Lane) string {
	if l == pipeline.Retry {
		return "retry"
	}
	return "live"
}

// headersOf are the headers as they would leave: redacted after redact, with what enrich added so far.
func headersOf(b *pipeline.Batch, i int) (own, added []pipeline.Header) {
	if i < len(b.Outs) {
		return b.Outs[i].Headers, b.Outs[i].Add
	}
	return b.Recs[i].Headers, nil
}
