package deadletter

import (
	"strconv"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// AppendTrail makes m a retry or redrive message: the bytes that are in it already, and the record's signed past. Key, Value
// and Headers are set before, the source's own, headers through PassHeaders (names of ours that are left are renamed); so
// is Topic, because the signature covers it. m.Headers must be the message's own slice: it is appended to. t.Attempt and
// t.Attempts already count the failure f; f is nil in a redrive. notBefore is Unix ms, 0 is at once. With s nil nothing is
// signed (try). Cost: two allocations and one HMAC over the headers.
func AppendTrail(m *pipeline.Message, t *pipeline.Trail, id pipeline.Identity, f *pipeline.Failure, notBefore int64, s *seal.Ring) error {
	if !Passes(m.Headers) {
		m.Headers = PassHeaders(make([]pipeline.Header, 0, len(m.Headers)+24), m.Headers, false)
	}
	w := writer{hs: m.Headers, buf: make([]byte, 0, 1024)}
	w.always(HeaderTopic, t.Original.Topic)
	w.number(HeaderPartition, int64(t.Original.Partition))
	w.number(HeaderOffset, t.Original.Offset)
	w.number(HeaderAttemptCount, int64(t.Attempt))
	w.always(headerV, "1")
	w.text(headerItem, string(t.Item))
	w.identity(&id)
	if f != nil {
		w.text(headerClass, pipeline.Lookup(f.Code).Class.String())
		w.text(headerCode, string(f.Code))
		w.text(headerStage, f.Stage)
	}
	w.attempts(t.Attempts)
	w.original(t.OriginalMS, t.TimeType)
	if t.Generation > 0 {
		w.number(headerGeneration, int64(t.Generation))
	}
	w.text(headerRedrive, string(t.Redrive))
	if t.Try > 0 {
		w.number(headerTry, int64(t.Try))
	}
	w.position(headerAt, t.At)
	if notBefore != 0 {
		w.number(headerNotBefore, notBefore)
	}
	m.Headers = w.hs
	sign(m, s)
	return nil
}

// ParseTrail reads the past of a record of a retry topic, and who it says it is. Without a valid signature, or with one over
// something that is no trail (a letter that was moved here), nothing is believed: ERR_LINEAGE_UNVERIFIED, and the caller
// quarantines the record with an attempt of 0. The result borrows nothing from r.
func ParseTrail(topic string, r *pipeline.Record, v *seal.Ring) (*pipeline.Trail, pipeline.Identity, error) {
	if !verify(topic, r, v) {
		return nil, pipeline.Identity{}, trailError(topic, r, "it has no valid signature")
	}
	f := fields{hs: r.Headers}
	if !equalText(r.Headers, headerV, "1") {
		return nil, pipeline.Identity{}, trailError(topic, r, "its version is unknown")
	}
	if _, letter := find(r.Headers, headerKind); letter {
		return nil, pipeline.Identity{}, trailError(topic, r, "it is a letter, not a retry")
	}
	t := &pipeline.Trail{
		Attempt:    uint8(f.count(HeaderAttemptCount, 1<<8-1)),
		Attempts:   f.attempts(),
		NotBefore:  f.count(headerNotBefore, 1<<62),
		Item:       pipeline.ID(f.text(headerItem)),
		Redrive:    pipeline.Digest(f.text(headerRedrive)),
		Try:        uint16(f.count(headerTry, 1<<16-1)),
		Generation: uint32(f.count(headerGeneration, 1<<32-1)),
		Original:   f.origin(),
	}
	t.OriginalMS, t.TimeType = f.original()
	if _, ok := find(r.Headers, headerAt); ok {
		t.At = f.position(headerAt)
	}
	id := f.identity()
	if f.bad != "" {
		return nil, pipeline.Identity{}, trailError(topic, r, "its header %s cannot be read", f.bad)
	}
	return t, id, nil
}

func trailError(topic string, r *pipeline.Record, format string, args ...any) error {
	place := topic + " offset " + strconv.FormatInt(r.Offset, 10)
	return pipeline.Errorf(pipeline.CodeLineage, place, "the record's past is not believed: "+format, args...)
}
