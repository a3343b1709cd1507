package main

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/spf13/cobra"

	"reprieve.dev/api"
	"reprieve.dev/pipeline"
	"reprieve.dev/worker"
)

func (a *app) runCmd() *cobra.Command {
	var roles []string
	var instance string
	c := &cobra.Command{
		Use: "run [PIPELINE...]", Short: "Run pipelines and the custodian until a signal comes",
		Long: "Run reads the worker file and the pipeline files (by default the folder pipelines beside it), and runs them. On SIGTERM or\n" +
			"Ctrl-C it finishes what is in work, commits and ends; a second signal ends it at once. On SIGHUP it reads the files again:\n" +
			"the old pipelines drain and the new ones start; files with a problem change nothing.",
		Example: "  reprieve run\n  reprieve run pipelines/billing.yaml --roles pipelines",
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := a.load(args)
			if err != nil {
				return err
			}
			a.logAs(plan.Config.Telemetry.Log, c.Flags())
			return a.runWorker(c.Context(), plan, roles, instance, args)
		},
	}
	var all []string
	for _, r := range worker.Roles() {
		all = append(all, string(r))
	}
	c.Flags().StringSliceVar(&roles, "roles", all, "which parts of the work this process does")
	c.Flags().StringVar(&instance, "instance-id", "", "static membership: a restart keeps its partitions")
	return c
}

// runWorker runs a worker with its HTTP port until ctx ends.
func (a *app) runWorker(ctx context.Context, plan *worker.Plan, roles []string, instance string, files []string) error {
	reg := prometheus.NewRegistry()
	reg.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	o := worker.Options{Plan: plan, InstanceID: instance, Clock: a.clock, Log: a.log(), Meter: worker.NewMeter(reg)}
	if host, err := os.Hostname(); err == nil {
		o.Host = host
	}
	for _, r := range roles {
		switch worker.Role(r) {
		case worker.RolePipelines, worker.RoleCustodian:
			o.Roles = append(o.Roles, worker.Role(r))
		default:
			return pipeline.Errorf(pipeline.CodeUsage, "--roles "+r, "there is no such role").With("write pipelines, custodian, or both with a comma")
		}
	}
	if len(o.Roles) == 0 {
		return pipeline.Errorf(pipeline.CodeUsage, "--roles", "no role is named: the worker would do nothing").With("write pipelines, custodian, or both with a comma")
	}
	w, err := worker.New(o)
	if err != nil {
		return err
	}
	r := &reloading{a: a, args: files, o: o}
	r.now.Store(w)
	tokens, err := api.NewTokens(plan.Config.HTTP.Tokens)
	if err != nil {
		return err
	}
	door := api.Options{Lifecycle: r, Metrics: promhttp.HandlerFor(reg, promhttp.HandlerOpts{}), Version: version, Tokens: tokens}
	if slices.Contains(o.Roles, worker.RoleCustodian) {
		door.Intake = r
	}
	shut, err := a.serve(ctx, plan, api.New(door), o)
	if err != nil {
		return err
	}
	defer shut()
	return r.run(ctx)
}

// serve opens the HTTP port, with TLS where http.tls says so, and returns what closes it.
func (a *app) serve(ctx context.Context, plan *worker.Plan, h http.Handler, o worker.Options) (func(), error) {
	secure, err := plan.ServerTLS()
	if err != nil {
		return nil, err
	}
	address, scheme := plan.Config.HTTP.Address, "http://"
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, "http.address "+address, "the port cannot be opened: %w", err).
			With("choose another: http: {address: 127.0.0.1:0}")
	}
	if secure != nil {
		l, scheme = tls.NewListener(l, secure), "https://"
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: 2 * time.Minute}
	o.Log.Info("serving", "address", scheme+l.Addr().String(), "paths", "/healthz /readyz /metrics /v1/pipelines /version /openapi.json")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			o.Log.Error("the HTTP port closed", "cause", err.Error())
		}
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(ctx) // what is still open is closed with the process
		<-ended
	}, nil
}
