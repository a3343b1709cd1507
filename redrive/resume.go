package redrive

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Doubt is an item that a killed run may have sent.
type Doubt struct {
	Item   pipeline.ID        `json:"id"`
	N      int64              `json:"n"`
	Try    uint16             `json:"try"`
	Intent string             `json:"intent"`
	Found  *pipeline.Position `json:"found,omitempty"` // where the destination has it; nil: it does not
}

// Decision is what a person says about the items in doubt. Exactly one way is chosen.
type Decision struct {
	// Scan takes what the destination holds for the truth: found is sent, absent is unsent. It is exact when the dead executor was
	// transactional (it is fenced first); else a message of it might still be on its way for as long as its client's timeout.
	Scan bool
	// Sent and Unsent name every item in doubt.
	Sent, Unsent []pipeline.ID
	Reason       string
}

// Doubts names the items that a killed run may have sent, and whether the destination has them. It changes nothing. Codes:
// ERR_PERMISSION_DENIED, ERR_MANIFEST_UNKNOWN.
func (s *Service) Doubts(ctx context.Context, who custody.Actor, digest pipeline.Digest) ([]Doubt, error) {
	o, err := s.open(ctx, who, custody.PermExecute, digest)
	if err != nil {
		return nil, s.refused(ctx, who, "resume", string(digest), "", err)
	}
	t, err := s.target(o.m.Pipeline)
	if err != nil {
		return nil, err
	}
	return s.doubts(ctx, t, o.m, digest)
}

func (s *Service) doubts(ctx context.Context, t *Target, m *Manifest, digest pipeline.Digest) ([]Doubt, error) {
	from := map[pipeline.TP]int64{}
	out := []Doubt{}
	at := map[pipeline.ID]int{}
	if err := s.db.Read(ctx, func(tx *ledger.Tx) error {
		out = out[:0]
		if err := tx.Each("SELECT offsets FROM intents WHERE manifest = ? AND tenant = ? AND state = 'open'", []any{digest, m.Tenant}, func(scan func(...any) error) error {
			var text string
			if err := scan(&text); err != nil {
				return err
			}
			offs, err := parseOffsets(text)
			for tp, off := range offs {
				if old, ok := from[tp]; !ok || off < old {
					from[tp] = off
				}
			}
			return err
		}); err != nil {
			return err
		}
		return tx.Each(`SELECT m.item, m.n, i.redrive_try, n.id FROM manifest_items m JOIN items i ON i.id = m.item AND i.tenant = m.tenant
			JOIN intents n ON n.manifest = m.manifest AND n.state = 'open' AND m.n >= n.from_n AND m.n <= n.to_n
			WHERE m.manifest = ? AND m.tenant = ? AND m.state IN (?, ?) AND i.state = 'REDRIVING' AND i.redrive = m.manifest ORDER BY m.n, n.written_ms`, []any{digest, m.Tenant, itemPlanned, itemSending}, func(scan func(...any) error) error {
			var d Doubt
			if err := scan(&d.Item, &d.N, &d.Try, &d.Intent); err != nil {
				return err
			}
			if _, twice := at[d.Item]; !twice {
				at[d.Item] = len(out)
				out = append(out, d)
			}
			return nil
		})
	}); err != nil || len(out) == 0 {
		return out, err
	}
	log, err := s.logOf(t.Cluster)
	if err != nil {
		return nil, err
	}
	info, err := log.Info(ctx, m.Destination)
	if err != nil {
		return nil, err
	}
	for p, r := range info.Partitions {
		tp := pipeline.TP{Topic: m.Destination, Partition: p}
		start, ok := from[tp]
		if !ok {
			start = r.First // a partition that is new since
		}
		start = max(start, r.First)
		err := log.Read(ctx, tp, func(yield func(int64) bool) {
			for off := start; off < r.Next; off++ {
				if !yield(off) {
					return
				}
			}
		}, func(b *pipeline.Batch) error {
			defer b.Release()
			for i := range b.Recs {
				tr, _, err := deadletter.ParseTrail(m.Destination, &b.Recs[i], s.ring)
				if err != nil || tr.Redrive != digest {
					continue
				}
				if j, ok := at[tr.Item]; ok && out[j].Try == tr.Try {
					out[j].Found = &pipeline.Position{TP: tp, Offset: b.Recs[i].Offset}
				}
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func parseOffsets(text string) (map[pipeline.TP]int64, error) {
	var raw map[string]string
	if err := json.Unmarshal([]byte(text), &raw); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, "intents", "the offsets of an intent cannot be read")
	}
	out := make(map[pipeline.TP]int64, len(raw))
	for k, v := range raw {
		i := strings.LastIndexByte(k, '/')
		if i < 0 {
			return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, "intents", "the offsets of an intent cannot be read")
		}
		p, err := strconv.ParseInt(k[i+1:], 10, 32)
		off, err2 := strconv.ParseInt(v, 10, 64)
		if err != nil || err2 != nil {
			return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, "intents", "the offsets of an intent cannot be read")
		}
		out[pipeline.TP{Topic: k[:i], Partition: int32(p)}] = off
	}
	return out, nil
}

// Resume settles what a killed run left in doubt, by an explicit decision; afterwards Run goes on with the rest. It takes the
// lease, which fences a transactional predecessor before the destination is looked at. Nothing in doubt is ever sent again
// unless it is decided to be unsent (INV-UNCERTAIN). Codes: ERR_PERMISSION_DENIED, ERR_REDRIVE_STATE (nothing is in doubt, or
// the executor lives), ERR_REDRIVE_UNCERTAIN (the decision leaves items out: they are named), ERR_REASON_MISSING.
func (s *Service) Resume(ctx context.Context, who custody.Actor, digest pipeline.Digest, d Decision) ([]Doubt, error) {
	o, err := s.open(ctx, who, custody.PermExecute, digest)
	if err == nil && d.Reason == "" {
		err = pipeline.Errorf(pipeline.CodeReasonMissing, string(digest), "say what the decision rests on")
	}
	if err != nil {
		return nil, s.refused(ctx, who, "resume", string(digest), "", err)
	}
	t, err := s.target(o.m.Pipeline)
	if err != nil {
		return nil, err
	}
	var lease ledger.Lease
	if err := s.db.Write(ctx, func(tx *ledger.Tx) error {
		l, ok, err := tx.Lease("redrive/"+string(digest), s.name+"/"+randomID(""), s.lease)
		if err != nil {
			return err
		}
		if !ok {
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "%s works on it until %s", l.Holder, stamp(l.Until)).With(leased)
		}
		lease = l
		return nil
	}); err != nil {
		return nil, s.refused(ctx, who, "resume", string(digest), o.m.Tenant, err)
	}
	out, err := s.resume(ctx, who, t, o.m, digest, lease, d)
	if uerr := s.db.Write(context.WithoutCancel(ctx), func(tx *ledger.Tx) error { return tx.Unlease(lease) }); err == nil {
		err = uerr
	}
	return out, s.refused(ctx, who, "resume", string(digest), o.m.Tenant, err)
}

