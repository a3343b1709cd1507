package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"reprieve.dev/seal"
	"reprieve.dev/tests/services"
)

// desk is a world with a PostgreSQL ledger and the keys of two people.
type desk struct {
	*world
	files    string // folder
	ledger   string // URL
	retry    string
	program  string
	postgres *services.PostgresServer
	topics   []topic
}

// closedBooks is the rule that puts every invoice into quarantine, until it is taken away.
const closedBooks = "  - {name: closed-books, when: view.seq > 0}\n"

func newDesk(ctx context.Context, items int) (d *desk, err error) {
	d = &desk{}
	if d.world, err = newWorld(ctx, lane{name: "redrive"}, items); err != nil {
		return nil, err
	}
	if d.ledger = os.Getenv("REPRIEVE_TEST_POSTGRES"); d.ledger == "" {
		if d.postgres, err = services.StartPostgres(); err != nil {
			return d, err
		}
		d.ledger = d.postgres.URL
	}
	if d.program, err = filepath.Abs(reprieve); err != nil {
		return d, err
	}
	if d.files, d.topics, err = d.pipelineFiles("r"); err != nil {
		return d, err
	}
	d.retry = d.id + ".r.retry"
	approvers := "approvers:\n"
	for who, roles := range map[string]string{"operator": "[operator]", "finance": "[owner, approver]"} {
		s, err := seal.GenerateSigner(who + "@example.com")
		if err != nil {
			return d, err
		}
		if err := s.WriteFile(d.key(who)); err != nil {
			return d, err
		}
		approvers += fmt.Sprintf("  - {subject: %s, public: %q, roles: %s}\n", s.Subject(), s.Verifier().Text(), roles)
	}
	if err := d.edit("reprieve.yaml", "\nhttp:", "\n"+approvers+"bounds: {redrive: 20000/s}\nhttp:"); err != nil {
		return d, err
	}
	if err := d.edit("pipelines/billing.yaml", "ceiling: 50/s", "ceiling: 20000/s"); err != nil {
		return d, err
	}
	if err := os.Remove(filepath.Join(d.files, "pipelines", "adjustments.yaml")); err != nil {
		return d, err
	}
	for _, args := range [][]string{{"topics", "apply", "--partitions", "12"}, {"ledger", "migrate"}} {
		if _, err := d.reprieve(ctx, "", args...); err != nil {
			return d, err
		}
	}
	return d, nil
}

func (d *desk) close() {
	d.remove(d.topics...)
	d.world.close()
	if d.postgres != nil {
		_ = d.postgres.Stop() // its folder goes with it
	}
}

func (d *desk) key(who string) string { return filepath.Join(d.files, "keys", who+".pem") }

// edit replaces text in one of the files.
func (d *desk) edit(file, old, new string) error {
	path := filepath.Join(d.files, file)
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if !strings.Contains(string(text), old) {
		return fmt.Errorf("%s has no %q", file, old)
	}
	return os.WriteFile(path, []byte(strings.Replace(string(text), old, new, 1)), 0o644)
}

func (d *desk) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.program, args...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Dir = d.files
	cmd.Env = append(os.Environ(), "REPRIEVE_CONFIG="+filepath.Join(d.files, "reprieve.yaml"), "REPRIEVE_BOOTSTRAP="+d.bootstrap, "REPRIEVE_DLQ_BOOTSTRAP="+d.bootstrap,
		"REPRIEVE_REGISTRY="+d.registry.URL(), "REPRIEVE_HTTP=127.0.0.1:0", "REPRIEVE_LEDGER="+d.ledger)
	return cmd
}

// reprieve calls the program and returns what it printed.
func (d *desk) reprieve(ctx context.Context, who string, args ...string) ([]byte, error) {
	if who != "" {
		args = append(args, "--credential", d.key(who))
	}
	var errs bytes.Buffer
	cmd := d.command(ctx, args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("reprieve %s: %w\n%s%s", strings.Join(args, " "), err, out, errs.String())
	}
	return out, err
}

// quarantine brings every invoice into the ledger, triaged, and leaves a worker running that would deliver it.
func (d *desk) quarantine(ctx context.Context) error {
	if err := d.edit("policies/billing.yaml", "reject:\n", "reject:\n"+closedBooks); err != nil {
		return err
	}
	w, err := startChild(filepath.Join(d.dir, "closed.log"), d.command(ctx, "run"))
	if err != nil {
		return err
	}
	defer w.stop()
	for done, limit := 0, time.Now().Add(5*time.Minute); done < d.records; {
		if err := w.ended(); err != nil {
			return err
		}
		if time.Now().After(limit) {
			text, _ := os.ReadFile(w.log) // for who looks for the cause
			return fmt.Errorf("%d of %d invoices came into custody in 5 minutes\n%s", done, d.records, text[max(0, len(text)-3000):])
		}
		out, _ := d.reprieve(ctx, "operator", "quarantine", "triage", "state=DEAD_LETTERED confirmed=yes", "--ticket", "BENCH-1", "--yes", "-o", "json") // none yet is an exit code
		var r struct{ Changed int }
		if err := json.Unmarshal(out, &r); err != nil {
			return fmt.Errorf("triage: %w\n%s", err, out)
		}
		done += r.Changed
		pause(ctx, 500*time.Millisecond) // between two looks
	}
	return d.edit("policies/billing.yaml", closedBooks, "")
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// plan makes an approved manifest of a selection.
func (d *desk) plan(ctx context.Context, selection, rate string) (digest string, err error) {
	out, err := d.reprieve(ctx, "operator", "redrive", "plan", selection, "--ticket", "BENCH-1", "--rate", rate, "--yes", "-o", "json")
	if err != nil {
		return "", err
	}
	var p struct{ Digest string }
	if err := json.Unmarshal(out, &p); err != nil {
		return "", err
	}
	if _, err := d.reprieve(ctx, "operator", "redrive", "dry-run", p.Digest, "-o", "json"); err != nil {
		return "", err
	}
	_, err = d.reprieve(ctx, "finance", "redrive", "approve", p.Digest)
	return p.Digest, err
}

// run executes a manifest beside a worker.
func (d *desk) run(ctx context.Context, digest string) error {
	_, err := d.reprieve(ctx, "operator", "redrive", "run", digest, "-o", "json")
	return err
}
