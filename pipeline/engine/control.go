package engine

import (
	"context"
	"time"

	"reprieve.dev/pipeline"
)

// Control is what must be known before a partition is read: policy versions in force. control.Board has it.
type Control interface {
	// Covers tells whether everything that stood on the control topic at a moment (Unix ms) is known.
	Covers(ms int64) bool
}

const (
	controlPoll = 20 * time.Millisecond // between two questions before the first poll
	controlLate = 5 * time.Second       // after which waiting is told
)

// openControl waits before anything is read until the control topic was read to its end: cold and unreadable, nothing is
// polled. False when ctx ended first.
func (e *Engine) openControl(ctx context.Context) bool {
	if e.o.Control == nil {
		return true
	}
	since := e.o.Clock()
	told := false
	for !e.o.Control.Covers(since.UnixMilli()) {
		if !told && e.o.Clock().Sub(since) > controlLate {
			told = true
			e.controlAlert("the control topic has not been read; nothing is polled", "")
		}
		t := time.NewTimer(controlPoll)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return false
		}
	}
	return true
}

// awaitControl keeps a new partition from being read until everything is known that stood on the control topic when it became
// ours: its last owner may have known more than we do.
func (e *Engine) awaitControl(p *part) {
	if e.o.Control == nil {
		return
	}
	p.since = e.o.Clock()
	// the moment itself may be one in which the end was asked for before the assignment: the next one is not
	if !e.o.Control.Covers(p.since.UnixMilli() + 1) {
		e.pause(p, pauseControl)
	}
}

// tickControl lets new partitions be read once enough is known. Partitions that are read already go on with what is known.
func (e *Engine) tickControl(now time.Time) {
	freed := false
	for _, p := range e.order {
		if p.paused&pauseControl == 0 {
			continue
		}
		if e.o.Control.Covers(p.since.UnixMilli() + 1) {
			e.resume(p, pauseControl)
			freed = freed || p.late
			p.late = false
		} else if !p.late && now.Sub(p.since) > controlLate {
			p.late = true
			e.controlAlert("a new partition is not read: the control topic cannot be read to its end", p.tp.String())
		}
	}
	if freed {
		e.recovered()
	}
}

func (e *Engine) controlAlert(text, place string) {
	e.o.Log.Error(text, "pipeline", e.o.Pipeline, "code", pipeline.CodeControlNotReady, "at", place,
		"remedy", pipeline.Lookup(pipeline.CodeControlNotReady).Remedy)
	e.setHealth(false, pipeline.CodeControlNotReady, place)
}
