package plugins

import (
	"os"
	"path/filepath"
	"testing"
)

func TestARoomThatNobodyHoldsIsRemovedAndOthersStay(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	held, err := newRoom()
	if err != nil {
		t.Fatal(err)
	}
	left, err := newRoom()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(left.dir, "plugin-dir1"), 0o700); err != nil {
		t.Fatal(err)
	}
	left.held.Close() // as the kernel does when a host is killed
	elsewhere := t.TempDir()
	link := filepath.Join(os.TempDir(), roomName+"link")
	if err := os.Symlink(elsewhere, link); err != nil {
		t.Fatal(err)
	}
	next, err := newRoom()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left.dir); !os.IsNotExist(err) {
		t.Error("it is left:", err)
	}
	for _, dir := range []string{held.dir, next.dir, elsewhere} {
		if _, err := os.Stat(dir); err != nil {
			t.Error("it is gone:", err)
		}
	}
	held.close()
	next.close()
	if found, err := filepath.Glob(filepath.Join(os.TempDir(), roomName+"*")); err != nil || len(found) != 1 || found[0] != link {
		t.Error(found, err)
	}
}
