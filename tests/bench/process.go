package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// child is a process that is measured.
type child struct {
	cmd  *exec.Cmd
	log  string
	done chan error
}

func startChild(log string, cmd *exec.Cmd) (*child, error) {
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	cmd.Stdout, cmd.Stderr = f, f
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, log: log, done: make(chan error, 1)}
	go func() { c.done <- cmd.Wait() }()
	return c, nil
}

// ended is the error of a process that should still be running, or nil.
func (c *child) ended() error {
	select {
	case err := <-c.done:
		c.done <- err
		text, _ := os.ReadFile(c.log)
		if len(text) > 3000 {
			text = text[len(text)-3000:]
		}
		return fmt.Errorf("%s ended: %w\n%s", c.cmd.Path, errors.Join(err, errors.New("while it was measured")), text)
	default:
		return nil
	}
}

// gone is ended for a process that is known to be over.
func (c *child) gone() error {
	err := <-c.done
	c.done <- err
	return c.ended()
}

// stop asks the process to end and waits; what does not end is killed.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM) // it may be gone
	select {
	case <-c.done:
	case <-time.After(20 * time.Second):
		_ = c.cmd.Process.Kill()
		<-c.done
	}
}

// usage is what a process has used so far.
type usage struct {
	cpu  time.Duration // user and system, all threads
	peak int64         // bytes resident at most
}

// userHZ is the unit of the times in /proc/PID/stat on every Linux that Go runs on.
const userHZ = 100

func usageOf(pid int) (u usage, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:])) // the name may hold blanks
	if len(fields) < 13 {
		return u, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(fields))
	}
	for _, f := range fields[11:13] { // utime, stime
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			return u, err
		}
		u.cpu += time.Duration(n) * time.Second / userHZ
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u, err
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if f := strings.Fields(rest); len(f) > 1 {
		n, err := strconv.ParseInt(f[0], 10, 64)
		if err != nil {
			return u, err
		}
		u.peak = n << 10
	}
	return u, nil
}
