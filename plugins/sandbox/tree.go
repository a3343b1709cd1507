package sandbox

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Tree is a packed root folder: what a program that is not static finds around it.
type Tree struct {
	Digest  pipeline.Digest `json:"-"` // of every name, mode, link and byte, however they are packed
	Run     string          `json:"run"`
	Bytes   int64           `json:"bytes"`
	Entries int64           `json:"entries"`
}

// Limits of a tree.
const (
	treeBytes   = 256 << 20
	treeEntries = 20_000
)

// TreeEntry is one name of a tree: a folder, a file or a symbolic link.
type TreeEntry struct {
	Path string // relative, clean
	Dir  bool
	Exec bool
	Link string // target; empty: no link
	Size int64
}

// mode is the entry's kind and permission as the digest has them.
func (e *TreeEntry) mode() string {
	switch {
	case e.Dir:
		return "dir"
	case e.Link != "":
		return "link"
	case e.Exec:
		return "exec"
	}
	return "file"
}

// ReadTree reads a whole tree and measures it. run is the program that is to be started in it, by its absolute path.
func ReadTree(r io.Reader, run string) (Tree, error) {
	t := Tree{Run: run}
	all := sha256.New()
	found := map[string]string{} // path -> link; "" is a program
	err := WalkTree(r, func(e TreeEntry, content io.Reader) error {
		sum := sha256.New()
		var head bytes.Buffer
		if content != nil {
			n, err := io.Copy(sum, io.TeeReader(content, &limited{&head, 64}))
			if err != nil {
				return err
			}
			t.Bytes += (n + 4095) &^ 4095
		}
		t.Entries++
		switch {
		case e.Link != "":
			found["/"+e.Path] = e.Link
		case e.Exec && bytes.HasPrefix(head.Bytes(), []byte(elf.ELFMAG)):
			found["/"+e.Path] = ""
		}
		all.Write(seal.LP([]byte(e.Path), []byte(e.mode()), []byte(e.Link), sum.Sum(nil)))
		return nil
	})
	if err != nil {
		return t, err
	}
	at := path.Clean(run)
	for range 8 {
		link, ok := found[at]
		if !ok {
			return t, fmt.Errorf("the packed root folder has no program %s", run)
		}
		if link == "" {
			t.Digest = pipeline.Digest("sha256:" + hex.EncodeToString(all.Sum(nil)))
			return t, nil
		}
		if !path.IsAbs(link) {
			link = path.Join(path.Dir(at), link)
		}
		at = path.Clean(link)
	}
	return t, fmt.Errorf("%s is a link that leads to no program", run)
}

// sparse tells whether an entry is a file with holes. Those of the older form are another kind of entry.
func sparse(h *tar.Header) bool {
	for name := range h.PAXRecords {
		if strings.HasPrefix(name, "GNU.sparse.") {
			return true
		}
	}
	return false
}

// limited keeps the first bytes that are written.
type limited struct {
	b    *bytes.Buffer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	if n := min(len(p), l.most-l.b.Len()); n > 0 {
		l.b.Write(p[:n])
	}
	return len(p), nil
}

// WalkTree calls each for every entry of a packed tree, in ascending order of their paths, with the content of files. What does
// not stand in one folder, in that order, once, is refused, and so is every other kind of entry.
func WalkTree(r io.Reader, each func(e TreeEntry, content io.Reader) error) error {
	tr := tar.NewReader(r)
	last, entries, total := "", 0, int64(0)
	for {
		h, err := tr.Next()
		if errors.Is(err, io.EOF) {
			if entries == 0 {
				return errors.New("the packed root folder is empty")
			}
			return nil
		}
		if err != nil {
			return fmt.Errorf("the packed root folder cannot be read: %w", err)
		}
		e := TreeEntry{Path: strings.TrimSuffix(h.Name, "/"), Size: h.Size}
		switch {
		case !fs.ValidPath(e.Path) || e.Path == ".":
			return fmt.Errorf("%q is no path in a root folder", h.Name)
		case e.Path <= last:
			return fmt.Errorf("%q is not in order", h.Name)
		case e.Path == socketDir[1:] || strings.HasPrefix(e.Path, socketDir[1:]+"/"):
			return fmt.Errorf("%q is the place of the socket", h.Name)
		}
		last = e.Path
		if entries++; entries > treeEntries {
			return fmt.Errorf("the packed root folder has more than %d entries", treeEntries)
		}
		var content io.Reader
		switch h.Typeflag {
		case tar.TypeDir:
			e.Dir = true
		case tar.TypeSymlink:
			if e.Link = h.Linkname; e.Link == "" || len(e.Link) > 1024 || strings.ContainsRune(e.Link, 0) {
				return fmt.Errorf("%q is a link to nowhere", h.Name)
			}
		case tar.TypeReg:
			if sparse(h) { // a few bytes of it would be many in memory
				return fmt.Errorf("%q has holes", h.Name)
			}
			e.Exec, content = h.Mode&0o111 != 0, tr
			if total += h.Size; total > treeBytes {
				return fmt.Errorf("the packed root folder has more than %d MiB", treeBytes>>20)
			}
		default:
			return fmt.Errorf("%q is neither a file, a folder nor a symbolic link", h.Name)
		}
		if err := each(e, content); err != nil {
			return err
		}
	}
}
