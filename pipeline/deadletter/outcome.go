package deadletter

import (
	"encoding/base64"
	"encoding/json"
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Writer is a system registered in the worker file (keys.writers) that may say what became of redriven records of one
// consumer.
type Writer struct {
	Consumer string // the only pipeline's consumer that it may speak about
	Key      *seal.Verifier
}

// outcomeJSON is the value on the outcomes topic (CONTRACTS 5). The signature is over the canonical JSON of everything but
// sig, members that this version does not know included: HMAC of a key of the ring, or Ed25519 of a registered writer whose
// id is kid.
type outcomeJSON struct {
	V         int    `json:"v"`
	Kind      string `json:"kind,omitempty"` // "outcome" or nothing: a signature for one thing is never one for another
	Pipeline  string `json:"pipeline"`
	Item      string `json:"quarantine_id"`
	Redrive   string `json:"redrive_id"`
	Try       uint16 `json:"try"`
	Outcome   string `json:"outcome"`
	EffectRef string `json:"effect_ref,omitempty"`
	At        string `json:"at"`                 // Unix ms
	Position  string `json:"position,omitempty"` // where the record stood when this was seen
	Code      string `json:"code,omitempty"`
	Writer    string `json:"writer"`
	KID       string `json:"kid"`
	Sig       string `json:"sig,omitempty"`
}

// ParseResult reads a result; only the eight of CONTRACTS 5.
func ParseResult(s string) (pipeline.Result, bool) {
	switch r := pipeline.Result(s); r {
	case pipeline.Forwarded, pipeline.Applied, pipeline.AlreadyApplied, pipeline.Absent, pipeline.Superseded, pipeline.Corrected,
		pipeline.FailedOutcome, pipeline.UnknownOutcome:
		return r, true
	}
	return "", false
}

// AppendOutcome makes m the outcome o, signed by the ring; m.Topic is set before. Its key is the item. Codes:
// ERR_INPUT_INVALID (a text that has no canonical form).
func AppendOutcome(m *pipeline.Message, o *pipeline.Outcome, ring *seal.Ring) error {
	kid := ""
	if ring != nil {
		kid = ring.KeyIDs()[0]
	}
	return appendOutcome(m, o, kid, func(msg []byte) []byte {
		if ring == nil {
			return nil
		}
		_, mac := ring.Sign(msg)
		return mac
	})
}

// AppendOutcomeBy makes m the outcome o, signed by a registered writer's own key.
func AppendOutcomeBy(m *pipeline.Message, o *pipeline.Outcome, writerID string, key *seal.Signer) error {
	return appendOutcome(m, o, writerID, key.Sign)
}

func appendOutcome(m *pipeline.Message, o *pipeline.Outcome, kid string, sign func([]byte) []byte) error {
	v := outcomeJSON{V: 1, Kind: "outcome", Pipeline: o.Pipeline, Item: string(o.Item), Redrive: string(o.Redrive), Try: o.Try, Outcome: string(o.Result),
		EffectRef: o.EffectRef, At: strconv.FormatInt(o.AtMS, 10), Code: string(o.Code), Writer: o.Writer, KID: kid}
	if o.At.Topic != "" {
		v.Position = o.At.String()
	}
	text, err := seal.Canonical(v)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInputInvalid, string(o.Item), "the outcome has no canonical form: %w", err)
	}
	v.Sig = base64.RawURLEncoding.EncodeToString(sign(text))
	if text, err = seal.Canonical(v); err != nil {
		return pipeline.Errorf(pipeline.CodeInputInvalid, string(o.Item), "the outcome has no canonical form: %w", err)
	}
	m.Key, m.Value, m.Headers = []byte(o.Item), text, OutcomeHeaders()
	return nil
}

// OutcomeHeaders are the headers of a message on the outcomes topic.
func OutcomeHeaders() []pipeline.Header {
	return []pipeline.Header{{Name: headerV, Value: []byte("1")}}
}

// ParseOutcome reads an outcome that a worker of ours signed. Codes: ERR_SIGNATURE_INVALID, ERR_LETTER_INVALID.
func ParseOutcome(rec *pipeline.Record, ring *seal.Ring) (pipeline.Outcome, error) {
	o, _, err := ParseOutcomeBy(rec, ring, nil)
	return o, err
}

// ParseOutcomeBy also takes outcomes of registered writers (id -> writer) and returns which consumer a writer may speak about; ""
// with a worker's own, which may speak about all. The caller compares it with the item's. A writer never says forwarded:
// that is the engine's. Codes: ERR_SIGNATURE_INVALID, ERR_LETTER_INVALID (signed, but not an outcome).
func ParseOutcomeBy(rec *pipeline.Record, ring *seal.Ring, writers map[string]Writer) (o pipeline.Outcome, consumer string, err error) {
	place := "outcome at offset " + strconv.FormatInt(rec.Offset, 10)
	v, text, ok := readOutcome(rec.Value)
	if !ok {
		return o, "", pipeline.Errorf(pipeline.CodeSignatureInvalid, place, "it is no outcome of version 1")
	}
	sig, sigErr := base64.RawURLEncoding.Strict().DecodeString(v.Sig)
	w, registered := writers[v.KID]
	switch {
	case sigErr != nil:
		return o, "", pipeline.Errorf(pipeline.CodeSignatureInvalid, place, "an outcome has no valid signature")
	case registered && w.Key.Verify(text, sig):
		consumer = w.Consumer
	case !registered && ring != nil && ring.Verify(v.KID, text, sig):
	default:
		return o, "", pipeline.Errorf(pipeline.CodeSignatureInvalid, place, "an outcome has no valid signature")
	}
	result, known := ParseResult(v.Outcome)
	at, isTime := parseDecimal([]byte(v.At))
	if !known || !isTime || v.Item == "" || registered && result == pipeline.Forwarded {
		return o, "", pipeline.Errorf(pipeline.CodeLetterInvalid, place, "a signed outcome is not readable")
	}
	o = pipeline.Outcome{Pipeline: v.Pipeline, Item: pipeline.ID(v.Item), Redrive: pipeline.Digest(v.Redrive), Try: v.Try, AtMS: at,
		Result: result, EffectRef: v.EffectRef, Writer: v.Writer, Code: pipeline.Code(v.Code)}
	if v.Position != "" {
		if o.At, ok = ParsePosition(v.Position); !ok {
			return pipeline.Outcome{}, "", pipeline.Errorf(pipeline.CodeLetterInvalid, place, "a signed outcome is not readable")
		}
	}
	if registered {
		o.Writer = v.KID // who signed, not who it says it is
	}
	return o, consumer, nil
}

// readOutcome returns the value and what its signature is over. A member that stands twice is refused: readers disagree
// which one counts.
func readOutcome(value []byte) (v outcomeJSON, signed []byte, ok bool) {
	if len(value) > 64<<10 {
		return v, nil, false
	}
	canonical, err := seal.CanonicalBytes(value)
	var members map[string]json.RawMessage
	if err != nil || json.Unmarshal(canonical, &v) != nil || json.Unmarshal(canonical, &members) != nil {
		return v, nil, false
	}
	delete(members, "sig")
	signed, err = seal.Canonical(members)
	return v, signed, err == nil && v.V == 1 && (v.Kind == "" || v.Kind == "outcome")
}
