package redrive

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"reprieve.dev/custody/custodytest"
	"reprieve.dev/pipeline"
	"reprieve.dev/transforms"
)

// luck is a transform that gives other bytes each time.
type luck struct {
	info  transforms.Info
	drawn int
}

func (l *luck) Info() transforms.Info { return l.info }

func (l *luck) Repair(_ context.Context, in []transforms.Envelope) ([]transforms.Result, error) {
	out := make([]transforms.Result, len(in))
	for i := range in {
		l.drawn++
		out[i] = transforms.Result{Key: in[i].Record.Key, Headers: in[i].Record.Headers, Schema: in[i].Schema, Value: fmt.Appendf(nil, `{"invoice_id":"INV-%d","amount_minor":%d}`, i, l.drawn)}
	}
	return out, nil
}

func TestAPastRepairIsRepeatedBitForBit(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.ready(3)
	drawn := &luck{}
	if err := b.target.Library.Add(transforms.Kind{Name: "acme/luck", Version: "1.0.0", Artifact: "sha256:luck", Level: "isolated",
		Build: func(info transforms.Info, _ []byte) (transforms.Transform, error) {
			drawn.info = info
			return drawn, nil
		}}); err != nil {
		t.Fatal(err)
	}
	repair := func(id pipeline.ID, ref, config string) {
		t.Helper()
		if r, err := b.svc.Repair(b.Ctx, custodytest.Operator, RepairRequest{Pipeline: "billing", Items: []pipeline.ID{id}, Ref: ref, Config: []byte(config)}); err != nil || r.Changed != 1 {
			t.Fatal(err, r)
		}
	}
	replay := func(id pipeline.ID, want pipeline.Code) *Replayed {
		t.Helper()
		r, err := b.svc.Replay(b.Ctx, custodytest.Operator, id)
		if pipeline.CodeOf(err) != want || want == "" && err != nil {
			t.Errorf("%v, want %q", err, want)
		}
		return r
	}
	replay(ids[0], pipeline.CodeStateInvalid)
	replay("qunknown", pipeline.CodeItemUnknown)
	repair(ids[0], "set@1.0.0", `{"values":{"/currency":"EUR"}}`)
	repair(ids[0], "set@1.0.0", `{"values":{"/currency":"CHF"}}`) // the present one counts, and it started from the original bytes
	if r := replay(ids[0], ""); r != nil {
		if r.Lineage.Item != ids[0] || r.Lineage.Transform != "set@1.0.0" || r.Lineage.Input == r.Lineage.Output || r.Level != "builtin" {
			t.Errorf("%+v", r)
		}
	}
	repair(ids[1], "acme/luck@1.0.0", "{}")
	if _, err := b.svc.Replay(b.Ctx, custodytest.Operator, ids[1]); pipeline.CodeOf(err) != pipeline.CodeTransformFailed || strings.Count(err.Error(), "hmac256:") != 2 {
		t.Errorf("other bytes are told by both digests: %v", err)
	}
	if _, err := b.svc.Replay(b.Ctx, custodytest.Viewer, ids[0]); pipeline.CodeOf(err) != pipeline.CodePermissionDenied {
		t.Error(err)
	}
	b.target.Library = transforms.NewLibrary(transforms.Options{Decoder: b.target.Decoder}) // the plugin is gone
	replay(ids[1], pipeline.CodeTransformUnknown)
	if it := b.Show(t, ids[0]).Item; it.Repair == "" {
		t.Error("a replay changed the item")
	}
}
