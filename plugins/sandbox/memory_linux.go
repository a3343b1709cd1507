package sandbox

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"
)

// The memory limit of a process counts what it may write to. A page that was written and is then made read-only is counted no more,
// and it is still there. Where no control group counts pages, the host looks at them.
const (
	watchEvery = 20 * time.Millisecond
	watchRoom  = 32 << 20 // for what is not counted of an honest program: what its loader wrote, its stack, tables of pages
)

// watch ends the program when it holds more than so many bytes.
func (r *Running) watch(most int64) {
	status, err := os.Open("/proc/" + strconv.Itoa(r.PID) + "/status")
	if err != nil {
		return // it has ended
	}
	defer status.Close()
	t := time.NewTicker(watchEvery)
	defer t.Stop()
	text := make([]byte, 8<<10)
	for {
		select {
		case <-r.gone:
			return
		case <-t.C:
		}
		n, _ := status.ReadAt(text, 0) // the end of it is an error too
		if held := heldBytes(text[:n]); held > most {
			r.end(fmt.Sprintf("it has %d MiB of memory, and may have %d", held>>20, most>>20))
			return
		}
	}
}

// heldBytes are the bytes that a process has for itself, in memory or put aside, and the tables for them.
func heldBytes(status []byte) (n int64) {
	for line := range bytes.Lines(status) {
		name, rest, _ := bytes.Cut(line, []byte(":"))
		switch string(name) {
		case "RssAnon", "VmSwap", "VmPTE":
			kib, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(rest), []byte("kB")))), 10, 64)
			if err == nil {
				n += kib << 10
			}
		}
	}
	return n
}

// end kills the program for what it does, and keeps the reason for who asks how it ended.
func (r *Running) end(why string) {
	r.because(why)
	r.Kill()
}

// because keeps the first reason of an end.
func (r *Running) because(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.why == "" {
		r.why = why
	}
}
