package custody

import (
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// WindowBytes reads for a redrive what the ledger holds of many items, in two statements: of an item that repairs names, the
// bytes of that repair; of the others their stored payload. An item that has none is missing in the result, one that cannot be
// opened is in failed. The digests are for the caller to verify. Codes of failed: ERR_ERASED, ERR_KEY_UNKNOWN, ERR_KEY_DESTROYED,
// ERR_LEDGER_CORRUPT.
func (c *Items) WindowBytes(tx *ledger.Tx, items []*Item, repairs map[pipeline.ID]string) (found map[pipeline.ID]Bytes, failed map[pipeline.ID]error, err error) {
	found, failed = make(map[pipeline.ID]Bytes, len(items)), map[pipeline.ID]error{}
	byID := make(map[pipeline.ID]*Item, len(items))
	byRepair := map[string]*Item{}
	var plain, mended []string
	for _, it := range items {
		switch r := repairs[it.ID]; {
		case it.Flags&FlagErased != 0:
			failed[it.ID] = pipeline.Errorf(pipeline.CodeErased, string(it.ID), "the bytes were erased")
		case r != "":
			byRepair[r] = it
			mended = append(mended, r)
		default:
			byID[it.ID] = it
			plain = append(plain, string(it.ID))
		}
	}
	keep := func(it *Item, b Bytes, err error) {
		if err != nil {
			failed[it.ID] = err
			return
		}
		b.TimeMS, b.TimeType = it.OriginalMS, it.TimeType
		found[it.ID] = b
	}
	if len(plain) > 0 {
		in, arg := tx.In("item", plain)
		if err := tx.Each("SELECT item, week, record_key, value, headers FROM payloads WHERE "+in, []any{arg}, func(scan func(...any) error) error {
			var id pipeline.ID
			var week int64
			var b Bytes
			var headers []byte
			if err := scan(&id, &week, &b.Key, &b.Value, &headers); err != nil {
				return err
			}
			if it := byID[id]; it != nil && week == it.PayloadWeek {
				var err error
				if b.Headers, err = unpackHeaders(headers); err == nil {
					err = c.unseal(it, &b)
				}
				keep(it, b, err)
			}
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	if len(mended) > 0 {
		in, arg := tx.In("repair", mended)
		if err := tx.Each("SELECT repair, record_key, value, headers, enc FROM repair_payloads WHERE "+in, []any{arg}, func(scan func(...any) error) error {
			var repair, enc string
			var b Bytes
			var headers []byte
			if err := scan(&repair, &b.Key, &b.Value, &headers, &enc); err != nil {
				return err
			}
			if it := byRepair[repair]; it != nil {
				var err error
				if enc != "" {
					b, err = c.openRecord(it, it.Tenant, enc, b.Value, []byte(repair))
				} else {
					b.Headers, err = unpackHeaders(headers)
				}
				keep(it, b, err)
			}
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	return found, failed, nil
}
