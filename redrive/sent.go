package redrive

import (
	"encoding/json"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
)

// noteSent writes where the items of a window stand now, on a server in one statement: thousands a second cannot afford a round trip
// each. An outcome that was faster than we are is kept.
func noteSent(tx *ledger.Tx, manifest pipeline.Digest, tenant string, list []custody.SentAt) error {
	if len(list) == 0 {
		return nil
	}
	if tx.Dialect() == ledger.SQLite { // no round trips to save, and its planner would read the manifest once for each position
		for _, x := range list {
			n, err := tx.Exec(sentUpdate+"sent_topic = ?, sent_partition = ?, sent_offset = ? WHERE manifest = ? AND tenant = ? AND item = ?",
				tx.NowMS(), x.At.Topic, x.At.Partition, x.At.Offset, manifest, tenant, x.Item)
			if err == nil && n != 1 {
				err = lost(manifest, 1, 1)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	type row struct {
		Item      pipeline.ID `json:"item"`
		Topic     string      `json:"topic"`
		Partition int32       `json:"part"`
		Offset    int64       `json:"off"`
	}
	rows := make([]row, len(list))
	for i, x := range list {
		rows[i] = row{x.Item, x.At.Topic, x.At.Partition, x.At.Offset}
	}
	text, err := json.Marshal(rows)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInternal, string(manifest), "positions have no JSON form: %w", err)
	}
	n, err := tx.Exec(sentUpdate+`sent_topic = s.topic, sent_partition = s.part, sent_offset = s.off
		FROM json_to_recordset(CAST(? AS json)) AS s(item text, topic text, part integer, off bigint)
		WHERE manifest_items.manifest = ? AND manifest_items.tenant = ? AND manifest_items.item = s.item`, tx.NowMS(), string(text), manifest, tenant)
	if err == nil && n != int64(len(list)) {
		err = lost(manifest, int64(len(list))-n, len(list))
	}
	return err
}

const sentUpdate = "UPDATE manifest_items SET state = CASE WHEN state = 'sending' THEN 'sent' ELSE state END, attempts = attempts + 1, sent_ms = ?, "

func lost(manifest pipeline.Digest, n int64, of int) error {
	return pipeline.Errorf(pipeline.CodeManifestDigest, string(manifest), "%d of %d items that were sent are not in it", n, of)
}
