//go:build linux && !amd64

package sandbox

import (
	"errors"
	"io"
)

type edit struct {
	at   int64
	text []byte
}

func clockless(io.ReaderAt, int64) ([]edit, error) {
	return nil, errors.New("a program can be started elsewhere on x86-64 only")
}
