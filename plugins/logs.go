package plugins

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"reprieve.dev/pipeline"
)

// What is kept of a plugin's diagnostics.
const (
	logMost  = 1 << 20 // bytes read as lines; what comes later is dropped
	lineMost = 4096    // bytes of a line that are looked at
	lineShow = 1024    // bytes of a line that are shown

	floodMost = 64 << 20 // bytes after which the process is ended: reading them costs the host
)

// ownLine begins a line of go-plugin itself, which says nothing about the plugin.
const ownLine = `{"@level":"debug","@message":"plugin address"`

// diary takes what a plugin writes: bounded, redacted, escaped (INV-PLUGIN-LOG).
type diary struct {
	log    *slog.Logger
	redact func(string) string
	flood  func()     // ends who writes without end
	words  *allowance // of the version; nil: no limit

	mu     sync.Mutex
	read   int64
	newest string // line
	cause  string // the line that says why it ended, of a program in Go; what comes after it is where
}

// What all processes of a version together may write into the log: who ends and is started again says everything once more.
const (
	wordsMost   = 1 << 20 // bytes
	wordsWithin = time.Minute
)

// allowance is what of that is left. Safe for concurrent use.
type allowance struct {
	clock pipeline.Clock

	mu    sync.Mutex
	since time.Time
	used  int
}

// take tells whether n bytes are kept, and whether they are the first within the time that are not.
func (a *allowance) take(n int) (kept, first bool) {
	if a == nil {
		return true, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if now := a.clock(); now.Sub(a.since) >= wordsWithin {
		a.since, a.used = now, 0
	}
	was := a.used
	a.used += n
	return a.used <= wordsMost, was <= wordsMost
}

// drain reads r to its end as lines.
func (d *diary) drain(r io.Reader, stream string) {
	br := bufio.NewReaderSize(r, lineMost)
	more := false // the rest of a line whose start was taken
	for {
		chunk, err := br.ReadSlice('\n')
		if len(chunk) > 0 && !more {
			d.line(chunk, stream)
		} else {
			d.count(len(chunk))
		}
		more = errors.Is(err, bufio.ErrBufferFull)
		if err != nil && !more {
			return
		}
	}
}

func (d *diary) count(n int) {
	d.mu.Lock()
	d.read += int64(n)
	over := d.read > floodMost
	d.mu.Unlock()
	if over && d.flood != nil {
		d.flood()
	}
}

func (d *diary) line(b []byte, stream string) {
	d.mu.Lock()
	d.read += int64(len(b))
	full, over := d.read > logMost, d.read > floodMost
	d.mu.Unlock()
	if over && d.flood != nil {
		d.flood()
	}
	if full {
		return
	}
	text := d.clean(string(b))
	if text == "" {
		return
	}
	d.mu.Lock()
	if !strings.HasPrefix(text, ownLine) {
		d.newest = text
	}
	if d.cause == "" && (strings.HasPrefix(text, "panic: ") || strings.HasPrefix(text, "fatal error: ")) {
		d.cause = text
	}
	d.mu.Unlock()
	switch kept, first := d.words.take(len(text)); {
	case kept:
		d.log.Info("plugin says", "stream", stream, "text", text)
	case first:
		d.log.Warn("plugin says more than is kept", "most", wordsMost, "within", wordsWithin)
	}
}

// clean redacts first and cuts after, so that no half of a number is left that nobody knows.
func (d *diary) clean(s string) string {
	s = strings.TrimRight(strings.ToValidUTF8(s[:min(len(s), lineMost)], "\uFFFD"), "\r\n")
	s = d.redact(s)
	s = strings.Map(func(r rune) rune {
		if unshown(r) {
			return '\uFFFD'
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), lineShow)], "")
}

// last is the last line, or the one before it that says why, for an error.
func (d *diary) last() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cause != "" {
		return d.cause
	}
	return d.newest
}
