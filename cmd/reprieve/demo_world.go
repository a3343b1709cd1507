package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/kafka"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

// world is what the demo runs in: a folder with the example's files and keys of its own, a broker and a registry in a child
// process, and a worker in this one.
type world struct {
	a    *app
	dir  string
	run  int // which run in this folder, from 1
	addr addresses
	plan *worker.Plan
	log  *kafka.Log
	adm  *kafka.Admin
	reg  codec.Registry
	keys worker.Keys

	close []func()
}

func (w *world) path(name string) string { return filepath.Join(w.dir, name) }

// Close ends everything in the opposite order.
func (w *world) Close() {
	for i := len(w.close) - 1; i >= 0; i-- {
		w.close[i]()
	}
	w.close = nil
}

// newWorld prepares the folder and starts the embedded servers. Close it.
func (a *app) newWorld(ctx context.Context, dir string) (_ *world, err error) {
	w := &world{a: a, dir: dir}
	defer func() {
		if err != nil {
			w.Close()
		}
	}()
	if err := os.MkdirAll(w.path("keys"), 0o700); err != nil {
		return nil, pipeline.Errorf(pipeline.CodeEnvironmentTool, dir, "%w", err)
	}
	if err := w.startServers(ctx); err != nil {
		return nil, err
	}
	if err := w.writeFiles(); err != nil {
		return nil, err
	}
	a.file = w.path("reprieve.yaml")
	if w.plan, err = a.load(nil); err != nil {
		return nil, err
	}
	if w.keys, err = worker.NewKeys(w.plan.Config.Keys); err != nil {
		return nil, err
	}
	return w, w.openClients(ctx)
}

// startServers starts this program again as the embedded broker and registry.
func (w *world) startServers(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, "demo", "%w", err)
	}
	stderr, err := os.Create(w.path("servers.log"))
	if err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, w.dir, "%w", err)
	}
	defer stderr.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "embedded", "--dir", w.path("data"))
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C ends us first; we close its standard input
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, self, "%w", err)
	}
	w.close = append(w.close, func() {
		_ = in.Close()
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait() // what it logged is in servers.log
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &w.addr)
	}
	if err != nil {
		text, _ := os.ReadFile(w.path("servers.log"))
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, w.dir, "the embedded broker did not start: %s", strings.TrimSpace(string(text))).
			With("if another demo runs in this folder, end it, or use another: --dir FOLDER")
	}
	return nil
}

// writeFiles puts the example's files into the folder, with keys of its own and the addresses of this run.
func (w *world) writeFiles() error {
	for _, k := range []string{"hmac", "identity", "keeper"} {
		if _, err := os.Stat(w.path("keys/" + k)); os.IsNotExist(err) {
			if err := seal.WriteSecret(w.path("keys/"+k), 32); err != nil {
				return err
			}
		}
	}
	var approvers []string
	for _, p := range []struct{ file, subject, roles string }{
		{"operator.pem", "operator@example.com", "[operator, auditor]"}, {"finance.pem", "finance-owner@example.com", "[owner, approver]"},
		{"controller.pem", "controller@example.com", "[approver]"}, {"privacy.pem", "privacy@example.com", "[privacy]"}} {
		file := w.path("keys/" + p.file)
		s, err := seal.ReadSigner(file)
		if os.IsNotExist(statErr(file)) {
			if s, err = seal.GenerateSigner(p.subject); err == nil {
				err = s.WriteFile(file)
			}
		}
		if err != nil {
			return err
		}
		approvers = append(approvers, fmt.Sprintf("  - {subject: %s, public: %q, roles: %s}\n", s.Subject(), s.Verifier().Text(), p.roles))
	}
	err := fs.WalkDir(billing.Files(), ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if e.IsDir() {
			return os.MkdirAll(w.path(path), 0o755)
		}
		text, err := fs.ReadFile(billing.Files(), path)
		if err != nil {
			return err
		}
		if path == "reprieve.yaml" {
			text = w.settle(text, approvers)
		}
		return os.WriteFile(w.path(path), text, 0o644)
	})
	if err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, w.dir, "the example's files cannot be written: %w", err)
	}
	return w.countRun()
}

func statErr(path string) error { _, err := os.Stat(path); return err }

// settle gives the variables of the worker file the values of this run, so that the commands work from any shell.
func (w *world) settle(text []byte, approvers []string) []byte {
	s := string(text)
	for name, value := range map[string]string{
		"REPRIEVE_NAME": "demo", "REPRIEVE_BOOTSTRAP": w.addr.Bootstrap, "REPRIEVE_DLQ_BOOTSTRAP": w.addr.Bootstrap,
		"REPRIEVE_REGISTRY": w.addr.Registry, "REPRIEVE_LEDGER": "sqlite:reprieve.db", "REPRIEVE_HTTP": freeAddress(),
	} {
		for {
			i := strings.Index(s, "${"+name+":-")
			if i < 0 {
				break
			}
			j := i + strings.Index(s[i:], "}")
			s = s[:i] + value + s[j+1:]
		}
	}
	return []byte(s + "approvers:\n" + strings.Join(approvers, ""))
}

