package worker

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/stage"
	"reprieve.dev/plugins"
	"reprieve.dev/plugins/sandbox"
	"reprieve.dev/transforms"
)

// PluginOptions are what the section sandbox of a worker file means; paths are relative to the folder of the file.
func PluginOptions(file string, s config.Sandbox, clock pipeline.Clock, log *slog.Logger) plugins.Options {
	at := func(path string) string {
		if filepath.IsAbs(path) {
			return path
		}
		return filepath.Join(filepath.Dir(file), path)
	}
	return plugins.Options{Dir: at(s.Dir), Lock: at(s.Lock), Start: s.Start.Std(), Call: s.Timeout.Std(), Output: s.Output.Bytes(), Insecure: s.Insecure,
		// The CPU limit of a process is for its life, which is many batches.
		Limits: sandbox.Limits{Memory: s.Memory.Bytes(), CPU: 10 * s.CPU.Std(), Processes: s.Processes}, Clock: clock, Log: log}
}

// Kinds are the stage kinds of this program: the built-in ones and that of plugins.
func Kinds() []pipeline.Kind { return append(stage.Kinds(), plugins.Kind()) }

// openHost lends a host that is opened at its first use: who needs no plugin pays for none, and a machine without a sandbox still
// does everything else.
func openHost(ctx context.Context, o plugins.Options) (plugins.Opener, pipeline.Close) {
	var mu sync.Mutex
	var host *plugins.Host
	lend := func(use func(context.Context, *plugins.Host) error) (err error) {
		mu.Lock()
		if host == nil {
			host, err = plugins.Open(ctx, o)
		}
		h := host
		mu.Unlock()
		if err != nil {
			return err
		}
		return use(ctx, h)
	}
	return lend, func() error {
		mu.Lock()
		defer mu.Unlock()
		if host != nil {
			host.Close()
		}
		return nil
	}
}

// pluginKinds are the pinned plugins as transforms. Codes: ERR_PLUGIN_LOCK, ERR_CONFIG_*.
func pluginKinds(ctx context.Context, o plugins.Options) (kinds []transforms.Kind, closing func(), err error) {
	lock, err := plugins.ReadLock(o.Lock)
	if err != nil {
		return nil, nil, err
	}
	lend, shut := openHost(ctx, o)
	for i := range lock.Plugins {
		pin := &lock.Plugins[i]
		k := transforms.Kind{Name: pin.Name, Version: pin.Version, Doc: plugins.Doc(o.Dir, pin), Artifact: pin.Digest(), Level: pin.Level}
		k.Build = func(info transforms.Info, config []byte) (t transforms.Transform, err error) {
			err = lend(func(ctx context.Context, h *plugins.Host) (err error) {
				t, err = h.Build(ctx, pin, info, config)
				return err
			})
			return t, err
		}
		kinds = append(kinds, k)
	}
	return kinds, func() { _ = shut() }, nil // it has no error
}

// checkPlugins compares the plugin stages of a pipeline with what is pinned and installed, without starting anything.
func (pp *PipelinePlan) checkPlugins(file string, s config.Sandbox) (ps config.Problems) {
	o := PluginOptions(file, s, nil, nil)
	for _, st := range pp.Stages {
		set, ok := st.Settings.(*plugins.StageSettings)
		if !ok || !plugins.Exact(set.Ref) { // told already
			continue
		}
		if err := plugins.CheckStage(o, set); err != nil {
			e, ok := errors.AsType[*pipeline.Error](err)
			if !ok {
				ps = append(ps, st.Node.Problem("ref", config.CodeReference, err.Error(), ""))
				continue
			}
			at := "ref"
			if e.Code == pipeline.CodeTransformConfig {
				at = "config"
			}
			ps = append(ps, st.Node.Problem(at, string(e.Code), e.Text, e.Fix()))
		}
	}
	return ps
}
