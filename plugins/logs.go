package plugins

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"unicode"
)

// What is kept of a plugin's diagnostics.
const (
	logMost  = 1 << 20 // bytes read as lines; what comes later is counted and dropped
	lineMost = 4096    // bytes of a line that are looked at
	lineShow = 1024    // bytes of a line that are shown
	tailMost = 20      // lines kept to explain a crash

	floodMost = 64 << 20 // bytes after which the process is ended: reading them costs the host
)

// diary takes what a plugin writes: bounded, redacted, escaped (INV-PLUGIN-LOG).
type diary struct {
	log    *slog.Logger
	redact func(string) string
	flood  func() // ends who writes without end

	mu      sync.Mutex
	read    int64
	dropped int64
	lines   []string
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
	d.dropped += int64(n)
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
	if full {
		d.dropped += int64(len(b))
	}
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
	if len(d.lines) == tailMost {
		copy(d.lines, d.lines[1:])
		d.lines = d.lines[:tailMost-1]
	}
	d.lines = append(d.lines, text)
	d.mu.Unlock()
	d.log.Info("plugin says", "stream", stream, "text", text)
}

// clean redacts first and cuts after, so that no half of a number is left that nobody knows.
func (d *diary) clean(s string) string {
	s = strings.TrimRight(strings.ToValidUTF8(s[:min(len(s), lineMost)], "\uFFFD"), "\r\n")
	s = d.redact(s)
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '\uFFFD'
		}
		return r
	}, s)
	return strings.ToValidUTF8(s[:min(len(s), lineShow)], "")
}

// tail is the last lines, and how many bytes were dropped.
func (d *diary) tail() (lines []string, dropped int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.lines...), d.dropped
}

// last is the last line, for an error.
func (d *diary) last() string {
	lines, _ := d.tail()
	if len(lines) == 0 {
		return ""
	}
	return lines[len(lines)-1]
}
