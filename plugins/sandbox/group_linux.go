package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A control group counts what limits of a process do not: page tables, pipes, files in memory, and whatever else the kernel keeps for
// it. Where version 2 is delegated to this process, every program gets a group of its own, with limits of memory and of processes. They
// come on top of the limits of the process, which hold everywhere; where there is none the report says so.

// controls are where groups can be made.
type controls struct {
	dir string // a delegated group without processes; empty: there is none
	why string // there is none
}

// setting is one file of a group.
type setting struct {
	file, value string
	must        bool // without it the group is no limit
}

// Room for what is not the program's own memory and threads: its text, stacks, the kernel's tables, and the shim before it.
const (
	groupRoom    = 64 << 20
	groupThreads = 16
)

// settings are the limits of a start.
func settings(s *Spec) []setting {
	l := s.Limits.Filled()
	memory := l.Memory + groupRoom
	if s.Tree != nil {
		memory += s.Tree.Bytes + 64*s.Tree.Entries // its root folder is memory of the group
	}
	return []setting{{"memory.max", strconv.FormatInt(memory, 10), true}, {"pids.max", strconv.Itoa(l.Processes + groupThreads), true},
		{"memory.swap.max", "0", false}, {"memory.oom.group", "1", false}}
}

// applied are settings as reports show them.
func applied(ss []setting) (out []string) {
	for _, s := range ss {
		if s.must {
			out = append(out, "cgroup_"+strings.ReplaceAll(s.file, ".", "_")+"="+s.value)
		}
	}
	return out
}

const groupName = "reprieve-plugin-"

// findControls looks for a place: the group of this process, if it may have groups below it (only the topmost has processes as well),
// or the one above it, if that was delegated, as systemd does with Delegate= and DelegateSubgroup=.
func findControls() controls {
	own, err1 := os.ReadFile("/proc/self/cgroup")
	mounts, err2 := os.ReadFile("/proc/self/mountinfo")
	if err := errors.Join(err1, err2); err != nil {
		return controls{why: err.Error()}
	}
	at, top, why := ownGroup(string(own), string(mounts))
	if why != "" {
		return controls{why: why}
	}
	c := controls{}
	for _, dir := range []string{at, filepath.Dir(at)} {
		if dir != at && (at == top || !delegated(dir)) {
			break
		}
		if why := usable(dir); why != "" {
			if c.why == "" {
				c.why = why
			}
			continue
		}
		c = controls{dir: dir}
		c.sweep()
		return c
	}
	return c
}

// ownGroup is the folder of this process's group and the topmost one that is seen, or why there is none.
func ownGroup(own, mounts string) (at, top, why string) {
	path, found := "", false
	for line := range strings.Lines(own) {
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\n"), "0::"); ok {
			path, found = rest, true
		}
	}
	if !found {
		return "", "", "version 2 is not there"
	}
	for line := range strings.Lines(mounts) {
		before, after, ok := strings.Cut(line, " - ")
		f := strings.Fields(before)
		if !ok || len(f) < 5 || !strings.HasPrefix(after, "cgroup2 ") {
			continue
		}
		root, point := f[3], f[4]
		rel, err := filepath.Rel(root, path)
		if err != nil || !filepath.IsLocal(rel) {
			continue // another part of the hierarchy is mounted there
		}
		return filepath.Join(point, rel), point, ""
	}
	return "", "", "version 2 is not mounted"
}

// delegated tells whether whoever manages groups gave that one away (systemd.io/CGROUP_DELEGATION).
func delegated(dir string) bool {
	for _, name := range []string{"user.delegate", "trusted.delegate"} {
		b := make([]byte, 8)
		if n, err := unix.Getxattr(dir, name, b); err == nil && string(b[:n]) == "1" {
			return true
		}
	}
	return false
}

// usable says why groups with limits cannot be made below a group; empty: they can.
func usable(dir string) string {
	has := func(file string) []string {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			return nil
		}
		return strings.Fields(string(b))
	}
	all := has("cgroup.controllers")
	for _, name := range []string{"memory", "pids"} {
		if !slices.Contains(all, name) {
			return "version 2 has no " + name + " controller here"
		}
	}
	if unix.Access(dir, unix.W_OK) != nil || unix.Access(filepath.Join(dir, "cgroup.procs"), unix.W_OK) != nil {
		return "none is delegated to this user"
	}
	if below := has("cgroup.subtree_control"); slices.Contains(below, "memory") && slices.Contains(below, "pids") {
		return ""
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+memory +pids"), 0); err != nil {
		return "none is delegated to this process (Delegate= and DelegateSubgroup= of systemd do it)"
	}
	return ""
}

// sweep removes groups of hosts that were killed; their programs died with them.
func (c *controls) sweep() {
	found, err := filepath.Glob(filepath.Join(c.dir, groupName+"*"))
	if err != nil {
		return
	}
	for _, g := range found {
		pid, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(g), groupName), "-")
		if n, err := strconv.Atoi(pid); err == nil && errors.Is(unix.Kill(n, 0), unix.ESRCH) {
			_ = unix.Rmdir(g) // one that is in use stays
		}
	}
}

// group is the control group of one program.
type group struct {
	dir  string
	file *os.File
}

// make makes a group with limits. Remove it.
func (c *controls) make(limits []setting) (*group, error) {
	dir, err := os.MkdirTemp(c.dir, fmt.Sprintf("%s%d-", groupName, os.Getpid()))
	if err != nil {
		return nil, err
	}
	g := &group{dir: dir}
	for _, s := range limits {
		if err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0); err != nil && s.must {
			g.remove()
			return nil, err
		}
	}
	if g.file, err = os.Open(dir); err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// killedForMemory is how many processes of the group were ended because it had more memory than it may have.
func (g *group) killedForMemory() (n int) {
	text, err := os.ReadFile(filepath.Join(g.dir, "memory.events"))
	if err != nil {
		return 0 // a group without that controller
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "oom_kill "); ok {
			n, _ = strconv.Atoi(strings.TrimSpace(rest)) // the kernel writes numbers
		}
	}
	return n
}

// remove ends whatever is left in the group and removes it.
func (g *group) remove() {
	if g.file != nil {
		g.file.Close()
	}
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0) // before Linux 5.14 the session was killed alone
	for range 100 {
		if err := unix.Rmdir(g.dir); err == nil || errors.Is(err, fs.ErrNotExist) {
			return
		}
		t := time.NewTimer(10 * time.Millisecond) // who is killed leaves the group at its end
		<-t.C
	}
}
