package api

import (
	"net/http"

	"reprieve.dev/pipeline"
)

// Lifecycle is what the worker tells and takes.
type Lifecycle interface {
	Pipelines() []pipeline.Status
	Draining() bool
}

// health answers /healthz (the process lives), /readyz (503 while draining or while a pipeline cannot take records, with the
// reason), /v1/pipelines, /version and /metrics.
func health(mux *http.ServeMux, o Options) {
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status, code := "ready", http.StatusOK
		all := o.Lifecycle.Pipelines()
		for _, p := range all {
			if !p.Ready {
				status, code = "not ready", http.StatusServiceUnavailable
			}
		}
		if o.Lifecycle.Draining() {
			status, code = "draining", http.StatusServiceUnavailable
		}
		reply(w, code, map[string]any{"status": status, "pipelines": all})
	})
	mux.HandleFunc("GET /v1/pipelines", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"pipelines": o.Lifecycle.Pipelines()})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"version": o.Version})
	})
	mux.Handle("GET /metrics", o.Metrics)
}
