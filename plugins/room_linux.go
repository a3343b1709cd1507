package plugins

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// room is the folder in which a host keeps the socket folders of its plugins. The host holds a lock on it for as long as it lives, so
// that a later one knows which rooms a host left behind that was killed, and removes them.
type room struct {
	dir  string
	held *os.File
}

// roomName is how a room's name begins; the user follows, since a host can only remove its own.
var roomName = "reprieve-host-" + strconv.Itoa(os.Getuid()) + "-"

// newRoom makes the room of a host, and removes those that nobody holds.
func newRoom() (*room, error) {
	sweepRooms()
	for {
		dir, err := os.MkdirTemp("", roomName)
		if err != nil {
			return nil, err
		}
		held, err := hold(dir)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.EWOULDBLOCK) {
			continue // another host swept it before it was held
		}
		if err == nil {
			err = os.Chmod(dir, 0o711) // a plugin of another user finds its folder in it, and nobody lists it
		}
		if err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
		return &room{dir, held}, nil
	}
}

// hold takes the lock of a room, unless somebody has it or it is gone.
func hold(dir string) (_ *os.File, err error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, os.NewSyscallError("flock", err)
	}
	there, err := os.Lstat(dir) // it may have been removed between the two
	if err != nil {
		return nil, err
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !os.SameFile(there, mine) {
		return nil, os.ErrNotExist
	}
	return f, nil
}

// sweepRooms removes the rooms of this user that no living host holds.
func sweepRooms() {
	left, err := filepath.Glob(filepath.Join(os.TempDir(), roomName+"*"))
	if err != nil {
		return
	}
	for _, dir := range left {
		st, err := os.Lstat(dir)
		if err != nil {
			continue
		}
		if owner, ok := st.Sys().(*syscall.Stat_t); !ok || !st.IsDir() || int(owner.Uid) != os.Getuid() {
			continue
		}
		if f, err := hold(dir); err == nil {
			_ = os.RemoveAll(dir) // what cannot be removed is tried again by the next host
			f.Close()
		}
	}
}

// close removes the room.
func (r *room) close() {
	_ = os.RemoveAll(r.dir) // a folder of the system's temporary folder
	r.held.Close()
}
