package codec

import "reprieve.dev/pipeline"

type protoView struct{ rawView }

func (s *Schema) parseProto() error { return nil }

func (v *protoView) bind(s *Scratch, p *program, cfg DecodeConfig, src []byte, head int) *pipeline.Failure {
	v.src = src
	return nil
}
