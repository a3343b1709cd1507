package redrive

import (
	"context"
	"time"

	"reprieve.dev/pipeline/control"
)

// unheard is how long a board may be silent before that counts as a halt.
const unheard = 10 * time.Second

// ControlBoard is the control topic as a Board.
type ControlBoard struct {
	Board  *control.Board
	By     control.Signer // the worker's key: any keyed writer may halt
	Writer string         // its name
}

// Halted implements Board (INV-HALT): cold or silent for 10 s is halted.
func (b ControlBoard) Halted(pipeline string) (string, bool) {
	snap, err := b.Board.Snapshot()
	if err != nil {
		return "the control topic has not been read: whether a halt stands is unknown", true
	}
	if s := b.Board.Stale(); s > unheard {
		return "the control topic has been silent for " + s.Round(time.Second).String() + ": whether a halt stands is unknown", true
	}
	if e, ok := snap.Halted(pipeline); ok {
		return e.By + " halted redrives: " + e.HaltState().Reason, true
	}
	return "", false
}

// Halt implements Board.
func (b ControlBoard) Halt(ctx context.Context, pipeline, _, why string) error {
	return b.Board.Halt(ctx, b.By, b.Writer, pipeline, why)
}
