package transforms

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// encodeAvro writes JSON text under a schema, framed.
func encodeAvro(s *codec.Schema, _ []byte) ([]byte, error) {
	return nil, pipeline.Errorf(pipeline.CodeNotYet, s.Ref().String(), "records cannot be encoded yet")
}
