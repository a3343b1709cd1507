package main

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/mattn/go-sqlite3" // registers "sqlite3"
)

// event is what the source delivers. A redriven one carries the item that it is of.
type event struct {
	ID      string `json:"event_id"`
	Account string `json:"account"`
	Amount  int64  `json:"amount"`

	Item    string `json:"quarantine_id,omitempty"`
	Redrive string `json:"redrive_id,omitempty"`
	Try     uint16 `json:"try,omitempty"`
}

// app is the application: its database, its source and where failures go.
type app struct {
	db   *sql.DB
	dir  string
	api  client
	step func(string)
}

const schema = `
CREATE TABLE IF NOT EXISTS accounts (id TEXT PRIMARY KEY, balance INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS inbox (event_id TEXT PRIMARY KEY, effect INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS outbox (n INTEGER PRIMARY KEY AUTOINCREMENT, kind TEXT NOT NULL, event TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
  item TEXT NOT NULL DEFAULT '', state TEXT NOT NULL DEFAULT 'open');`

func open(dir string, api client, step func(string)) (*app, error) {
	if step == nil {
		step = func(string) {}
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(dir, "app.db")+"?_busy_timeout=5000&_journal_mode=WAL&_synchronous=FULL&_txlock=immediate")
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(schema); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &app{db, dir, api, step}, nil
}

// consume takes every event behind the position of the source.
func (a *app) consume(ctx context.Context) error {
	f, err := os.Open(filepath.Join(a.dir, "events.jsonl"))
	if err != nil {
		return err
	}
	defer f.Close()
	next, err := a.position()
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(f)
	for n := 0; lines.Scan(); n++ {
		if n < next {
			continue
		}
		if err := a.take(ctx, lines.Text()); err != nil {
			return err
		}
		a.step("the transaction is committed")
		// Step 2: only now the source moves on.
		if err := a.moveOn(n + 1); err != nil {
			return err
		}
		a.step("the source moved on")
	}
	return lines.Err()
}

// take is step 1, and step 6 of a redriven event: one transaction with the inbox, and the effect or the failure.
func (a *app) take(ctx context.Context, line string) error {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return fmt.Errorf("the source delivers what is no event: %w", err)
	}
	tx, err := a.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var effect, told int
	err = tx.QueryRow("SELECT effect FROM inbox WHERE event_id = ?", e.ID).Scan(&effect)
	known := err == nil
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return err
	}
	if err := tx.QueryRow("SELECT count(*) FROM outbox WHERE kind = 'outcome' AND event = ?", line).Scan(&told); err != nil {
		return err
	}
	if known && e.Item == "" || told > 0 {
		return nil // delivered again: it was done, or is in the outbox
	}
	a.step("the transaction is open")
	reason := ""
	if effect == 0 {
		if reason, err = apply(tx, &e); err != nil {
			return err
		}
	}
	switch {
	case e.Item != "": // a redrive: what became of it is owed to Reprieve
		result := "applied"
		if effect == 1 {
			result = "already_applied"
		} else if reason != "" {
			result = "failed"
		}
		if _, err := tx.Exec("INSERT INTO outbox (kind, event, reason, item) VALUES ('outcome', ?, ?, ?)", line, result, e.Item); err != nil {
			return err
		}
	case reason != "":
		if _, err := tx.Exec("INSERT INTO outbox (kind, event, reason) VALUES ('failure', ?, ?)", line, reason); err != nil {
			return err
		}
	}
	done := 0
	if reason == "" {
		done = 1
	}
	if _, err := tx.Exec("INSERT INTO inbox (event_id, effect) VALUES (?, ?) ON CONFLICT (event_id) DO UPDATE SET effect = max(effect, excluded.effect)", e.ID, done); err != nil {
		return err
	}
	return tx.Commit()
}

// apply is the business: it books an amount, or says why it cannot.
func apply(tx *sql.Tx, e *event) (reason string, err error) {
	r, err := tx.Exec("UPDATE accounts SET balance = balance + ? WHERE id = ?", e.Amount, e.Account)
	if err != nil {
		return "", err
	}
	if n, err := r.RowsAffected(); err != nil || n == 1 {
		return "", err
	}
	return "there is no such account", nil
}

// relay is steps 3 to 6: it sends what the outbox owes, in order, until nothing is open.
func (a *app) relay(ctx context.Context) error {
	type row struct {
		n                         int64
		kind, event, reason, item string
		state                     string
	}
	var rows []row
	rs, err := a.db.QueryContext(ctx, "SELECT n, kind, event, reason, item, state FROM outbox WHERE state <> 'done' ORDER BY n")
	if err != nil {
		return err
	}
	for rs.Next() {
		var r row
		if err := rs.Scan(&r.n, &r.kind, &r.event, &r.reason, &r.item, &r.state); err != nil {
			return errors.Join(err, rs.Close())
		}
		rows = append(rows, r)
	}
	if err := errors.Join(rs.Err(), rs.Close()); err != nil {
		return err
	}
	for _, r := range rows {
		if r.kind == "outcome" {
			if err := a.api.outcome(ctx, r.event, r.reason); err != nil {
				return err
			}
			a.step("the outcome is sent")
			if err := a.mark(r.n, r.item, "done"); err != nil {
				return err
			}
			continue
		}
		if r.state == "open" {
			if r.item, err = a.api.quarantine(ctx, strconv.FormatInt(r.n, 10), r.event, r.reason); err != nil {
				return err
			}
			a.step("the failure is sent")
			if err := a.mark(r.n, r.item, "sent"); err != nil { // step 4
				return err
			}
			a.step("the row is marked")
		}
		switch moved, err := a.api.sourceMoved(ctx, r.item); { // step 5
		case err != nil:
			return err
		case !moved:
			continue // the custodian does not have it yet: the next run says it again
		}
		a.step("the source's progress is stated")
		if err := a.mark(r.n, r.item, "done"); err != nil {
			return err
		}
	}
	return nil
}

func (a *app) mark(n int64, item, state string) error {
	_, err := a.db.Exec("UPDATE outbox SET item = ?, state = ? WHERE n = ?", item, state, n)
	return err
}

// position is the next line of the source.
func (a *app) position() (int, error) {
	text, err := os.ReadFile(filepath.Join(a.dir, "position"))
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

func (a *app) moveOn(next int) error {
	half := filepath.Join(a.dir, "position.new")
	if err := os.WriteFile(half, []byte(strconv.Itoa(next)+"\n"), 0o600); err != nil {
		return err
	}
	return os.Rename(half, filepath.Join(a.dir, "position"))
}
