package plugins

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// Options are what a host works with. Zero values: the defaults of the worker file's section sandbox.
type Options struct {
	Dir    string // of installed plugins
	Lock   string // file plugins.lock
	Limits sandbox.Limits
	Start  time.Duration // for a start until the plugin has said what it is; 10 s
	Call   time.Duration // for one batch; 5 s
	Output int64         // largest answer in bytes; 8 MiB
	// Most is the best level that is tried: less than isolated where a process must start quickly, or in tests.
	Most sandbox.Level
	// Insecure allows level process where the pins allow it. For development only.
	Insecure bool
	// RepeatOneIn is how often a batch is asked again in a second process: 1 is always; 0 is the first and then 1 in 100, which
	// ones nobody can tell in advance; below 0 is never.
	RepeatOneIn int
	// Failures is how many crashes, and timeouts counting five each, a plugin may have within a minute; 100.
	Failures int
	Clock    pipeline.Clock
	Log      *slog.Logger
}

// Host runs plugins. Safe for concurrent use. Close it.
type Host struct {
	o       Options
	log     *slog.Logger
	redact  func(string) string
	spawner *sandbox.Spawner
	best    sandbox.Level // proved here
	why     error         // why no better one is
	uses    atomic.Int64  // orders remotes by use
	chatter atomic.Int64  // bytes that plugins wrote to standard output after their handshakes
	room    *room         // of the socket folders
	closing chan struct{} // ends the calls that are on their way

	mu      sync.Mutex
	closed  bool
	sealed  map[pipeline.Digest]*os.File
	words   map[string]*allowance // by ref
	remotes map[string]*remote
	stopped map[string]*pipeline.Error // refs whose version is stopped
}

// wordsOf is what the processes of a version may write into the log.
func (h *Host) wordsOf(ref string) *allowance {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.words[ref] == nil {
		h.words[ref] = &allowance{clock: h.o.Clock}
	}
	return h.words[ref]
}

// maxRunning is how many processes (each with its witness) stay; the one that was used longest ago is ended.
const maxRunning = 8

// loaded is a verified package with its program in sealed memory and the level that it runs in.
type loaded struct {
	*Package
	sealed    *os.File
	level     sandbox.Level
	elsewhere *sandbox.Elsewhere // nil: here and now
}

// spec is how the program is started, within the limits of the host.
func (l *loaded) spec(most sandbox.Limits) sandbox.Spec {
	s := sandbox.Spec{Level: l.level, Limits: most, Args: []string{l.Artifact.Path}, Elsewhere: l.elsewhere}
	if asked := l.Descriptor.Limits; asked.Memory > 0 {
		s.Limits.Memory = asked.Memory.Bytes()
	}
	if n := l.Descriptor.Limits.Threads; n > 0 {
		s.Limits.Processes = n
	}
	if n := l.Descriptor.Limits.Files; n > 0 {
		s.Limits.Files = n
	}
	if l.Artifact.Packed() {
		s.Args, s.Tree = l.Artifact.Run, &l.tree
	}
	return s
}

// allows refuses a package that needs more than the host gives.
func (h *Host) allows(d *Descriptor) error {
	l := h.o.Limits.Filled()
	switch {
	case d.Limits.Memory.Bytes() > l.Memory:
		return pipeline.Errorf(pipeline.CodePluginRefused, d.Ref(), "it asks for %s of memory; a plugin may have %s here", d.Limits.Memory, config.Size(l.Memory)).
			With("raise sandbox.memory in the worker file, if you want to give it that much")
	case d.Limits.Threads > l.Processes:
		return pipeline.Errorf(pipeline.CodePluginRefused, d.Ref(), "it asks for %d threads; a plugin may have %d here", d.Limits.Threads, l.Processes).
			With("raise sandbox.processes in the worker file, if you want to give it that many")
	}
	return nil
}

