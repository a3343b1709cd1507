package ledger

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/pressly/goose/v3"

	"reprieve.dev/pipeline"
)

//go:embed migrations/*.sql
var migrationFiles embed.FS

var bytesType = regexp.MustCompile(`\bBYTES\b`)

// render makes the statements of one migration for a store. Statements end with ';' at the end of a line.
func render(d Dialect, text string) []string {
	mine, other := "--"+d.String()+" ", "--"
	var b strings.Builder
	var out []string
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n ")
		if rest, ok := strings.CutPrefix(line, mine); ok {
			line = rest
		} else if strings.HasPrefix(line, other) || line == "" {
			continue
		}
		b.WriteString(line)
		b.WriteByte('\n')
		if strings.HasSuffix(line, ";") {
			sql := b.String()
			b.Reset()
			if d == Postgres {
				sql = bytesType.ReplaceAllString(sql, "BYTEA")
			} else {
				sql = bytesType.ReplaceAllString(sql, "BLOB")
			}
			out = append(out, strings.TrimSuffix(strings.TrimSpace(sql), ";"))
		}
	}
	return out
}

// migrations are the embedded files in order: NNNN_name.sql. A file is never changed once released.
func migrations(d Dialect) ([]*goose.Migration, int64, error) {
	names, err := fs.Glob(migrationFiles, "migrations/*.sql")
	if err != nil {
		return nil, 0, err
	}
	slices.Sort(names)
	var all []*goose.Migration
	var last int64
	for _, name := range names {
		text, err := migrationFiles.ReadFile(name)
		if err != nil {
			return nil, 0, err
		}
		base := strings.TrimPrefix(name, "migrations/")
		last, err = strconv.ParseInt(base[:strings.IndexByte(base, '_')], 10, 64)
		if err != nil {
			return nil, 0, err
		}
		statements := render(d, string(text))
		up := func(ctx context.Context, tx *sql.Tx) error {
			for _, s := range statements {
				if _, err := tx.ExecContext(ctx, s); err != nil {
					return err
				}
			}
			return nil
		}
		all = append(all, goose.NewGoMigration(last, &goose.GoFunc{RunTx: up}, nil))
	}
	return all, last, nil
}

// migrate brings the ledger to this version. Several processes may do so at once: one works, the others wait.
func (db *DB) migrate(ctx context.Context, o Options) error {
	all, newest, err := migrations(db.dialect)
	if err != nil {
		return db.fault("migrations", err)
	}
	have, err := db.version(ctx)
	if err != nil {
		return err
	}
	target := newest
	if o.UpTo > 0 {
		target = min(o.UpTo, newest)
	}
	switch {
	case have == target:
		return nil
	case have > newest:
		return pipeline.Errorf(pipeline.CodeLedgerVersion, db.place, "it has version %d and this program knows %d", have, newest).
			With("Use a newer release of reprieve.")
	case o.KeepVersion:
		return pipeline.Errorf(pipeline.CodeLedgerVersion, db.place, "it has version %d and this program needs %d", have, newest)
	}
	opts := []goose.ProviderOption{goose.WithGoMigrations(all...), goose.WithDisableGlobalRegistry(true), goose.WithTableName("ledger_version")}
	dialect := goose.DialectSQLite3
	if db.dialect == Postgres {
		dialect = goose.DialectPostgres
		unlock, err := db.lockSession(ctx)
		if err != nil {
			return err
		}
		defer unlock()
	} else {
		unlock, err := lockFile(strings.TrimPrefix(db.place, "sqlite:") + ".migrate")
		if err != nil {
			return &pipeline.Error{Code: pipeline.CodeLedgerReadOnly, Place: db.place, Text: "it cannot be migrated: " + err.Error(), Cause: err}
		}
		defer unlock()
	}
	p, err := goose.NewProvider(dialect, db.write, nil, opts...)
	if err != nil {
		return db.fault("migrate", err)
	}
	if _, err := p.UpTo(ctx, target); err != nil {
		var pe *goose.PartialError
		if errors.As(err, &pe) {
			err = pe.Err
		}
		return db.fault("migrate", err)
	}
	db.log.Info("ledger migrated", "ledger", db.place, "from", have, "to", target)
	return nil
}

// Version is the ledger's schema version and the one that this program needs.
func (db *DB) Version(ctx context.Context) (have, need int64, err error) {
	_, need, err = migrations(db.dialect)
	if err != nil {
		return 0, 0, db.fault("migrations", err)
	}
	have, err = db.version(ctx)
	return have, need, err
}

func (db *DB) version(ctx context.Context) (int64, error) {
	q := "SELECT count(*) FROM sqlite_master WHERE name = 'ledger_version'"
	if db.dialect == Postgres {
		q = "SELECT count(*) FROM pg_tables WHERE tablename = 'ledger_version' AND schemaname = current_schema()"
	}
	var n, v int64
	if err := db.read.QueryRowContext(ctx, q).Scan(&n); err != nil {
		return 0, db.fault("version", err)
	}
	if n == 0 {
		return 0, nil
	}
	if err := db.read.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM ledger_version").Scan(&v); err != nil {
		return 0, db.fault("version", err)
	}
	return v, nil
}

// SchemaDigest names the schema that this program makes: the hex SHA-256 of all migrations.
func SchemaDigest() string {
	h := sha256.New()
	names, _ := fs.Glob(migrationFiles, "migrations/*.sql") // the pattern is ours
	slices.Sort(names)
	for _, name := range names {
		text, _ := migrationFiles.ReadFile(name)
		h.Write(lp(nil, []byte(name), text))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// lockSession holds an advisory lock of PostgreSQL on a connection of its own until unlock.
func (db *DB) lockSession(ctx context.Context) (unlock func(), err error) {
	conn, err := db.write.Conn(ctx)
	if err != nil {
		return nil, db.fault("migrate", err)
	}
	const key = 0x72657072 // "repr": one for all ledgers of a database
	for _, q := range []string{"SET lock_timeout = 0", "SELECT pg_advisory_lock(" + itoa(key) + ")"} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			conn.Close()
			return nil, db.fault("migrate", err)
		}
	}
	return func() {
		for _, q := range []string{"SELECT pg_advisory_unlock(" + itoa(key) + ")", "RESET lock_timeout"} {
			if _, err := conn.ExecContext(context.WithoutCancel(ctx), q); err != nil {
				db.log.Warn("the lock of the migration is given back with its connection", "code", codeOf(err))
				break
			}
		}
		conn.Close()
	}, nil
}

// lockFile holds an exclusive lock on a file beside the database until unlock: its first connection is one process at a time, and
// so are goose's own check and the migration, which are two transactions.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		f.Close()
		return nil, err
	}
	return func() { f.Close() }, nil
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
