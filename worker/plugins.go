package worker

import (
	"context"
	"log/slog"
	"path/filepath"
	"sync"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
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

// pluginKinds are the pinned plugins as transforms. The host is opened when the first of them is built: who needs no plugin pays
// for none, and a machine without a sandbox still does everything else. Codes: ERR_PLUGIN_LOCK, ERR_CONFIG_*.
func pluginKinds(ctx context.Context, o plugins.Options) (kinds []transforms.Kind, closing func(), err error) {
	lock, err := plugins.ReadLock(o.Lock)
	if err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	var host *plugins.Host
	open := func() (*plugins.Host, error) {
		mu.Lock()
		defer mu.Unlock()
		if host != nil {
			return host, nil
		}
		var err error
		host, err = plugins.Open(ctx, o)
		return host, err
	}
	for i := range lock.Plugins {
		pin := &lock.Plugins[i]
		k := transforms.Kind{Name: pin.Name, Version: pin.Version, Doc: plugins.Doc(o.Dir, pin), Artifact: pin.Digest(), Level: pin.Level}
		k.Build = func(info transforms.Info, config []byte) (transforms.Transform, error) {
			h, err := open()
			if err != nil {
				return nil, err
			}
			return h.Build(ctx, pin, info, config)
		}
		kinds = append(kinds, k)
	}
	return kinds, func() {
		mu.Lock()
		defer mu.Unlock()
		if host != nil {
			host.Close()
		}
	}, nil
}
