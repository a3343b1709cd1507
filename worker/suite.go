package worker

import (
	"path/filepath"
	"strings"
)

// IsSuite tells whether a file holds tests of a pipeline rather than a pipeline.
func IsSuite(file string) bool {
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(file), ".yaml"), ".yml")
	return strings.HasSuffix(name, "_test") && name != filepath.Base(file)
}
