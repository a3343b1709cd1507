package ledger

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/mattn/go-sqlite3"
)

// Insert writes many rows at once, the fastest way that the store has. A row that exists already fails the transaction.
func (t *Tx) Insert(table string, columns []string, rows [][]any) error {
	return t.InsertBeside(table, columns, rows)()
}

// InsertBeside is Insert while the caller computes something else: it must do nothing with the transaction, nor with the rows, before
// it has called wait.
func (t *Tx) InsertBeside(table string, columns []string, rows [][]any) (wait func() error) {
	if len(rows) == 0 {
		return func() error { return nil }
	}
	for _, r := range rows {
		bind(r)
	}
	insert := insertSQLite
	if t.db.dialect == Postgres {
		insert = insertPostgres
	}
	done := make(chan error, 1)
	go func() {
		done <- t.conn.Raw(func(conn any) error { return insert(t.ctx, conn, table, columns, rows) })
	}()
	return func() error { return t.db.fault("insert into "+table, <-done) }
}

func insertPostgres(ctx context.Context, conn any, table string, columns []string, rows [][]any) error {
	_, err := conn.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromRows(rows))
	return err
}

// insertSQLite gives rows to the driver itself: on the way through database/sql each of their values would be looked at and copied.
func insertSQLite(ctx context.Context, conn any, table string, columns []string, rows [][]any) error {
	// The driver runs a statement that could be interrupted on a goroutine of its own, which costs more than a row does. So each row is
	// written to its end, and whether to go on is asked between them.
	whole := context.WithoutCancel(ctx)
	prepared, err := conn.(*sqlite3.SQLiteConn).PrepareContext(whole, "INSERT INTO "+table+" ("+strings.Join(columns, ", ")+") VALUES (?"+strings.Repeat(", ?", len(columns)-1)+")")
	if err != nil {
		return err
	}
	in := prepared.(*sqlite3.SQLiteStmt)
	args := make([]driver.NamedValue, len(columns))
	for i := range args {
		args[i].Ordinal = i + 1
	}
	for _, r := range rows {
		if err = ctx.Err(); err != nil {
			break
		}
		for i, v := range r {
			switch v.(type) {
			case nil, int64, string, []byte:
			default:
				if v, err = driver.DefaultParameterConverter.ConvertValue(v); err != nil {
					return firstOf(err, in.Close())
				}
			}
			args[i].Value = v
		}
		if _, err = in.ExecContext(whole, args); err != nil {
			break
		}
	}
	return firstOf(err, in.Close())
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
