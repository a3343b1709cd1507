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

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/plugins/wire"
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
	// RepeatOneIn is how often a batch is asked again in a second process: 1 is always; 0 is 1 in 100, from the first;
	// below 0 is never.
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

	mu      sync.Mutex
	closed  bool
	sealed  map[pipeline.Digest]*os.File
	remotes map[string]*remote
	stopped map[string]*pipeline.Error // refs whose version is stopped
}

// maxRunning is how many processes (each with its witness) stay; the one that was used longest ago is ended.
const maxRunning = 8

// loaded is a verified package with its program in sealed memory and the level that it runs in.
type loaded struct {
	*Package
	sealed *os.File
	level  sandbox.Level
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
	h := &Host{o: o, log: o.Log, redact: red.Text, spawner: sandbox.NewSpawner(), sealed: map[pipeline.Digest]*os.File{},
		remotes: map[string]*remote{}, stopped: map[string]*pipeline.Error{}}
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

// Close ends every plugin and waits until nothing of them is left.
func (h *Host) Close() {
	h.mu.Lock()
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
}

// Folder is where a plugin of that reference is installed.
func (h *Host) Folder(ref string) string { return Folder(h.o.Dir, ref) }

// Folder is where a plugin of that reference stands below the folder of installed plugins. A reference that is none stands
// nowhere.
func Folder(dir, ref string) string {
	name, version, _ := strings.Cut(ref, "@")
	if !nameForm.MatchString(name) || !versionForm.MatchString(version) {
		return filepath.Join(dir, "not-a-plugin")
	}
	return filepath.Join(dir, filepath.FromSlash(name), version)
}

// load reads an installed plugin, compares it with its pin and seals its program. Codes: ERR_PLUGIN_UNKNOWN, ERR_PLUGIN_LOCK,
// ERR_PLUGIN_SANDBOX, ERR_PLUGIN_REFUSED.
func (h *Host) load(pin *Pin) (*loaded, error) {
	pkg, err := Read(h.Folder(pin.Ref()))
	if err != nil {
		return nil, err
	}
	if err := pin.Check(pkg); err != nil {
		return nil, err
	}
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
func (h *Host) Build(ctx context.Context, pin *Pin, info transforms.Info, config []byte) (transforms.Transform, error) {
	if pin.Protocol != wire.Protocol {
		return nil, pipeline.Errorf(pipeline.CodePluginLock, pin.Ref(), "it is pinned with protocol %d; the host speaks %d", pin.Protocol, wire.Protocol)
	}
	key := info.Ref() + " " + string(info.Config)
	h.mu.Lock()
	r, ok := h.remotes[key]
	h.mu.Unlock()
	if ok {
		return r, nil
	}
	pkg, err := h.load(pin)
	if err != nil {
		return nil, err
	}
	r = newRemote(h, pkg, info, config)
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

// stopVersion keeps a version from running again on this host.
func (h *Host) stopVersion(ref string, why *pipeline.Error) {
	h.mu.Lock()
	h.stopped[ref] = why
	h.mu.Unlock()
	h.log.Error("plugin version stopped", "plugin", ref, "code", why.Code, "why", why.Text)
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
