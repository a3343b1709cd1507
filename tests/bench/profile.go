package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"os"
	"path/filepath"
	"runtime/pprof"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

// profileCommand is `reprieve run` with a CPU profile: PROFILE=FILE makes the live benchmark use it in place of the program.
// A profile costs a few per cent, so its lines are not results.
func profileCommand(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("profile", flag.ContinueOnError)
	out := f.String("out", "", "the profile")
	if err := f.Parse(args); err != nil {
		return err
	}
	file := os.Getenv("REPRIEVE_CONFIG")
	opt := config.Options{Env: os.LookupEnv, ReadFile: func(path string) ([]byte, error) {
		if !filepath.IsAbs(path) {
			path = filepath.Join(filepath.Dir(file), path)
		}
		return os.ReadFile(path)
	}}
	plan, ps := worker.Load(worker.Files{Worker: file, Pipelines: f.Args()}, worker.Kinds(), opt)
	if len(ps) > 0 {
		return ps
	}
	w, err := worker.New(worker.Options{Plan: plan, Roles: []worker.Role{worker.RolePipelines}, Clock: time.Now,
		Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Meter: discard{}})
	if err != nil {
		return err
	}
	to, err := os.Create(*out)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(to); err != nil {
		return err
	}
	err = w.Run(ctx)
	pprof.StopCPUProfile()
	return errors.Join(err, to.Close())
}

// discard is a meter that counts nothing.
type discard struct{}

func (discard) Add(float64)                                                       {}
func (discard) Set(float64)                                                       {}
func (discard) Observe(float64)                                                   {}
func (discard) Counter(string, string, ...string) pipeline.Counter                { return discard{} }
func (discard) Gauge(string, string, ...string) pipeline.Gauge                    { return discard{} }
func (discard) Histogram(string, string, []float64, ...string) pipeline.Histogram { return discard{} }
