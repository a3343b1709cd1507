package custody

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"io"
	"reflect"
	"strconv"
	"strings"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// ExportOptions say what is exported. Exactly one of the formats.
type ExportOptions struct {
	CSV bool // metadata only; else JSON lines
	// Payloads adds the record of each item, as the ledger holds it, in the one record form. It needs the permission to reveal
	// and a reason, and is written into the history of each item.
	Payloads bool
	Reason   string
	// Progress, if not nil, is told after each chunk how many of how many items were written.
	Progress func(done, total int64)
}

// exportLine is one line of an export: the item, and its record.
type exportLine struct {
	Form
	Record  json.RawMessage `json:"record,omitempty"`
	Missing pipeline.Code   `json:"record_missing,omitempty"` // why there is no record
}

// Export writes the items of a selection, oldest id first, as they are when each chunk of 500 is read. It returns how many.
// Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN, ERR_REASON_MISSING, ERR_USAGE (payloads as CSV), and what w returns.
func (c *Items) Export(ctx context.Context, who Actor, sel Selection, o ExportOptions, w io.Writer) (int64, error) {
	if err := c.mayRead(ctx, who, sel); err != nil {
		return 0, err
	}
	if o.Payloads {
		if o.CSV {
			return 0, pipeline.Errorf(pipeline.CodeUsage, "", "payloads are exported as JSON lines")
		}
		if err := firstOf(needs(pipeline.CodeReasonMissing, o.Reason, "a reason"), c.Check(ctx, who, PermReveal, "")); err != nil {
			return 0, err
		}
	}
	var table *csv.Writer
	if o.CSV {
		table = csv.NewWriter(w)
		if err := table.Write(formNames()); err != nil {
			return 0, err
		}
	}
	var total, all int64
	if o.Progress != nil {
		var err error
		if all, err = c.Count(ctx, who, sel); err != nil {
			return 0, err
		}
	}
	for after := ""; ; {
		lines, last, err := c.exportChunk(ctx, who, sel, o, after)
		if err != nil || len(lines) == 0 {
			if table != nil {
				table.Flush()
				err = firstOf(err, table.Error())
			}
			return total, err
		}
		for i := range lines {
			if table != nil {
				err = table.Write(formCells(&lines[i].Form))
			} else {
				var b []byte
				if b, err = json.Marshal(&lines[i]); err == nil {
					_, err = w.Write(append(b, '\n'))
				}
			}
			if err != nil {
				return total, err
			}
			total++
		}
		after = last
		if o.Progress != nil {
			o.Progress(total, max(all, total)) // new items come meanwhile
		}
	}
}

func (c *Items) exportChunk(ctx context.Context, who Actor, sel Selection, o ExportOptions, after string) (lines []exportLine, last string, err error) {
	read := func(tx *ledger.Tx) error {
		lines, last = nil, ""
		cond, args := c.scope(tx, who, sel)
		var items []*Item
		if err := tx.Each("SELECT "+itemColumns+" FROM items WHERE "+cond+" AND id > ? ORDER BY id LIMIT 500", append(args, after), func(scan func(...any) error) error {
			it, err := scanItem(scan)
			items = append(items, it)
			return err
		}); err != nil {
			return err
		}
		for _, it := range items {
			last = string(it.ID)
			line := exportLine{Form: it.Form()}
			if o.Payloads {
				b, err := c.stored(tx, it)
				switch code := pipeline.CodeOf(err); {
				case err == nil:
					rec := &pipeline.Record{Offset: it.Original.Offset, TimeMS: it.OriginalMS, TimeType: it.TimeType, Key: b.Key, Value: b.Value, Headers: b.Headers}
					line.Record = pipeline.AppendForm(nil, it.Original.TP, rec)
					tx.Append(ledger.Entry{Tenant: it.Tenant, Item: string(it.ID), Event: "revealed", Actor: who.Subject,
						Detail: map[string]string{"reason": o.Reason, "via": who.Via, "by": "export", "faithful": strconv.FormatBool(it.Faithful == deadletter.Inline)}})
				case code == pipeline.CodePayloadMissing, code == pipeline.CodePayloadUnavailable, code == pipeline.CodeErased, code == pipeline.CodeKeyDestroyed, code == pipeline.CodeKeyUnknown:
					line.Missing = code
				default:
					return err
				}
			}
			lines = append(lines, line)
		}
		return nil
	}
	if o.Payloads {
		err = c.db.Write(ctx, read) // the reveals are written before the bytes leave
	} else {
		err = c.db.Read(ctx, read)
	}
	return lines, last, err
}

func formNames() []string {
	t := reflect.TypeFor[Form]()
	out := make([]string, t.NumField())
	for i := range out {
		out[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return out
}

// formCells are the cells of a row. A text that a spreadsheet would run as a formula gets an apostrophe before it: reasons
// and ids come from strangers.
func formCells(f *Form) []string {
	v := reflect.ValueOf(f).Elem()
	out := make([]string, v.NumField())
	for i := range out {
		switch x := v.Field(i); x.Kind() {
		case reflect.Slice:
			out[i] = strings.Join(x.Interface().([]string), " ")
		case reflect.Bool:
			out[i] = strconv.FormatBool(x.Bool())
		case reflect.Int, reflect.Int32:
			out[i] = strconv.FormatInt(x.Int(), 10)
		case reflect.Uint16, reflect.Uint32:
			out[i] = strconv.FormatUint(x.Uint(), 10)
		default:
			out[i] = x.String()
			if s := out[i]; s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
				out[i] = "'" + s
			}
		}
	}
	return out
}
