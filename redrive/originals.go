package redrive

import (
	"context"
	"maps"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// originals reads the bytes that the source held of many items: those that the ledger has in one go, those that stand in source topics a
// partition at a time, and only what is then still missing one by one. Every item is in found or, with why, in failed; only what makes all of
// it impossible is an error.
func (s *Service) originals(ctx context.Context, items []*custody.Item) (found map[pipeline.ID]custody.Bytes, failed map[pipeline.ID]error, err error) {
	var held, elsewhere []*custody.Item
	for _, it := range items {
		if it.Faithful == deadletter.Inline {
			held = append(held, it)
		} else {
			elsewhere = append(elsewhere, it)
		}
	}
	there, err := s.items.SourceBytes(ctx, elsewhere)
	if err != nil {
		return nil, nil, err
	}
	if err := s.db.Read(ctx, func(tx *ledger.Tx) (err error) {
		found, failed, err = s.items.WindowBytes(tx, held, nil)
		return err
	}); err != nil {
		return nil, nil, err
	}
	maps.Copy(found, there)
	for _, it := range items {
		b, ok := found[it.ID]
		switch {
		case failed[it.ID] != nil:
			continue
		case ok && pipeline.Digest(s.id.Digest(b.Value)) == it.DigestFaithful: // INV-FAITHFUL
			continue
		}
		delete(found, it.ID)
		if b, err = s.items.Faithful(ctx, it); err == nil {
			found[it.ID] = b
			continue
		}
		if ctx.Err() != nil {
			return nil, nil, err
		}
		failed[it.ID] = err
	}
	return found, failed, nil
}
