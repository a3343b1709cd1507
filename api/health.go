// Package api is what Reprieve answers over HTTP.
package api

import (
	"encoding/json"
	"net/http"

	"reprieve.dev/pipeline"
)

// Lifecycle is what the worker tells and takes.
type Lifecycle interface {
	Pipelines() []pipeline.Status
	Draining() bool
}

// Handler answers /healthz (the process lives), /readyz (503 while draining or while a pipeline cannot take records, with the
// reason), /v1/pipelines, /version and /metrics.
func Handler(l Lifecycle, metrics http.Handler, version string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		status, code := "ready", http.StatusOK
		all := l.Pipelines()
		for _, p := range all {
			if !p.Ready {
				status, code = "not ready", http.StatusServiceUnavailable
			}
		}
		if l.Draining() {
			status, code = "draining", http.StatusServiceUnavailable
		}
		reply(w, code, map[string]any{"status": status, "pipelines": all})
	})
	mux.HandleFunc("GET /v1/pipelines", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]any{"pipelines": l.Pipelines()})
	})
	mux.HandleFunc("GET /version", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, http.StatusOK, map[string]string{"version": version})
	})
	mux.Handle("GET /metrics", metrics)
	return mux
}

func reply(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}