// Open starts a host and proves which sandbox level this machine has: it tries attacks inside and sees them fail. It starts no
// plugin. Codes: ERR_PLUGIN_SANDBOX when not even level restricted can be had and Insecure is not set.
func Open(ctx context.Context, o Options) (*Host, error) {
	o.Start = or(o.Start, 10*time.Second)
	o.Call = or(o.Call, 5*time.Second)
	o.Most = or(o.Most, sandbox.Isolated)
	o.Output = or(o.Output, 8<<20)
	o.RepeatOneIn = or(o.RepeatOneIn, 100)
	o.Failures = or(o.Failures, 100)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	red, err := redact.New(redact.Config{}, redact.Options{})
	if err != nil {
		return nil, err
	}
	rm, err := newRoom()
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodePluginSandbox, os.TempDir(), "no folder for the sockets of plugins can be made: %w", err)
	}
	h := &Host{o: o, room: rm, log: o.Log, redact: red.Text, spawner: sandbox.NewSpawner(), sealed: map[pipeline.Digest]*os.File{}, words: map[string]*allowance{},
		remotes: map[string]*remote{}, stopped: map[string]*pipeline.Error{}, closing: make(chan struct{})}
	for _, l := range []sandbox.Level{sandbox.Isolated, sandbox.Restricted, sandbox.Process} {
		if l == sandbox.Process && !o.Insecure {
			break
		}
		if l > o.Most {
			continue
		}
		probe, cancel := context.WithTimeout(ctx, o.Start)
		did, _, err := h.spawner.Probe(probe, sandbox.Spec{Level: l, Limits: o.Limits})
		cancel()
		if err == nil {
			h.best = l
			h.log.Info("sandbox proved", "level", did.Level, "landlock", did.Landlock, "seccomp", did.Seccomp, "uid", did.UID, "missing", did.Missing)
			break
		}
		if h.why == nil {
			h.why = err
		}
		h.log.Warn("a sandbox level cannot be had here", "level", l.String(), "error", err)
	}
	if h.best == sandbox.None {
		h.spawner.Close()
		h.room.close()
		return nil, h.why
	}
	return h, nil
}

func or[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}

// Level is the best level that was proved here; the error says why no better one is.
func (h *Host) Level() (sandbox.Level, error) { return h.best, h.why }

// Close ends every plugin, whatever it is asked at that moment, and waits until nothing of them is left.
func (h *Host) Close() {
	h.mu.Lock()
	if !h.closed {
		close(h.closing)
	}
	h.closed = true
	rs := h.remotes
	h.remotes = map[string]*remote{}
	h.mu.Unlock()
	for _, r := range rs {
		r.stop()
	}
	h.spawner.Close()
	h.mu.Lock()
	for _, f := range h.sealed {
		f.Close()
	}
	h.sealed = nil
	h.mu.Unlock()
	h.room.close()
}

// Folder is where a plugin of that reference is installed.
func (h *Host) Folder(ref string) string { return Folder(h.o.Dir, ref) }

// Folder is where a plugin of that reference stands below the folder of installed plugins. A reference that is none stands
// nowhere.
func Folder(dir, ref string) string {
	name, version, _ := strings.Cut(ref, "@")
	if !Exact(ref) {
		return filepath.Join(dir, "not-a-plugin")
	}
	return filepath.Join(dir, filepath.FromSlash(name), version)
}

// StoppedFile stands beside the program of a version that was stopped, and says why.
const StoppedFile = "stopped"

// Stopped says why a version was stopped, or nil. Codes: ERR_PLUGIN_NONDETERMINISTIC.
func Stopped(dir, ref string) error {
	file := filepath.Join(Folder(dir, ref), StoppedFile)
	why, err := os.ReadFile(file)
	if err != nil {
		return nil
	}
	e := pipeline.Errorf(pipeline.CodePluginNondeterministic, ref, "the version was stopped: %s", strings.TrimSpace(string(why)))
	return e.With("Publish a new version that is deterministic. If the machine was at fault, remove " + file + ".")
}

// read reads the installed package of a pin and compares it. Codes: ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_LOCK, ERR_PLUGIN_REFUSED,
// ERR_PLUGIN_NONDETERMINISTIC (the version is stopped).
func (p *Pin) read(dir string) (*Package, error) {
	pkg, err := Read(Folder(dir, p.Ref()))
	if err != nil {
		return nil, err
	}
	if err := p.Check(pkg); err != nil {
		return nil, err
	}
	return pkg, Stopped(dir, p.Ref())
}

// sealPinned seals the program of a pinned package for the level that pin and author ask for. Codes: ERR_PLUGIN_SANDBOX.
func (h *Host) sealPinned(pin *Pin, pkg *Package) (*loaded, error) {
	least, err := sandbox.ParseLevel(pin.Level)
	if err != nil {
		return nil, err
	}
	return h.seal(pkg, max(least, pkg.Level()))
}

// seal keeps the verified bytes in memory that nobody can change. The level is the best that is had, and not below least.
func (h *Host) seal(pkg *Package, least sandbox.Level) (*loaded, error) {
	if least == sandbox.Process || h.o.Insecure && h.best == sandbox.Process {
		least = h.best
	}
	if h.best < least {
		e := pipeline.Errorf(pipeline.CodePluginSandbox, pkg.Descriptor.Ref(), "it needs level %s; this machine proved %s: %w", least, h.best, h.why)
		return nil, e.With("Allow the level to the host (reprieve plugin why " + pkg.Descriptor.Ref() + "), or pin it at a lower one if its author accepts that.")
	}
	if err := h.allows(&pkg.Descriptor); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, pkg.Descriptor.Ref(), "the host is closed")
	}
	f, ok := h.sealed[pkg.Digest]
	if !ok {
		var err error
		if f, err = sandbox.Seal(pkg.program); err != nil {
			return nil, err
		}
		h.sealed[pkg.Digest] = f
	}
	pkg.program = nil
	return &loaded{Package: pkg, sealed: f, level: h.best}, nil
}

