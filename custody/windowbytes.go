package custody

import (
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// WindowBytes reads for a redrive what the ledger holds of many items, in two statements: of an item that repairs names, the
// bytes of that repair; of the others their stored payload. An item that has none is missing in the result, one that cannot be
// opened is in failed. The digests are for the caller to verify. Codes of failed: ERR_ERASED, ERR_KEY_UNKNOWN, ERR_KEY_DESTROYED,
// ERR_LEDGER_CORRUPT, ERR_PAYLOAD_MISSING. Codes: ERR_PAYLOAD_UNAVAILABLE (the bucket of large values), ERR_LEDGER_*.
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
	type elsewhere struct {
		it      *Item
		b       Bytes
		headers []byte
		object  *string
	}
	var aside []elsewhere // values that stand in the bucket: it is asked once the rows are read
	if len(plain) > 0 {
		in, arg := tx.In("item", plain)
		if err := tx.Each("SELECT item, week, record_key, value, headers, object FROM payloads WHERE "+in, []any{arg}, func(scan func(...any) error) error {
			var id pipeline.ID
			var week int64
			var b Bytes
			var headers []byte
			var object *string
			if err := scan(&id, &week, &b.Key, &b.Value, &headers, &object); err != nil {
				return err
			}
			it := byID[id]
			if it == nil || week != it.PayloadWeek {
				return nil
			}
			var err error
			if b.Headers, err = unpackHeaders(headers); err != nil {
				keep(it, b, err)
				return nil
			}
			if object != nil {
				aside = append(aside, elsewhere{it, b, headers, object})
				return nil
			}
			keep(it, b, c.unseal(it, &b))
			return nil
		}); err != nil {
			return nil, nil, err
		}
	}
	for _, x := range aside {
		var err error
		if x.b.Value, err = c.valueOf(tx.Context(), nil, x.object); err == nil {
			if err = c.intactIn(x.it, &x.b, x.headers, x.object); err == nil {
				err = c.unseal(x.it, &x.b)
			}
		}
		if pipeline.CodeOf(err) == pipeline.CodePayloadUnavailable {
			return nil, nil, err // nothing is wrong with the item
		}
		keep(x.it, x.b, err)
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
