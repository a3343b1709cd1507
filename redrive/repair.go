package redrive

import (
	"context"
	"strings"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/transforms"
)

// RepairRequest says what to repair, by what.
type RepairRequest struct {
	Pipeline string
	Items    []pipeline.ID // these, or
	Snapshot string        // those of a snapshot
	Count    int64         // of the snapshot as it was shown; -1 is not checked
	Digest   string
	Ref      string // name@version
	Config   []byte // JSON
	Intent   string // declared reason when the repair may change the key or an identity field
	Change   []string

	frozenMS int64 // when the snapshot was taken; 0: the items were named
}

// Repaired says what a repair did: Changed + Failed + Skipped = Selected.
type Repaired struct {
	Selected, Changed, Failed, Skipped int64
	Items                              []RepairedItem // all of them, in order
}

// RepairedItem is the result of one item.
type RepairedItem struct {
	Item   pipeline.ID       `json:"id"`
	Repair string            `json:"repair,omitempty"` // set: it is REPAIRED
	Code   pipeline.Code     `json:"code,omitempty"`
	Text   string            `json:"text,omitempty"`
	Report transforms.Report `json:"report"`
}

// repairChunk is how many items are repaired and stored in one transaction.
const repairChunk = 500

// Repair runs a transform over the original bytes of items and registers what it made: TRIAGED (or REPAIRED, for a second
// repair) -> REPAIRED with its lineage. Each item succeeds or fails by itself, completely. Codes: ERR_PERMISSION_DENIED,
// ERR_SNAPSHOT_REQUIRED, ERR_SNAPSHOT_CHANGED, ERR_TRANSFORM_UNKNOWN, ERR_TRANSFORM_CONFIG; of an item: ERR_TRANSFORM_*,
// ERR_PAYLOAD_*, ERR_STATE_TRANSITION_INVALID.
func (s *Service) Repair(ctx context.Context, who custody.Actor, req RepairRequest) (*Repaired, error) {
	if err := s.items.Check(ctx, who, custody.PermRepair, ""); err != nil {
		return nil, err
	}
	t, err := s.target(req.Pipeline)
	if err != nil {
		return nil, err
	}
	if t.Library == nil {
		return nil, pipeline.Errorf(pipeline.CodeTransformUnknown, req.Ref, "the pipeline %s has no transforms here", t.Pipeline)
	}
	tr, err := t.Library.Parse(req.Ref, req.Config)
	if err != nil {
		return nil, err
	}
	rules := t.Rules
	if len(req.Change) > 0 {
		if req.Intent == "" {
			return nil, pipeline.Errorf(pipeline.CodeReasonMissing, req.Ref, "a change of %s needs a declared intent", strings.Join(req.Change, ", "))
		}
		rules.MayChange = append(append([]string(nil), rules.MayChange...), req.Change...)
	}
	checks, err := transforms.NewChecker(rules, t.Decoder)
	if err != nil {
		return nil, err
	}
	out := &Repaired{}
	each := func(ids []pipeline.ID) error { return s.repairChunk(ctx, who, t, tr, checks, &req, ids, out) }
	if req.Snapshot == "" {
		if len(req.Items) == 0 {
			return nil, pipeline.Errorf(pipeline.CodeSnapshotRequired, req.Ref, "name items or a snapshot")
		}
		for from := 0; from < len(req.Items); from += repairChunk {
			if err := each(req.Items[from:min(from+repairChunk, len(req.Items))]); err != nil {
				return out, err
			}
		}
		return out, nil
	}
	snap, _, err := s.items.ReadSnapshot(ctx, who, req.Snapshot)
	if err != nil {
		return nil, err
	}
	if req.Count >= 0 && req.Count != snap.Count || req.Digest != "" && req.Digest != string(snap.Digest) {
		return nil, pipeline.Errorf(pipeline.CodeSnapshotChanged, req.Snapshot, "its count or its digest is not the one that was named")
	}
	req.frozenMS = snap.CreatedMS
	return out, s.items.SnapshotItems(ctx, req.Snapshot, repairChunk, each)
}