// Doc is what the descriptor of a pinned plugin says of it; "not installed" if it cannot be read.
func Doc(dir string, pin *Pin) string {
	d, err := describe(Folder(dir, pin.Ref()))
	if err != nil {
		return "not installed"
	}
	return d.Doc
}

// Kinds are the pinned plugins as transforms of a library. Files are read and compared with their pins when a transform is
// built, not here. Codes: ERR_PLUGIN_LOCK, ERR_CONFIG_*.
func (h *Host) Kinds(ctx context.Context) ([]transforms.Kind, error) {
	lock, err := ReadLock(h.o.Lock)
	if err != nil {
		return nil, err
	}
	out := make([]transforms.Kind, 0, len(lock.Plugins))
	for i := range lock.Plugins {
		pin := &lock.Plugins[i]
		k := transforms.Kind{Name: pin.Name, Version: pin.Version, Doc: Doc(h.o.Dir, pin), Artifact: pin.Digest(), Level: h.best.String()}
		k.Build = func(info transforms.Info, config []byte) (transforms.Transform, error) {
			return h.Build(ctx, pin, info, config)
		}
		out = append(out, k)
	}
	return out, nil
}

// Build makes the transform of a configuration and starts its process, so that a wrong configuration is refused now. Codes:
// ERR_TRANSFORM_CONFIG, ERR_PLUGIN_*.
func (h *Host) Build(ctx context.Context, pin *Pin, info transforms.Info, settings []byte) (transforms.Transform, error) {
	if err := pin.speaks(); err != nil {
		return nil, err
	}
	key := info.Ref() + " " + string(info.Config)
	h.mu.Lock()
	r, ok := h.remotes[key]
	h.mu.Unlock()
	if ok {
		return r, nil
	}
	pkg, err := pin.read(h.o.Dir)
	if err != nil {
		return nil, err
	}
	if !pkg.Descriptor.Delivering(DeliversTransform) {
		return nil, pipeline.Errorf(pipeline.CodePluginRefused, pin.Ref(), "it delivers no transform").With("use it as a stage: - plugin: {ref: " + pin.Ref() + "}")
	}
	if err := pkg.CheckConfig(settings); err != nil {
		return nil, err
	}
	l, err := h.sealPinned(pin, pkg)
	if err != nil {
		return nil, err
	}
	r = newRemote(h, l, info, settings)
	if err := r.try(ctx); err != nil {
		r.stop()
		return nil, err
	}
	var evicted *remote
	h.mu.Lock()
	if len(h.remotes) >= maxRunning {
		for _, other := range h.remotes {
			if evicted == nil || other.used.Load() < evicted.used.Load() {
				evicted = other
			}
		}
	}
	h.remotes[key] = r
	h.mu.Unlock()
	if evicted != nil {
		evicted.rest()
	}
	return r, nil
}

// stopVersion keeps a version from running again, here and, by a file beside its program, on every host after this one.
func (h *Host) stopVersion(ref string, why *pipeline.Error) {
	h.mu.Lock()
	h.stopped[ref] = why
	h.mu.Unlock()
	h.log.Error("plugin version stopped", "plugin", ref, "code", why.Code, "why", why.Text)
	if err := os.WriteFile(filepath.Join(h.Folder(ref), StoppedFile), []byte(why.Text+"\n"), 0o644); err != nil {
		h.log.Warn("the stop of a plugin version cannot be kept: it holds until this process ends", "plugin", ref, "error", err)
	}
}

func (h *Host) stoppedVersion(ref string) *pipeline.Error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.stopped[ref]
}

// Register starts the plugin of a package once, as registration does: handshake, what it says it is, the sandbox that it got.
// Codes: ERR_PLUGIN_*.
func (h *Host) Register(ctx context.Context, pkg *Package) (sandbox.Applied, error) {
	l, err := h.seal(pkg, pkg.Level())
	if err != nil {
		return sandbox.Applied{}, err
	}
	p, err := h.start(ctx, l)
	if err != nil {
		return sandbox.Applied{}, err
	}
	defer p.end()
	return p.runner.running.Applied, nil
}
