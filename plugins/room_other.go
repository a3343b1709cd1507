//go:build !linux

package plugins

import "os"

// room is the folder in which a host keeps the socket folders of its plugins.
type room struct{ dir string }

func newRoom() (*room, error) {
	dir, err := os.MkdirTemp("", "reprieve-host-")
	return &room{dir}, err
}

func (r *room) close() { _ = os.RemoveAll(r.dir) }
