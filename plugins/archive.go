package plugins

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
)

// reading opens a tar or tar.gz.
func reading(archive []byte) (*tar.Reader, error) {
	var r io.Reader = bytes.NewReader(archive)
	if isGzip(archive) {
		z, err := gzip.NewReader(r)
		if err != nil {
			return nil, fmt.Errorf("it cannot be unpacked: %w", err)
		}
		r = io.LimitReader(z, 2*archiveMost) // headers and padding beside the files
	}
	return tar.NewReader(r), nil
}

// archived tells whether an archive holds a file of that name at its top. What cannot be read holds nothing.
func archived(archive []byte, name string) bool {
	tr, err := reading(archive)
	for err == nil {
		var h *tar.Header
		if h, err = tr.Next(); err == nil && h.Typeflag == tar.TypeReg && path.Clean(h.Name) == name {
			return true
		}
	}
	return false
}

// unpackArchive unpacks a tar or tar.gz below to. Only files and folders, each once, none outside, and not too much.
func unpackArchive(archive []byte, to string) error {
	tr, err := reading(archive)
	if err != nil {
		return err
	}
	room := int64(archiveMost)
	files := 0
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("it cannot be unpacked: %w", err)
		}
		switch h.Typeflag {
		case tar.TypeDir, tar.TypeXGlobalHeader:
			continue
		case tar.TypeReg:
		default:
			return fmt.Errorf("%q is neither a file nor a folder", h.Name)
		}
		if files++; files > 10_000 {
			return errors.New("it has more than 10,000 files")
		}
		if room -= h.Size; room < 0 {
			return fmt.Errorf("it has more than %d MiB, unpacked", archiveMost>>20)
		}
		if err := writeFile(to, h.Name, tr, h.Mode&0o111 != 0); err != nil {
			return err
		}
	}
	if files == 0 {
		return errors.New("it is empty")
	}
	return nil
}
