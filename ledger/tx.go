package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"strings"
	"unicode/utf8"

	"reprieve.dev/pipeline"
)

// Tx is one transaction. SQL is written once, with "?" for arguments; a string argument is cleaned (Clean) on its way, so a
// NUL or half a character never costs a row. It belongs to one goroutine and ends with the function it was given to.
//
// Row locks are taken by ForUpdate; history and roll-ups are kept until the end of the transaction and written then, always
// in that order, so two transactions cannot wait for each other there.
type Tx struct {
	db     *DB
	ctx    context.Context
	conn   *sql.Conn
	tx     *sql.Tx
	nowMS  int64
	rolls  map[rollKey]int64
	ages   map[ageKey]int64
	hist   []Entry
	writes bool
}

// Write runs f in one write transaction: all of it or nothing. On SQLite it begins immediate, so f may read and then write;
// on PostgreSQL it is READ COMMITTED and f takes row locks with ForUpdate. When PostgreSQL makes it the victim of a deadlock, f is
// run again from the start, at most three times: f must keep its results in variables that it resets.
// Codes: ERR_LEDGER_UNAVAILABLE, ERR_LEDGER_BUSY, ERR_LEDGER_FULL, ERR_LEDGER_READ_ONLY, ERR_LEDGER_VERSION, and what f returns.
func (db *DB) Write(ctx context.Context, f func(*Tx) error) error {
	for try := 0; ; try++ {
		err := db.run(ctx, true, f)
		if err == nil || try == 3 || !again(err) {
			return err
		}
	}
}

// Read runs f over one consistent view of the ledger.
func (db *DB) Read(ctx context.Context, f func(*Tx) error) error { return db.run(ctx, false, f) }

func (db *DB) run(ctx context.Context, writes bool, f func(*Tx) error) (err error) {
	pool, opts := db.read, &sql.TxOptions{}
	if writes {
		pool = db.write
	} else if db.dialect == Postgres {
		opts = &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
	}
	conn, err := pool.Conn(ctx)
	if err != nil {
		return db.fault("connect", err)
	}
	defer func() {
		if pipeline.CodeOf(err) == pipeline.CodeLedgerReadOnly && db.dialect == Postgres {
			// The server behind our connections was demoted: new ones may lead to its successor.
			_ = conn.Raw(func(any) error { return driver.ErrBadConn })
			db.forget()
		}
		conn.Close()
	}()
	tx, err := conn.BeginTx(ctx, opts)
	if err != nil {
		return db.fault("begin", err)
	}
	t := &Tx{db: db, ctx: ctx, conn: conn, tx: tx, nowMS: db.clock().UnixMilli(), writes: writes}
	done := false
	defer func() {
		if !done {
			tx.Rollback()
		}
	}()
	if err := f(t); err != nil {
		return err
	}
	if writes {
		if err := t.flush(); err != nil {
			return err
		}
	}
	done = true
	if err := tx.Commit(); err != nil {
		if ctx.Err() != nil && errors.Is(err, sql.ErrTxDone) {
			return ctx.Err() // it was rolled back because the caller gave up
		}
		return db.fault("commit", err)
	}
	return nil
}

// Context is the transaction's.
func (t *Tx) Context() context.Context { return t.ctx }

// NowMS is the time at which the transaction began.
func (t *Tx) NowMS() int64 { return t.nowMS }

// Dialect is which store it is, for the rare statement that cannot be written once.
func (t *Tx) Dialect() Dialect { return t.db.dialect }

// Exec runs a statement and returns how many rows it changed.
func (t *Tx) Exec(query string, args ...any) (int64, error) {
	r, err := t.tx.ExecContext(t.ctx, t.sql(query), bind(args)...)
	if err != nil {
		return 0, t.db.fault("write", err)
	}
	n, err := r.RowsAffected()
	return n, t.db.fault("write", err)
}

