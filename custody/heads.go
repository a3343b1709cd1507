package custody

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// SignedHead is the end of the history at some time, signed: kept in the ledger and on the audit topic.
type SignedHead struct {
	Seq   int64
	Hash  []byte
	AtMS  int64
	KeyID string
	MAC   []byte
}

func (h *SignedHead) message() []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(h.Seq))
	binary.BigEndian.PutUint64(b[8:], uint64(h.AtMS))
	return seal.LP([]byte("reprieve head 1"), b[:], h.Hash)
}

// headJSON is the value of a message on the audit topic.
type headJSON struct {
	V    int    `json:"v"`
	Seq  string `json:"seq"`
	Hash string `json:"hash"`
	At   string `json:"at"`
	KID  string `json:"kid"`
	Sig  string `json:"sig"`
}

// ParseHead reads a message of the audit topic; its signature is checked by Verify. Codes: ERR_INPUT_INVALID.
func ParseHead(value []byte) (SignedHead, error) {
	var j headJSON
	var h SignedHead
	bad := pipeline.Errorf(pipeline.CodeInputInvalid, "audit", "the message is not a signed head")
	if json.Unmarshal(value, &j) != nil || j.V != 1 {
		return h, bad
	}
	at, err := time.Parse(time.RFC3339Nano, j.At)
	if _, err2 := fmt.Sscan(j.Seq, &h.Seq); err != nil || err2 != nil {
		return h, bad
	}
	var err2 error
	if h.Hash, err = hex.DecodeString(j.Hash); err != nil {
		return h, bad
	}
	if h.MAC, err2 = hex.DecodeString(j.Sig); err2 != nil {
		return h, bad
	}
	h.AtMS, h.KeyID = at.UnixMilli(), j.KID
	return h, nil
}

// Heads are signed after so many rows, or so long after the last one.
const (
	headRows = 1000
	headMS   = 60_000
)

// SignHead signs the head of the history when it is due and hands it to the outbox for the audit topic: cutting or
// rewriting the history then shows. False: nothing was due, or there is no key. Codes: ERR_LEDGER_*.
func (c *Items) SignHead(ctx context.Context, topic string) (bool, error) {
	if c.ring == nil {
		return false, nil
	}
	signed := false
	err := c.db.Write(ctx, func(tx *ledger.Tx) error {
		signed = false
		var h SignedHead
		var last, lastMS int64
		if _, err := tx.Row("SELECT seq, hash, signed_seq, signed_ms FROM history_head WHERE id = 1"+tx.ForUpdate(), nil, &h.Seq, &h.Hash, &last, &lastMS); err != nil {
			return err
		}
		if h.Seq == last || h.Seq-last < headRows && tx.NowMS()-lastMS < headMS {
			return nil
		}
		h.AtMS = tx.NowMS()
		h.KeyID, h.MAC = c.ring.Sign(h.message())
		if err := tx.Insert("signed_heads", []string{"seq", "hash", "at_ms", "kid", "mac"}, [][]any{{h.Seq, h.Hash, h.AtMS, h.KeyID, h.MAC}}); err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE history_head SET signed_seq = ?, signed_ms = ? WHERE id = 1", h.Seq, h.AtMS); err != nil {
			return err
		}
		value, err := json.Marshal(headJSON{1, fmt.Sprint(h.Seq), hex.EncodeToString(h.Hash), time.UnixMilli(h.AtMS).UTC().Format("2006-01-02T15:04:05.000Z"), h.KeyID, hex.EncodeToString(h.MAC)})
		if err != nil {
			return err
		}
		signed = true
		return Publish(tx, topic, "", []byte("head"), value, nil)
	})
	return signed, err
}
