package redrive

import (
	"context"
	"encoding/json"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/transforms"
)

// Replayed is a repair of the past that was made again and is the same bit for bit.
type Replayed struct {
	Repair  string             `json:"repair"`
	Lineage transforms.Lineage `json:"lineage"`
	Level   string             `json:"level"` // how the transform ran this time
}

// Replay makes the present repair of an item again, as its lineage says, and compares what comes with the digests that were kept.
// It changes nothing. Codes: ERR_PERMISSION_DENIED, ERR_ITEM_UNKNOWN, ERR_STATE_TRANSITION_INVALID (it has no repair),
// ERR_TRANSFORM_UNKNOWN (the version is not here, or is another artifact), ERR_TRANSFORM_FAILED (other bytes),
// ERR_PLUGIN_NONDETERMINISTIC, ERR_PAYLOAD_*.
func (s *Service) Replay(ctx context.Context, who custody.Actor, id pipeline.ID) (*Replayed, error) {
	if err := s.items.Check(ctx, who, custody.PermRepair, ""); err != nil {
		return nil, err
	}
	var it *custody.Item
	var stored *custody.StoredRepair
	tenant := ""
	if err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		items, err := s.items.Load(tx, []pipeline.ID{id})
		if err != nil {
			return err
		}
		if it = items[id]; it == nil {
			return pipeline.Errorf(pipeline.CodeItemUnknown, string(id), "there is no such item")
		}
		if tenant = it.Tenant; !s.items.Sees(who, tenant) {
			return pipeline.Errorf(pipeline.CodeTenantForbidden, string(id), "items of this tenant are not theirs to see")
		}
		if it.Repair == "" {
			return pipeline.Errorf(pipeline.CodeStateInvalid, string(id), "it is %s and has no repair", it.State)
		}
		_, stored, err = s.items.RepairedBytes(tx, it)
		return err
	}); err != nil {
		return nil, s.refused(ctx, who, "replay", "", tenant, err)
	}
	t, err := s.target(it.Pipeline)
	if err != nil {
		return nil, err
	}
	if t.Library == nil {
		return nil, pipeline.Errorf(pipeline.CodeTransformUnknown, stored.Transform, "the pipeline %s has no transforms here", t.Pipeline)
	}
	tr, err := t.Library.Parse(stored.Transform+"@"+stored.Version, []byte(stored.Config))
	if err != nil {
		return nil, err
	}
	out := &Replayed{Repair: it.Repair, Level: tr.Info().Level}
	if err := json.Unmarshal([]byte(stored.Report), &out.Lineage); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, string(id), "the lineage of its repair cannot be read")
	}
	original, err := s.items.Faithful(ctx, it)
	if err != nil {
		return nil, err
	}
	e := envelopeOf(it, &original)
	if _, err := out.Lineage.Repeat(ctx, tr, &e, s.id); err != nil {
		return nil, err
	}
	return out, nil
}
