//go:build !linux

package sandbox

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
)

var errLinux = errors.New("plugins run on Linux only")

// Main is the shim; there is none here.
func Main() { os.Exit(125) }

// Seal is for Linux only.
func Seal([]byte) (*os.File, error) { return nil, refused(None, "start", errLinux) }

// Spawner starts programs on Linux.
type Spawner struct{}

// NewSpawner makes one that refuses.
func NewSpawner() *Spawner { return &Spawner{} }

// Close does nothing here.
func (*Spawner) Close() {}

// Running is a program on Linux.
type Running struct {
	Applied        Applied
	PID            int
	Stdout, Stderr io.ReadCloser
}

// Start refuses. Codes: ERR_PLUGIN_SANDBOX.
func (*Spawner) Start(context.Context, *os.File, Spec) (*Running, error) {
	return nil, refused(None, "start", errLinux)
}

// Probe refuses. Codes: ERR_PLUGIN_SANDBOX.
func (*Spawner) Probe(context.Context, Spec) (Applied, []Proof, error) {
	return Applied{}, nil, refused(None, "start", errLinux)
}

// Kill does nothing here.
func (*Running) Kill() {}

// Gone is never closed here.
func (*Running) Gone() <-chan struct{} { return nil }

// Exit says nothing here.
func (*Running) Exit() string { return "" }

// Peak is not known here.
func (*Running) Peak() string { return "" }

// Close does nothing here.
func (*Running) Close() {}

// Dir is the folder itself.
func (*Running) Dir(hostDir string) string { return hostDir }

// Dial refuses.
func (*Running) Dial(context.Context, string) (net.Conn, error) { return nil, errLinux }
