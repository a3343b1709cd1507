package codec

import (
	"encoding/binary"
	"encoding/hex"

	"reprieve.dev/pipeline"
)

// The framings: how a value says which schema it was written with.
const (
	FramingConfluent = "confluent"     // a schema id header if there is one, else the prefix; the default with a registry
	FramingPrefix    = "prefix"        // 0 and a 4-byte id, or 1 and a 16-byte GUID, before the value
	FramingHeader    = "header"        // the same bytes in the header __value_schema_id or __key_schema_id
	FramingSingle    = "single_object" // Avro's own: c3 01 and the fingerprint of the schema
	FramingNone      = "none"          // the bare value; the default of json and raw
)

// Header names of the schema id framing.
const (
	HeaderValueSchema = "__value_schema_id"
	HeaderKeySchema   = "__key_schema_id"
)

// schemaID is what a frame says: exactly one of them is set.
type schemaID struct {
	id     int32
	guid   [16]byte
	isGUID bool
}

func frameFailure(what string, at int) *pipeline.Failure {
	return &pipeline.Failure{Code: pipeline.CodeDecodeFraming, Params: []pipeline.Param{pipeline.Str("what", what), pipeline.Int("at", at)}}
}

// parsePrefix reads magic byte and id or GUID at the start of b and returns their length.
func parsePrefix(b []byte) (s schemaID, n int, f *pipeline.Failure) {
	if len(b) == 0 {
		return s, 0, frameFailure("no bytes", 0)
	}
	switch b[0] {
	case 0:
		if len(b) < 5 {
			return s, 0, frameFailure("shorter than 5 bytes", len(b))
		}
		s.id = int32(binary.BigEndian.Uint32(b[1:]))
		if s.id < 0 {
			return s, 0, frameFailure("negative schema id", 1)
		}
		return s, 5, nil
	case 1:
		if len(b) < 17 {
			return s, 0, frameFailure("shorter than 17 bytes", len(b))
		}
		s.isGUID = true
		copy(s.guid[:], b[1:17])
		return s, 17, nil
	}
	return s, 0, frameFailure("magic byte", 0)
}

func guidText(g [16]byte) string {
	var b [36]byte
	return string(appendUUID(b[:0], g[:]))
}

// Frame puts magic byte and id before an encoded body.
func Frame(id int32, body []byte) []byte {
	out := make([]byte, 5, 5+len(body))
	binary.BigEndian.PutUint32(out[1:], uint32(id))
	return append(out, body...)
}

// parseGUID reads the text form; the dashes may be missing.
func parseGUID(text string) (g [16]byte, ok bool) {
	var b []byte
	for i := range len(text) {
		if text[i] != '-' {
			b = append(b, text[i])
		}
	}
	if len(b) != 32 {
		return g, false
	}
	_, err := hex.Decode(g[:], b)
	return g, err == nil
}
