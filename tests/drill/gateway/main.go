// Command gateway is the payment provider of the recovery drill: a process of its own, with its own tables, that debits an invoice
// once. It consults processed_invoices in the transaction of the debit.
//
//	POST /debits/{invoice}?token=T&amount=MINOR   debits; the same token again changes nothing
//	GET  /processed/{token}                       200 with what was debited, or 404
//	POST /admin/outage, /admin/restore            answers 504 from now on, or works again
//	POST /admin/break?kind=double-debit|drop-one  does one wrong thing to an invoice that was refused in the outage
//	GET  /admin/stats                             what it was asked and how long it took
//
// In an outage one call in twenty is done all the same before the 504: as when the answer is lost, not the call.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"syscall"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
)

func main() {
	database := flag.String("database", "", "URL of its database")
	listen := flag.String("listen", "127.0.0.1:0", "address")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *database, *listen); err != nil {
		fmt.Fprintln(os.Stderr, "gateway:", err)
		os.Exit(1)
	}
}

const schema = `
CREATE TABLE IF NOT EXISTS processed_invoices (
  invoice_id TEXT NOT NULL,
  idempotency_token TEXT NOT NULL PRIMARY KEY,
  amount_minor BIGINT NOT NULL,
  applied_at TIMESTAMPTZ NOT NULL DEFAULT now()
);
CREATE TABLE IF NOT EXISTS debits (
  id BIGSERIAL PRIMARY KEY,
  invoice_id TEXT NOT NULL,
  idempotency_token TEXT NOT NULL,
  amount_minor BIGINT NOT NULL
);
CREATE INDEX IF NOT EXISTS debits_token ON debits (idempotency_token);`

func run(ctx context.Context, database, listen string) error {
	db, err := sql.Open("pgx", database)
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	if _, err := db.ExecContext(ctx, schema); err != nil {
		return err
	}
	g := &gateway{db: db, refused: map[string]bool{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /debits/{invoice}", g.debit)
	mux.HandleFunc("GET /processed/{token}", g.processed)
	mux.HandleFunc("POST /admin/outage", func(w http.ResponseWriter, _ *http.Request) { g.set(func() { g.outage = true }) })
	mux.HandleFunc("POST /admin/restore", func(w http.ResponseWriter, _ *http.Request) {
		g.set(func() { g.outage, g.slowest, g.answered = false, 0, 0 })
	})
	mux.HandleFunc("POST /admin/break", func(w http.ResponseWriter, r *http.Request) {
		g.set(func() { g.wrong, g.wait = r.URL.Query().Get("kind"), breakAfter })
	})
	mux.HandleFunc("GET /admin/stats", g.stats)
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	fmt.Println("listening http://" + l.Addr().String())
	go func() {
		<-ctx.Done()
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		_ = s.Shutdown(end) // it ends anyway
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// breakAfter is how many invoices of the outage are done right before the wrong one: beyond any canary.
const breakAfter = 40

type gateway struct {
	db *sql.DB

	mu       sync.Mutex
	outage   bool
	refused  map[string]bool // tokens that were answered with 504
	wrong    string          // what to do wrong, once
	wait     int
	calls    int64
	failures int64
	lost     int64 // debited and answered with 504
	answered int64 // since it was restored
	slowest  time.Duration
	broke    string // invoice that something wrong was done to
}

func (g *gateway) set(change func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	change()
}

func (g *gateway) debit(w http.ResponseWriter, r *http.Request) {
	from := time.Now()
	invoice, token := r.PathValue("invoice"), r.URL.Query().Get("token")
	amount, err := strconv.ParseInt(r.URL.Query().Get("amount"), 10, 64)
	if err != nil || token == "" {
		http.Error(w, "token and amount are needed", http.StatusBadRequest)
		return
	}
	g.mu.Lock()
	g.calls++
	outage, lost, wrong := g.outage, false, ""
	switch {
	case outage:
		g.failures++
		lost = !g.refused[token] && len(g.refused)%20 == 7
		g.refused[token] = true
		if lost {
			g.lost++
		}
	case g.wrong != "" && g.refused[token]:
		if g.wait--; g.wait <= 0 {
			wrong, g.wrong, g.broke = g.wrong, "", invoice
		}
	}
	g.mu.Unlock()
	if !outage || lost {
		if err := g.apply(r.Context(), invoice, token, amount, wrong); err != nil {
			http.Error(w, "the debit failed", http.StatusInternalServerError)
			return
		}
	}
	if outage {
		http.Error(w, "gateway timeout", http.StatusGatewayTimeout)
		return
	}
	g.mu.Lock()
	g.answered++
	g.slowest = max(g.slowest, time.Since(from))
	g.mu.Unlock()
	w.WriteHeader(http.StatusOK)
}

// apply debits an invoice once, whatever happens: the token and the debit stand in one transaction. wrong leaves one of them out.
func (g *gateway) apply(ctx context.Context, invoice, token string, amount int64, wrong string) error {
	if wrong == "drop-one" {
		return nil
	}
	tx, err := g.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	res, err := tx.ExecContext(ctx, "INSERT INTO processed_invoices (invoice_id, idempotency_token, amount_minor) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", invoice, token, amount)
	if err != nil {
		return err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if wrong == "double-debit" {
		n++
	}
	for range n {
		if _, err := tx.ExecContext(ctx, "INSERT INTO debits (invoice_id, idempotency_token, amount_minor) VALUES ($1, $2, $3)", invoice, token, amount); err != nil {
			return err
		}
	}
	return tx.Commit()
}

func (g *gateway) processed(w http.ResponseWriter, r *http.Request) {
	var found struct {
		Debits int64 `json:"debits"`
		Amount int64 `json:"amount_minor"`
	}
	err := g.db.QueryRowContext(r.Context(), "SELECT count(*), coalesce(sum(amount_minor), 0) FROM debits WHERE idempotency_token = $1", r.PathValue("token")).Scan(&found.Debits, &found.Amount)
	switch {
	case err != nil:
		http.Error(w, "the table cannot be read", http.StatusServiceUnavailable)
	case found.Debits == 0:
		http.Error(w, "no such debit", http.StatusNotFound)
	default:
		answer(w, found)
	}
}

func (g *gateway) stats(w http.ResponseWriter, _ *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	answer(w, map[string]any{"calls": g.calls, "failures": g.failures, "lost_answers": g.lost, "refused_invoices": len(g.refused),
		"answered": g.answered, "slowest_ms": float64(g.slowest.Microseconds()) / 1000, "broke": g.broke})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // who asked may be gone
}