func (s *Service) repairChunk(ctx context.Context, who custody.Actor, t *Target, tr transforms.Transform, checks *transforms.Checker, req *RepairRequest, ids []pipeline.ID, out *Repaired) error {
	out.Selected += int64(len(ids))
	start := len(out.Items)
	at := map[pipeline.ID]int{}
	for _, id := range ids {
		if _, twice := at[id]; !twice {
			at[id] = len(out.Items)
		}
		out.Items = append(out.Items, RepairedItem{Item: id})
	}
	fail := func(id pipeline.ID, code pipeline.Code, text string) {
		out.Items[at[id]].Code, out.Items[at[id]].Text = code, text
	}
	var items map[pipeline.ID]*custody.Item
	if err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		items, err = s.items.Load(tx, ids)
		return err
	}); err != nil {
		return err
	}
	var list []*custody.Item
	for i, id := range ids {
		it := items[id]
		switch {
		case at[id] != start+i:
			out.Items[start+i].Code, out.Items[start+i].Text = pipeline.CodeStateChanged, "it was named twice"
			continue
		case it == nil:
			fail(id, pipeline.CodeItemUnknown, "there is no such item")
			continue
		case !s.items.Sees(who, it.Tenant):
			fail(id, pipeline.CodeTenantForbidden, "items of this tenant are not theirs to change")
			continue
		case it.Pipeline != t.Pipeline:
			fail(id, pipeline.CodeInputInvalid, "it belongs to another pipeline")
			continue
		case it.State != custody.Triaged && it.State != custody.Repaired:
			fail(id, pipeline.CodeStateInvalid, "it is "+string(it.State))
			continue
		case it.State == custody.Repaired && req.frozenMS > 0 && it.ChangedMS > req.frozenMS: // whoever selected it did not see that
			fail(id, pipeline.CodeStateChanged, "it was repaired after it was selected")
			continue
		}
		list = append(list, it)
	}
	found, lost, err := s.originals(ctx, list) // INV-REPAIR-01: always the original bytes
	if err != nil {
		return err
	}
	var envs []transforms.Envelope
	for _, it := range list {
		if err := lost[it.ID]; err != nil {
			fail(it.ID, pipeline.CodeOf(err), text(err))
			continue
		}
		b := found[it.ID]
		envs = append(envs, envelopeOf(it, &b))
	}
	results, err := transforms.Run(ctx, tr, checks, envs)
	if err != nil {
		return err
	}
	info := tr.Info()
	var repairs []custody.NewRepair
	for i := range results {
		r, e := &results[i], &envs[i]
		out.Items[at[e.Item]].Report = r.Report
		if r.Failure != nil {
			fail(e.Item, r.Failure.Code, r.Failure.Reason())
			continue
		}
		lineage := transforms.NewLineage(info, e, r, s.id, who.Subject, s.clock())
		repairs = append(repairs, custody.NewRepair{
			StoredRepair: custody.StoredRepair{Item: e.Item, Transform: info.Name, Version: info.Version, Artifact: info.Artifact, ConfigDigest: info.Config,
				Config: string(req.Config), Before: lineage.Input, Report: toJSON(lineage), Faithful: true, NewIdentity: req.Intent},
			Bytes: custody.Bytes{Key: r.Key, Value: r.Value, Headers: r.Headers, TimeMS: e.Record.TimeMS, TimeType: e.Record.TimeType}})
	}
	var stored []*custody.StoredRepair
	var skips []custody.Skip
	if len(repairs) > 0 {
		if err := s.db.Write(ctx, func(tx *ledger.Tx) (err error) {
			stored, skips = nil, nil // a transaction may be begun again
			now, err := s.items.Lock(tx, ids)
			if err != nil {
				return err
			}
			same := repairs[:0:0]
			for _, r := range repairs {
				if it := now[r.Item]; it != nil && it.Repair != items[r.Item].Repair {
					skips = append(skips, custody.Skip{Item: r.Item, State: it.State, Code: pipeline.CodeStateChanged, Text: "somebody else repaired it meanwhile"})
					continue
				}
				same = append(same, r)
			}
			var not []custody.Skip
			stored, not, err = s.items.StoreRepairs(tx, who, same)
			skips = append(skips, not...)
			return err
		}); err != nil {
			return err
		}
	}
	for _, r := range stored {
		out.Items[at[r.Item]].Repair = r.ID
	}
	for _, k := range skips {
		fail(k.Item, k.Code, k.Text)
	}
	for i := start; i < len(out.Items); i++ {
		switch it := &out.Items[i]; {
		case it.Repair != "":
			out.Changed++
		case it.Code == pipeline.CodeStateInvalid || it.Code == pipeline.CodeItemUnknown || it.Code == pipeline.CodeTenantForbidden || it.Code == pipeline.CodeInputInvalid || it.Code == pipeline.CodeStateChanged:
			out.Skipped++
		default:
			out.Failed++
		}
	}
	return nil
}

func envelopeOf(it *custody.Item, b *custody.Bytes) transforms.Envelope {
	return transforms.Envelope{Item: it.ID, Topic: it.Original.Topic, Schema: it.Schema, Identity: it.Identity, Code: it.Code,
		Record: pipeline.Record{Offset: it.Original.Offset, TimeMS: b.TimeMS, TimeType: b.TimeType, Key: b.Key, Value: b.Value, Headers: b.Headers}}
}

func text(err error) string {
	if e, ok := err.(*pipeline.Error); ok {
		return e.Text
	}
	return err.Error()
}