func freeAddress() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}

// countRun counts how often the demo ran in this folder: each run's invoices are new ones.
func (w *world) countRun() error {
	text, _ := os.ReadFile(w.path("runs")) // missing: none yet
	n, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	w.run = n + 1
	if err := os.WriteFile(w.path("runs"), []byte(strconv.Itoa(w.run)+"\n"), 0o644); err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, w.dir, "%w", err)
	}
	return nil
}

// openClients opens what the demo reads and writes with, and registers the schema.
func (w *world) openClients(ctx context.Context) error {
	c, err := w.plan.Cluster("main")
	if err != nil {
		return err
	}
	if w.adm, err = kafka.NewAdmin(c); err != nil {
		return err
	}
	w.close = append(w.close, w.adm.Close)
	if w.log, err = kafka.NewLog(c, nil); err != nil {
		return err
	}
	w.close = append(w.close, w.log.Close)
	if w.reg, err = w.plan.Registry("main", w.a.clock); err != nil {
		return err
	}
	topics := w.plan.Topics(12)
	if err := w.plan.LookTopics(ctx, topics); err != nil {
		return err
	}
	_, err = w.plan.CreateTopics(ctx, topics)
	return err
}

// startWorker runs the worker of the folder in the background; its log goes to worker.log.
func (w *world) startWorker(ctx context.Context) error {
	file, err := os.Create(w.path("worker.log"))
	if err != nil {
		return pipeline.Errorf(pipeline.CodeEnvironmentTool, w.dir, "%w", err)
	}
	logger := slog.New(slog.NewTextHandler(file, nil))
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	background := *w.a
	background.logger = logger
	var roles []string
	for _, r := range worker.Roles() {
		roles = append(roles, string(r))
	}
	go func() { ended <- background.runWorker(ctx, w.plan, roles, "", nil) }()
	w.close = append(w.close, func() {
		cancel()
		if err := <-ended; err != nil {
			w.a.log().Warn("the worker did not end cleanly", "cause", err.Error())
		}
		_ = file.Close()
	})
	select {
	case err := <-ended:
		ended <- nil
		return err
	case <-time.After(50 * time.Millisecond): // a worker that cannot start says so at once
		return nil
	}
}

// writeInvoices writes the run's records and returns how many.
func (w *world) writeInvoices(ctx context.Context) (int, error) {
	cache, ok := w.reg.(*codec.Cache)
	if !ok {
		return 0, pipeline.Errorf(pipeline.CodeInternal, "demo", "the registry is a %T", w.reg)
	}
	id, err := cache.Register(ctx, billing.Subject, billing.Schema(), "avro")
	if err != nil {
		return 0, err
	}
	c, err := w.plan.Cluster("main")
	if err != nil {
		return 0, err
	}
	sink, err := kafka.NewSink(kafka.SinkConfig{Cluster: c, ClientID: "demo", Log: w.a.log()})
	if err != nil {
		return 0, err
	}
	defer func() { _ = sink.Close(context.WithoutCancel(ctx)) }() // every message was acknowledged
	invoices := billing.Generator{Seed: uint64(w.run), Count: 20_000, Poison: 0.002, Secrets: 0.01, Partitions: 12, SchemaID: id}
	adjustments := billing.Generator{Seed: uint64(w.run), Count: 1_000, Poison: 0.01, Secrets: 0.01, Partitions: 12}
	var batch []pipeline.Message
	n := 0
	flush := func() error {
		s := &pipeline.Sending{Msgs: batch}
		if err := sink.Send(s); err != nil {
			return err
		}
		select {
		case done := <-sink.Done():
			if len(done.Bad) > 0 {
				f := done.Bad[0].Failure
				return pipeline.Errorf(f.Code, done.Msgs[done.Bad[0].Msg].Topic, "%s", f.Reason())
			}
		case <-ctx.Done():
			return ctx.Err()
		}
		n += len(batch)
		batch = nil
		return nil
	}
	for _, records := range []func(func(pipeline.Message, billing.Label) bool){invoices.Invoices(), adjustments.Adjustments()} {
		for m := range records {
			if batch = append(batch, m); len(batch) == 2000 {
				if err := flush(); err != nil {
					return n, err
				}
			}
		}
	}
	if len(batch) > 0 {
		err = flush()
	}
	return n, err
}
