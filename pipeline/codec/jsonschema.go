package codec

import (
	"strings"

	"reprieve.dev/pipeline"
)

func validUTF8(b []byte) string { return strings.ToValidUTF8(string(b), "\uFFFD") }

func (s *Schema) tagsAt(path string) []string {
	if s == nil {
		return nil
	}
	return s.tags[path]
}

func (s *Schema) parseJSONSchema() error { return nil }

func (s *Schema) validateJSON(b []byte) *pipeline.Failure { return nil }
