package custody

import (
	"cmp"
	"context"
	"slices"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// SourceBytes reads the bytes of many items that stand in source topics, a partition at a time: one read of a window costs little
// more than one of an item. Only what is there and has its digest is in the result; for the rest Faithful says what is wrong.
func (c *Items) SourceBytes(ctx context.Context, items []*Item) (map[pipeline.ID]Bytes, error) {
	type place struct {
		cluster string
		tp      pipeline.TP
	}
	by := map[place][]*Item{}
	for _, it := range items {
		if it.Faithful == deadletter.Source && it.Flags&FlagErased == 0 {
			p := place{it.Cluster, it.Original.TP}
			by[p] = append(by[p], it)
		}
	}
	out := make(map[pipeline.ID]Bytes, len(items))
	for p, list := range by {
		log, ok := c.source(p.cluster)
		if !ok {
			continue
		}
		slices.SortFunc(list, func(a, b *Item) int { return cmp.Compare(a.Original.Offset, b.Original.Offset) })
		at := make(map[int64][]*Item, len(list))
		for _, it := range list {
			at[it.Original.Offset] = append(at[it.Original.Offset], it)
		}
		offsets := func(yield func(int64) bool) {
			last := int64(-1)
			for _, it := range list {
				if off := it.Original.Offset; off != last {
					if last = off; !yield(off) {
						return
					}
				}
			}
		}
		if err := log.Read(ctx, p.tp, offsets, func(batch *pipeline.Batch) error {
			defer batch.Release()
			for i := range batch.Recs {
				r := &batch.Recs[i]
				for _, it := range at[r.Offset] {
					k := r.Clone()
					b := Bytes{Key: k.Key, Value: k.Value, Headers: k.Headers, TimeMS: k.TimeMS, TimeType: k.TimeType}
					if c.verifyFaithful(it, &b) == nil {
						out[it.ID] = b
					}
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}
