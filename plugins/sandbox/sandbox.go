// Package sandbox starts a program that is not trusted and keeps it from everything but its own socket.
//
// The host starts itself again as a shim (Main), which puts on namespaces, an empty root, dropped capabilities, Landlock, limits
// and a seccomp filter, in this order, says what it applied, and then becomes the program. The program is executed from sealed
// memory: what runs is what was verified (INV-PLUGIN-ARTIFACT). A level is had or the start is refused; it is never quietly
// less (INV-PLUGIN-LEVEL). When the host dies, however it dies, the program dies (INV-PLUGIN-ORPHAN).
//
// Reading order: sandbox.go, start_linux.go, shim_linux.go, policy_linux_amd64.go, filter_linux.go, answers_linux.go,
// elsewhere_linux_amd64.go, group_linux.go, memory_linux.go, probe_linux.go.
package sandbox

import (
	"fmt"
	"time"

	"reprieve.dev/pipeline"
)

// Level is how much of the system a program is kept from.
type Level uint8

// The levels, weakest first.
const (
	None       Level = iota
	Process          // limits, no environment, no open files, own session: stops accidents, not attacks
	Restricted       // and Landlock, seccomp: no network, files, processes, signals
	Isolated         // and user, mount, pid, net, ipc, uts and cgroup namespaces with an empty root
)

var levelNames = [...]string{"none", "process", "restricted", "isolated"}

// String is the level as files spell it.
func (l Level) String() string { return levelNames[l] }

// ParseLevel reads process, restricted or isolated. Codes: ERR_CONFIG_VALUE.
func ParseLevel(s string) (Level, error) {
	for i, n := range levelNames {
		if i > 0 && n == s {
			return Level(i), nil
		}
	}
	return None, pipeline.Errorf(pipeline.CodeConfigValue, s, "a sandbox level is process, restricted or isolated")
}

// Limits are per process, which is per plugin since it cannot start others. Zero: the default.
type Limits struct {
	Memory    int64         // private memory in bytes; 256 MiB. A Go program needs 96 MiB at least
	CPU       time.Duration // for the life of the process, whole seconds; 600 s
	Files     int           // open files; 64
	Processes int           // threads; 64. Below level isolated the kernel counts the whole user, and the limit is wider
}

// Filled are the limits with their defaults.
func (l Limits) Filled() Limits {
	if l.Memory == 0 {
		l.Memory = 256 << 20
	}
	if l.CPU == 0 {
		l.CPU = 600 * time.Second
	}
	if l.Files == 0 {
		l.Files = 64
	}
	if l.Processes == 0 {
		l.Processes = 64
	}
	return l
}

// Spec is one start.
type Spec struct {
	Level  Level
	Limits Limits
	Args   []string // argv, its name first
	Env    []string // the whole environment; PLUGIN_UNIX_SOCKET_DIR is added
	Errno  bool     // forbidden calls fail with EPERM instead of ending the process
	UID    int      // an unprivileged user for the program when the host is root; 0: 63721
	Tree   *Tree    // the program is a packed root folder, not a file; needs level isolated
	Dir    string   // a folder of the host for the socket, below level isolated; the caller makes and removes it
	// Elsewhere starts the program at another time and on another machine, as far as that can be had; nil: here and now.
	Elsewhere *Elsewhere
}

// Elsewhere is another place for a program to be in, so that an answer that follows from where and when it is made can be found. The
// program asks for the wall clock, the name and the kernel of the machine, and is told others. What it reads without asking stays: the
// kind of the processor, its counter of cycles.
type Elsewhere struct {
	Shift  time.Duration // of the wall clock
	OneCPU bool          // it has one processor only
}

const defaultUID = 63721

// hostName is what a program finds as the name of its host.
const hostName = "plugin"

// Applied says what a program was started under.
type Applied struct {
	Level      string   `json:"level"`
	UID        int      `json:"uid"` // of the host
	Landlock   int      `json:"landlock"`
	Seccomp    string   `json:"seccomp"` // kill, errno, none
	Namespaces []string `json:"namespaces,omitempty"`
	Limits     []string `json:"limits"`
	Missing    []string `json:"missing,omitempty"` // what the kernel did not have, with the reason; never part of the level
}

// Refused is the error when a level cannot be had. Code: ERR_PLUGIN_SANDBOX.
func refused(l Level, step string, err error) error {
	remedy := "Allow it to the host, or accept a lower level in the worker file (sandbox) and in plugins.lock."
	switch l {
	case Isolated:
		remedy = "Allow user namespaces (sysctl user.max_user_namespaces, the container's seccomp or AppArmor profile), or accept level restricted in plugins.lock."
	case Restricted:
		remedy = "Use a kernel with Landlock and seccomp filters (5.13 or newer, x86-64); for development only: sandbox.insecure: true."
	}
	e := pipeline.Errorf(pipeline.CodePluginSandbox, l.String(), "%s: %w", step, err)
	return e.With(remedy)
}

// message is what the shim writes on the report pipe: first Applied, then an error if the start fails after it.
type message struct {
	Applied *Applied `json:"applied,omitempty"`
	Step    string   `json:"step,omitempty"`
	Error   string   `json:"error,omitempty"`
	Proof   []Proof  `json:"proof,omitempty"`
}

// Proof is one attack that was tried inside the sandbox.
type Proof struct {
	Attack  string `json:"attack"`
	Blocked bool   `json:"blocked"`
	How     string `json:"how"` // what the kernel answered
}

// String is the proof as people read it.
func (p Proof) String() string {
	if p.Blocked {
		return fmt.Sprintf("%s: blocked (%s)", p.Attack, p.How)
	}
	return fmt.Sprintf("%s: NOT blocked (%s)", p.Attack, p.How)
}

// Verb is the hidden first argument that makes our own program the shim.
const Verb = "__sandbox-init"

// The shim's files.
const (
	fdSpec     = 3
	fdArtifact = 4
	fdReport   = 5
	fdSocket   = 6
)

// socketDir is where the program of level isolated finds its socket folder.
const socketDir = "/sock"

// order is what the shim is told.
type order struct {
	Spec
	Probe  bool `json:"probe"`
	Others int  `json:"others"` // threads that the user has already
}