func (s *Service) resume(ctx context.Context, who custody.Actor, t *Target, m *Manifest, digest pipeline.Digest, lease ledger.Lease, d Decision) ([]Doubt, error) {
	if s.send != nil { // opening the sink fences a transactional predecessor
		_, done, err := s.send(ctx, t, lease)
		if err != nil {
			return nil, err
		}
		if done != nil {
			if err := done(ctx); err != nil {
				return nil, err
			}
		}
	}
	list, err := s.doubts(ctx, t, m, digest)
	if err != nil {
		return nil, err
	}
	said := map[pipeline.ID]bool{}
	for _, id := range d.Sent {
		said[id] = true
	}
	for _, id := range d.Unsent {
		said[id] = false
	}
	var missing []string
	sent := map[string][]custody.SentAt{}
	var unsent []pipeline.ID
	for i := range list {
		x := &list[i]
		was, ok := said[x.Item]
		if d.Scan {
			was, ok = x.Found != nil, true
		}
		switch {
		case !ok:
			missing = append(missing, string(x.Item))
		case was:
			at := pipeline.Position{TP: pipeline.TP{Topic: m.Destination, Partition: -1}, Offset: -1}
			if x.Found != nil {
				at = *x.Found
			}
			sent[x.Intent] = append(sent[x.Intent], custody.SentAt{N: x.N, Item: x.Item, At: at})
		default:
			unsent = append(unsent, x.Item)
		}
	}
	if len(missing) > 0 {
		return list, pipeline.Errorf(pipeline.CodeRedriveUncertain, string(digest), "decide about each item in doubt: %s", strings.Join(missing, ", "))
	}
	return list, s.db.Write(ctx, func(tx *ledger.Tx) error {
		if err := tx.Held(lease); err != nil {
			return err
		}
		row, err := lockManifest(tx, digest)
		if err != nil {
			return err
		}
		switch row.State {
		case StateUnclear, StateCanary, StateRunning, StateStopped, StateSettling:
		default:
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "it is %s", row.State)
		}
		if len(list) == 0 && row.State != StateUnclear {
			return pipeline.Errorf(pipeline.CodeRedriveState, string(digest), "nothing is in doubt; run it")
		}
		for intent, at := range sent {
			if err := s.items.Sent(tx, digest, m.Tenant, at); err != nil {
				return err
			}
			if err := s.items.CloseIntent(tx, intent, "sent"); err != nil {
				return err
			}
		}
		if len(unsent) > 0 {
			if _, _, err := s.items.Withdraw(tx, who, digest, unsent, d.Reason); err != nil {
				return err
			}
			in, arg := tx.In("item", idTexts(unsent))
			if _, err := tx.Exec("UPDATE manifest_items SET state = ? WHERE manifest = ? AND tenant = ? AND "+in, itemPlanned, digest, m.Tenant, arg); err != nil {
				return err
			}
			rows, err := s.rows(t, m, digest, 0)
			if err != nil {
				return err
			}
			if err := untake(tx, len(unsent), rows...); err != nil {
				return err
			}
		}
		if err := endIntents(tx, m, digest); err != nil {
			return err
		}
		n := 0
		for _, at := range sent {
			n += len(at)
		}
		tx.Append(ledger.Entry{Tenant: m.Tenant, Event: "redrive_resumed", Actor: who.Subject,
			Detail: map[string]string{"manifest": string(digest), "run": row.Run, "sent": strconv.Itoa(n), "unsent": strconv.Itoa(len(unsent)), "scan": strconv.FormatBool(d.Scan), "reason": d.Reason, "via": who.Via}})
		return row.to(tx, StateStopped, "resumed: "+d.Reason)
	})
}

// endIntents closes the intents of a killed run. Its lease must be ours, and nothing of them in doubt.
func endIntents(tx *ledger.Tx, m *Manifest, digest pipeline.Digest) error {
	_, err := tx.Exec("UPDATE intents SET state = 'resumed', closed_ms = ? WHERE manifest = ? AND tenant = ? AND state = 'open'", tx.NowMS(), digest, m.Tenant)
	return err
}
