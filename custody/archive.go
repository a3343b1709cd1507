package custody

import (
	"context"
	"encoding/json"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// Bucket keeps objects by name; Delete of one that is not there is no error.
type Bucket interface {
	Put(ctx context.Context, name string, b []byte) error
	Get(ctx context.Context, name string) ([]byte, error)
	Delete(ctx context.Context, name string) error
}

// Archived is an item as its archive keeps it: what is known of it, and its record as the ledger held it. A sealed value stays sealed
// (Enc says under which key), so destroying a tenant's key reaches the archive as well.
type Archived struct {
	Form
	Record json.RawMessage `json:"record"`
	Enc    string          `json:"enc,omitempty"`
	// Original is the record as the source held it, when it stands in the vault: sealed as it is there.
	Original *ArchivedOriginal `json:"original,omitempty"`
}

// ArchivedOriginal is a sealed record of the vault.
type ArchivedOriginal struct {
	Enc    string `json:"enc"`
	Sealed []byte `json:"sealed"`
}

// archiveName is the object of one item: by day, so that a bucket can be listed.
func archiveName(it *Item) string {
	return "items/" + time.UnixMilli(it.QuarantinedMS).UTC().Format("2006/01/02") + "/" + string(it.ID) + ".json"
}

// archive writes items into the bucket before their payloads go. An object that is there already is written again with the same
// bytes: an expiry may be interrupted anywhere.
func (c *Items) archive(ctx context.Context, bucket Bucket, items []*Item) (rows [][]any, err error) {
	for _, it := range items {
		if it.Flags&FlagErased != 0 {
			continue
		}
		var b Bytes
		var original *ArchivedOriginal
		if err := c.db.Read(ctx, func(tx *ledger.Tx) (err error) {
			original = nil
			if it.Faithful == deadletter.Vault {
				switch s, err := readVault(tx, it); {
				case err == nil:
					original = &ArchivedOriginal{s.enc, s.sealed}
				case pipeline.CodeOf(err) != pipeline.CodePayloadMissing:
					return err
				}
			}
			b, err = c.sealed(tx, it)
			return err
		}); err != nil {
			return nil, err
		}
		rec := &pipeline.Record{Offset: it.Original.Offset, TimeMS: it.OriginalMS, TimeType: it.TimeType, Key: b.Key, Value: b.Value, Headers: b.Headers}
		text, err := json.Marshal(Archived{Form: it.Form(), Record: pipeline.AppendForm(nil, it.Original.TP, rec), Enc: it.Enc, Original: original})
		if err != nil {
			return nil, err
		}
		name := archiveName(it)
		if err := bucket.Put(ctx, name, text); err != nil {
			return nil, &pipeline.Error{Code: pipeline.CodeArchiveFailed, Place: name, Text: "the archive does not take the item: " + err.Error(), Cause: err}
		}
		rows = append(rows, []any{it.ID, it.Tenant, name, seal.SHA256(text), c.clock().UnixMilli()})
	}
	return rows, nil
}

// keepArchives notes where items were archived.
func keepArchives(tx *ledger.Tx, rows [][]any) error {
	for _, r := range rows {
		if _, err := tx.Exec(`INSERT INTO archives (item, tenant, object, digest, at_ms) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (item) DO UPDATE SET object = excluded.object, digest = excluded.digest, at_ms = excluded.at_ms`, r...); err != nil {
			return err
		}
	}
	return nil
}

// Unarchive deletes the archives of items that were erased; the ledger remembers those that could not be deleted. It returns how many
// are left. Codes: ERR_PERMISSION_DENIED, ERR_ARCHIVE_FAILED, ERR_LEDGER_*.
func (c *Items) Unarchive(ctx context.Context, who Actor, bucket Bucket) (left int64, err error) {
	if err := c.CheckWhole(ctx, who, PermRetention); err != nil {
		return 0, err
	}
	objects := map[string]string{}
	if err := c.db.Read(ctx, func(tx *ledger.Tx) error {
		clear(objects)
		return tx.Each("SELECT a.item, a.object FROM archives a JOIN items i ON i.id = a.item WHERE i.flags & ? <> 0", []any{int64(FlagErased)}, func(scan func(...any) error) error {
			var item, object string
			err := scan(&item, &object)
			objects[item] = object
			return err
		})
	}); err != nil {
		return 0, err
	}
	left = int64(len(objects))
	for item, object := range objects {
		if derr := bucket.Delete(ctx, object); derr != nil {
			err = &pipeline.Error{Code: pipeline.CodeArchiveFailed, Place: object, Text: "the archive of an erased item cannot be deleted: " + derr.Error(), Cause: derr}
			continue
		}
		if werr := c.db.Write(ctx, func(tx *ledger.Tx) error {
			_, err := tx.Exec("DELETE FROM archives WHERE item = ?", item)
			return err
		}); werr != nil {
			return left, werr
		}
		left--
	}
	return left, err
}

// ReadArchive returns an archived item, whose digest must be the one that was taken when it was written. Codes: ERR_PERMISSION_DENIED,
// ERR_TENANT_FORBIDDEN, ERR_REASON_MISSING, ERR_ITEM_UNKNOWN, ERR_PAYLOAD_MISSING (it was not archived), ERR_ARCHIVE_FAILED,
// ERR_LEDGER_CORRUPT (the object was changed).
func (c *Items) ReadArchive(ctx context.Context, who Actor, bucket Bucket, id pipeline.ID, reason string) ([]byte, error) {
	var object, digest string
	err := c.reveal(ctx, who, id, reason, "archive", func(tx *ledger.Tx, it *Item) error {
		found, err := tx.Row("SELECT object, digest FROM archives WHERE item = ?", []any{id}, &object, &digest)
		if err == nil && (!found || it.Flags&FlagErased != 0) {
			err = pipeline.Errorf(pipeline.CodePayloadMissing, string(id), "it has no archive")
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	b, err := bucket.Get(ctx, object)
	switch {
	case err != nil:
		return nil, &pipeline.Error{Code: pipeline.CodeArchiveFailed, Place: object, Text: "the archive cannot be read: " + err.Error(), Cause: err}
	case seal.SHA256(b) != digest:
		return nil, pipeline.Errorf(pipeline.CodeLedgerCorrupt, object, "the archived object was changed: its digest does not hold")
	}
	return b, nil
}
