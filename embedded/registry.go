package embedded

import (
	"errors"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"reprieve.dev/pipeline"
)

// RegistryConfig says where a registry keeps its schemas and where it listens.
type RegistryConfig struct {
	Dir  string // created if it is missing; only one registry may use it
	Addr string // on 127.0.0.1; "" is any free port
	Log  *slog.Logger
}

// Registry is a small schema registry with the Confluent API: subjects, versions, ids, GUIDs, references, soft and permanent
// deletes, compatibility. Schemas of Avro, JSON Schema and Protobuf are parsed before they are taken. Compatibility is judged
// for Avro, at every level that Confluent names; a change of a JSON Schema or Protobuf subject is taken without judgement.
type Registry struct {
	mu    sync.Mutex
	s     *store
	srv   *http.Server
	url   string
	lock  *os.File
	ended chan struct{}
}

// StartRegistry opens the folder and serves until Close. Ids and GUIDs outlive a restart. Codes: ERR_ENVIRONMENT (the folder
// is in use or damaged, the address is taken).
func StartRegistry(conf RegistryConfig) (*Registry, error) {
	if conf.Dir == "" {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, "embedded registry", "it needs a folder for its schemas")
	}
	if err := os.MkdirAll(conf.Dir, 0o700); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "%w", err)
	}
	lock, err := lockFile(filepath.Join(conf.Dir, "registry.lock"))
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "the folder is in use by another registry: %w", err).
			With("Stop the other process, or name another folder.")
	}
	s, err := openStore(filepath.Join(conf.Dir, "registry.jsonl"))
	if err != nil {
		_ = lock.Close()
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, conf.Dir, "the schemas cannot be read: %w", err)
	}
	addr := conf.Addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		_ = s.close()
		_ = lock.Close()
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, addr, "the embedded registry does not start: %w", err).
			With("Choose another port.")
	}
	r := &Registry{s: s, lock: lock, url: "http://" + l.Addr().String(), ended: make(chan struct{})}
	r.srv = &http.Server{Handler: r.routes(), ReadHeaderTimeout: 10 * time.Second, ErrorLog: serverLog(conf.Log)}
	go func() {
		defer close(r.ended)
		_ = r.srv.Serve(l)
	}()
	return r, nil
}

func serverLog(to *slog.Logger) *log.Logger {
	if to == nil {
		to = slog.New(slog.DiscardHandler)
	}
	return slog.NewLogLogger(to.Handler(), slog.LevelWarn)
}

// URL is the base of the API.
func (r *Registry) URL() string { return r.url }

// Close ends requests and keeps the schemas.
func (r *Registry) Close() error {
	err := r.srv.Close() // nobody is waited for: each change is on disk before it is answered
	<-r.ended
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(err, r.s.close(), r.lock.Close())
}
