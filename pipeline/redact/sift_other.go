//go:build !amd64

package redact

import "reprieve.dev/pipeline"

// sift has no quick way on this machine: texts are read one by one.
func sift([]byte, *pipeline.Sieve) bool { return false }