// Row reads one row into dest; false if there is none.
func (t *Tx) Row(query string, args []any, dest ...any) (bool, error) {
	err := t.tx.QueryRowContext(t.ctx, t.sql(query), bind(args)...).Scan(dest...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, t.db.fault("read", err)
}

// Each calls f for every row; f scans it.
func (t *Tx) Each(query string, args []any, f func(scan func(...any) error) error) error {
	rows, err := t.tx.QueryContext(t.ctx, t.sql(query), bind(args)...)
	if err != nil {
		return t.db.fault("read", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return t.db.fault("read", err)
		}
	}
	return t.db.fault("read", rows.Err())
}

// In is a condition "column is one of values" and its argument.
func (t *Tx) In(column string, values []string) (string, any) {
	clean := make([]string, len(values))
	for i, v := range values {
		clean[i] = Clean(v)
	}
	if t.db.dialect == Postgres {
		return column + " = ANY(?)", clean
	}
	text, _ := json.Marshal(clean) // strings that are valid UTF-8 always marshal
	return column + " IN (SELECT value FROM json_each(?))", string(text)
}

// ForUpdate is appended to a SELECT whose rows the transaction will change. SQLite has only one writer and needs nothing.
func (t *Tx) ForUpdate() string {
	if t.db.dialect == Postgres {
		return " FOR UPDATE"
	}
	return ""
}

// Lock makes transactions that lock the same name follow each other.
func (t *Tx) Lock(name string) error {
	if t.db.dialect != Postgres {
		return nil
	}
	_, err := t.Exec("SELECT pg_advisory_xact_lock(hashtextextended(?, 0))", "reprieve:"+name)
	return err
}

// Next takes n numbers of a named sequence and returns the first: without gaps, from 1.
func (t *Tx) Next(name string, n int64) (int64, error) {
	if _, err := t.Exec("INSERT INTO sequences (name, next) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET next = sequences.next + excluded.next", name, n); err != nil {
		return 0, err
	}
	var next int64
	_, err := t.Row("SELECT next FROM sequences WHERE name = ?", []any{name}, &next)
	return next - n + 1, err
}

func (t *Tx) sql(query string) string {
	if t.db.dialect == Postgres {
		return rebind(query)
	}
	return query
}

// rebind turns each "?" into "$1", "$2", ...: none of our statements holds one in a literal.
func rebind(query string) string {
	if strings.IndexByte(query, '?') < 0 {
		return query
	}
	b := make([]byte, 0, len(query)+16)
	n := int64(0)
	for i := 0; i < len(query); i++ {
		if query[i] != '?' {
			b = append(b, query[i])
			continue
		}
		n++
		b = append(b, '$')
		b = append(b, itoa(n)...)
	}
	return string(b)
}

// bind makes arguments that both stores take: clean text, numbers as int64.
func bind(args []any) []any {
	for i, a := range args {
		switch v := a.(type) {
		case string:
			if dirty(v) {
				args[i] = Clean(v)
			}
		case pipeline.ID:
			args[i] = Clean(string(v))
		case pipeline.Digest:
			args[i] = Clean(string(v))
		case pipeline.Code:
			args[i] = Clean(string(v))
		case bool:
			args[i] = int64(0)
			if v {
				args[i] = int64(1)
			}
		case int:
			args[i] = int64(v)
		case int32:
			args[i] = int64(v)
		case uint8:
			args[i] = int64(v)
		case uint16:
			args[i] = int64(v)
		case uint32:
			args[i] = int64(v)
		}
	}
	return args
}

func dirty(s string) bool { return strings.IndexByte(s, 0) >= 0 || !utf8.ValidString(s) }

// Clean makes text that both stores keep: valid UTF-8 without NUL. What was neither becomes U+FFFD.
func Clean(s string) string {
	if !dirty(s) {
		return s
	}
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Cut is Clean and at most n characters (not bytes) of it.
func Cut(s string, n int) string {
	s = Clean(s)
	if len(s) <= n {
		return s
	}
	for i := range s {
		if n == 0 {
			return s[:i]
		}
		n--
	}
	return s
}
