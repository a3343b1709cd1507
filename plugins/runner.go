package plugins

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
)

// handshakeMost is the longest handshake line, in bytes.
const handshakeMost = 4096

// runner is how go-plugin starts and watches a process: in the sandbox, with the handshake read here first. It hands go-plugin
// one canonical line and never an address outside the plugin's own socket folder.
type runner struct {
	spawner *sandbox.Spawner
	program *os.File
	spec    sandbox.Spec
	env     []string          // as go-plugin made it
	own     map[string]string // of the artifact
	dir     string            // the folder that go-plugin made for the socket
	diary   *diary
	chatter *atomic.Int64 // bytes on standard output after the handshake, of all processes

	running *sandbox.Running
	pipe    *io.PipeReader
	drained sync.WaitGroup

	mu     sync.Mutex
	socket string // name in the socket folder
	first  string // a first line that was no handshake
	extra  int64  // bytes on standard output after the handshake
	over   bool   // nothing is left to be killed
	why    string // it was ended for something that it did
}

var envKept = []string{wire.CookieKey, "PLUGIN_PROTOCOL_VERSIONS"}

// fixedEnv is the same for every plugin, so that locale, time zone and the order of hashes are.
var fixedEnv = []string{"LC_ALL=C.UTF-8", "TZ=UTC", "PYTHONHASHSEED=0"}

func (r *runner) Start(ctx context.Context) error {
	for _, e := range r.env {
		name, _, _ := strings.Cut(e, "=")
		for _, k := range envKept {
			if k == name {
				r.spec.Env = append(r.spec.Env, e)
			}
		}
	}
	r.spec.Env = append(r.spec.Env, fixedEnv...)
	for _, name := range slices.Sorted(maps.Keys(r.own)) {
		r.spec.Env = append(r.spec.Env, name+"="+r.own[name])
	}
	r.spec.Dir = r.dir
	running, err := r.spawner.Start(ctx, r.program, r.spec)
	if err != nil {
		return err
	}
	r.running = running
	r.diary.flood = func() {
		r.ended("it writes without end")
	}
	if r.spec.Level < sandbox.Isolated { // an isolated one has a folder that holds eight names
		r.drained.Add(1)
		go func() {
			defer r.drained.Done()
			r.watchFolder()
		}()
	}
	pr, pw := io.Pipe()
	r.pipe = pr
	r.drained.Add(2)
	go func() {
		defer r.drained.Done()
		r.diary.drain(running.Stderr, "stderr")
	}()
	go func() {
		defer r.drained.Done()
		r.handshake(pw)
	}()
	return nil
}

// handshake forwards one canonical line; whatever follows is counted and dropped.
func (r *runner) handshake(to *io.PipeWriter) {
	br := bufio.NewReaderSize(r.running.Stdout, handshakeMost)
	line, err := br.ReadSlice('\n')
	text := strings.TrimRight(string(line), "\r\n")
	if err != nil && (len(line) == 0 || errors.Is(err, io.EOF)) && !canonical(text) {
		r.refuse(text)
		to.CloseWithError(io.EOF)
		return
	}
	if !canonical(text) {
		r.refuse(text)
		to.CloseWithError(io.EOF)
		r.running.Kill()
	} else {
		fields := strings.Split(text, "|")
		fmt.Fprintln(to, strings.Join(fields[:5], "|")) // without a reader the start has failed anyway
	}
	_, _ = io.Copy(dropped{r}, br) // it ends with the process
	to.Close()
}

// dropped counts what is written on standard output after the handshake.
type dropped struct{ r *runner }

func (d dropped) Write(p []byte) (int, error) {
	d.r.mu.Lock()
	d.r.extra += int64(len(p))
	over := d.r.extra > floodMost
	d.r.mu.Unlock()
	d.r.chatter.Add(int64(len(p)))
	if over {
		d.r.ended("it writes without end")
	}
	return len(p), nil
}

// ended kills the process for what it does, and keeps the reason for who asks why it died.
func (r *runner) ended(why string) {
	r.mu.Lock()
	first := r.why == ""
	if first {
		r.why = why
	}
	r.mu.Unlock()
	if first {
		r.running.Kill()
	}
}

// wasEnded tells whether the host ended the process for what it did.
func (r *runner) wasEnded() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.why != ""
}

// exit says how the process ended, or why it was ended.
func (r *runner) exit() string {
	r.mu.Lock()
	why := r.why
	r.mu.Unlock()
	if why != "" {
		return why
	}
	return r.running.Exit()
}

// namesMost is how many names a plugin may make in its socket folder.
const namesMost = 8

// watchFolder ends a plugin that fills the folder of the host that its socket is in: empty files use up names, not bytes, and no
// limit of the kernel counts them.
func (r *runner) watchFolder() {
	t := time.NewTicker(20 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-r.running.Gone():
			return
		case <-t.C:
		}
		f, err := os.Open(r.dir)
		if err != nil {
			return
		}
		names, _ := f.Readdirnames(namesMost + 1)
		f.Close()
		if len(names) > namesMost {
			r.ended("it fills its folder")
			return
		}
	}
}

func (r *runner) refuse(line string) {
	r.mu.Lock()
	r.first = r.diary.clean(line)
	r.mu.Unlock()
}

// canonical tells whether the line is a handshake of five fields over a Unix socket. A sixth field is only allowed empty: a
// certificate is never taken.
func canonical(line string) bool {
	f := strings.Split(line, "|")
	if len(f) < 5 || f[0] != "1" || f[2] != "unix" || f[4] != "grpc" {
		return false
	}
	for _, more := range f[5:] {
		if more != "" && more != "false" && more != "true" { // go-plugin tells there whether it can multiplex
			return false
		}
	}
	return filepath.IsAbs(f[3]) && filepath.Clean(f[3]) == f[3] && !strings.ContainsAny(f[3], "\x00\n")
}

func (r *runner) PluginToHost(network, addr string) (string, string, error) {
	dir, name := filepath.Split(addr)
	if network != "unix" || filepath.Clean(dir) != r.running.Dir(r.dir) || name == "" {
		return "", "", errors.New("the address is not in the plugin's socket folder")
	}
	r.mu.Lock()
	r.socket = name
	r.mu.Unlock()
	return "unix", "plugin", nil // go-plugin never dials it
}

func (r *runner) HostToPlugin(string, string) (string, string, error) {
	return "", "", errors.New("the host serves plugins nothing")
}

func (r *runner) Wait(context.Context) error { <-r.running.Gone(); return nil }

func (r *runner) Kill(context.Context) error {
	r.running.Kill()
	<-r.running.Gone()
	return nil
}

func (r *runner) Stdout() io.ReadCloser { return r.pipe }

// Stderr is nothing for go-plugin: the diary reads it.
func (r *runner) Stderr() io.ReadCloser { return io.NopCloser(strings.NewReader("")) }

func (r *runner) Name() string { return "plugin" }

// ID is empty once the process is over, so that go-plugin does not speak to it again.
func (r *runner) ID() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.running == nil {
		return ""
	}
	return fmt.Sprint(r.running.PID)
}

func (r *runner) Diagnose(context.Context) string { return "" }

// end kills the process and frees everything. It returns when both are done.
func (r *runner) end() {
	if r.running != nil {
		r.running.Kill()
		<-r.running.Gone()
		r.pipe.Close()
		r.drained.Wait()
		r.running.Close()
	}
	r.mu.Lock()
	r.over = true
	r.mu.Unlock()
	if r.dir != "" {
		_ = os.RemoveAll(r.dir) // a folder of the system's temporary folder
	}
}
