package redrive

import (
	"bufio"
	"encoding/gob"
	"errors"
	"io"
	"os"

	"reprieve.dev/pipeline"
)

// spool keeps the lines of a plan in a temporary file until their manifest has its digest. They hold ids and digests, no payload; the
// file has no name that outlives its process.
type spool struct {
	file *os.File
	buf  *bufio.Writer
	enc  *gob.Encoder
}

func (s *spool) open() error {
	f, err := os.CreateTemp("", "reprieve-plan-")
	if err != nil {
		return spoolFault(err)
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return spoolFault(err)
	}
	s.file, s.buf = f, bufio.NewWriterSize(f, 1<<16)
	s.enc = gob.NewEncoder(s.buf)
	return nil
}

func (s *spool) close() { s.file.Close() }

func (s *spool) add(l *Line) error {
	if err := s.enc.Encode(l); err != nil {
		return spoolFault(err)
	}
	return nil
}

// each calls f with the lines in their order, at most n at a time; f must not keep them. It may be called again.
func (s *spool) each(n int, f func([]Line) error) error {
	if err := s.buf.Flush(); err != nil {
		return spoolFault(err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return spoolFault(err)
	}
	dec := gob.NewDecoder(bufio.NewReaderSize(s.file, 1<<16))
	list := make([]Line, 0, n)
	for {
		var l Line
		err := dec.Decode(&l)
		if err != nil && !errors.Is(err, io.EOF) {
			return spoolFault(err)
		}
		if err == nil {
			list = append(list, l)
		}
		if len(list) == n || err != nil && len(list) > 0 {
			if ferr := f(list); ferr != nil {
				return ferr
			}
			list = list[:0]
		}
		if err != nil {
			return nil
		}
	}
}

func spoolFault(err error) error {
	return pipeline.Errorf(pipeline.CodeInternal, os.TempDir(), "the lines of a plan could not be kept in a temporary file: %w", err).
		With("Free space there, or name another folder in TMPDIR.")
}
