package sandbox

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// unpack fills the new root folder from the sealed tree and puts its program into the place of the artifact: what is executed is
// a file of the tree that was verified.
func (s *shim) unpack() error {
	packed := os.NewFile(fdArtifact, "tree")
	st, err := packed.Stat()
	if err != nil {
		return err
	}
	// The file is shared with other starts: its position belongs to nobody.
	err = WalkTree(io.NewSectionReader(packed, 0, st.Size()), func(e TreeEntry, content io.Reader) error {
		to := "/" + e.Path
		switch {
		case e.Dir:
			return os.Mkdir(to, 0o755)
		case e.Link != "":
			return os.Symlink(e.Link, to)
		}
		mode := os.FileMode(0o444)
		if e.Exec {
			mode = 0o555
		}
		f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
		if err != nil {
			return err
		}
		if _, err := io.Copy(f, content); err != nil {
			f.Close()
			return err
		}
		return f.Close()
	})
	if err != nil {
		return err
	}
	program, err := os.Open(s.order.Tree.Run)
	if err != nil {
		return err
	}
	if s.loader, err = interpreter(program); err != nil {
		return err
	}
	if s.order.Elsewhere != nil {
		s.step = elsewhere
		if err := s.withoutClock(); err != nil {
			return err
		}
	}
	if err := unix.Dup3(int(program.Fd()), fdArtifact, unix.O_CLOEXEC); err != nil {
		return err
	}
	return program.Close()
}

// withoutClock changes what runs first in the root folder so that it has to ask for the time: the loader, or a program without one.
func (s *shim) withoutClock() error {
	file := s.order.Tree.Run
	if len(s.loader) > 0 {
		file = s.loader[0]
	}
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close() // nobody may write to what is executed
	st, err := f.Stat()
	if err != nil {
		return err
	}
	edits, err := clockless(f, st.Size())
	if err != nil {
		return err
	}
	return apply(f, edits)
}

// interpreter is the loader that a dynamic program names.
func interpreter(program io.ReaderAt) ([]string, error) {
	f, err := elf.NewFile(program)
	if err != nil {
		return nil, err
	}
	for _, p := range f.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
		if err != nil {
			return nil, err
		}
		loader := strings.TrimRight(string(name), "\x00")
		if _, err := os.Stat(loader); err != nil {
			return nil, fmt.Errorf("the loader of the program is not packed: %w", err)
		}
		return []string{loader}, nil
	}
	return nil, nil
}
