package ledger

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/mattn/go-sqlite3"

	"reprieve.dev/pipeline"
)

// fault says what an error of a driver means for the caller. Nothing was written whenever an error comes back, with one
// exception that only PostgreSQL has: a connection lost during COMMIT leaves it open, which is why every write of ours may be
// repeated.
func (db *DB) fault(doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*pipeline.Error](err); ok {
		return err
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return &pipeline.Error{Code: codeOf(err), Place: db.place, Text: doing + ": " + err.Error(), Cause: err}
}

func codeOf(err error) pipeline.Code {
	if e, ok := errors.AsType[sqlite3.Error](err); ok {
		return sqliteCode(e)
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return postgresCode(e.Code)
	}
	var ne net.Error
	var ce *pgconn.ConnectError
	switch {
	case errors.As(err, &ce), errors.As(err, &ne), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF),
		errors.Is(err, driver.ErrBadConn), errors.Is(err, net.ErrClosed), pgconn.Timeout(err), pgconn.SafeToRetry(err):
		return pipeline.CodeLedgerUnavailable
	case strings.Contains(err.Error(), "conn closed"), strings.Contains(err.Error(), "database is closed"):
		return pipeline.CodeLedgerUnavailable // both drivers say so in words only
	}
	return pipeline.CodeInternal
}

func sqliteCode(e sqlite3.Error) pipeline.Code {
	switch e.Code {
	case sqlite3.ErrBusy, sqlite3.ErrLocked:
		return pipeline.CodeLedgerBusy
	case sqlite3.ErrFull:
		return pipeline.CodeLedgerFull
	case sqlite3.ErrReadonly:
		return pipeline.CodeLedgerReadOnly
	case sqlite3.ErrCorrupt, sqlite3.ErrNotADB:
		return pipeline.CodeLedgerCorrupt
	case sqlite3.ErrCantOpen, sqlite3.ErrIoErr, sqlite3.ErrPerm, sqlite3.ErrNomem:
		return pipeline.CodeLedgerUnavailable
	case sqlite3.ErrError:
		if strings.Contains(e.Error(), "no such table") || strings.Contains(e.Error(), "no such column") {
			return pipeline.CodeLedgerVersion
		}
	}
	return pipeline.CodeInternal
}

func postgresCode(state string) pipeline.Code {
	switch state {
	case "53100":
		return pipeline.CodeLedgerFull
	case "25006":
		return pipeline.CodeLedgerReadOnly
	case "55P03", "40001", "40P01", "57014":
		return pipeline.CodeLedgerBusy
	case "42P01", "42703":
		return pipeline.CodeLedgerVersion
	case "XX001", "XX002":
		return pipeline.CodeLedgerCorrupt
	}
	switch {
	case strings.HasPrefix(state, "08"), strings.HasPrefix(state, "53"), strings.HasPrefix(state, "57P"),
		strings.HasPrefix(state, "28"), strings.HasPrefix(state, "58"), state == "3D000", state == "57000":
		return pipeline.CodeLedgerUnavailable
	}
	return pipeline.CodeInternal
}

// again tells whether the whole transaction may be tried once more: PostgreSQL chose it as the victim of a deadlock or of a
// serialisation conflict.
func again(err error) bool {
	e, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (e.Code == "40001" || e.Code == "40P01")
}
