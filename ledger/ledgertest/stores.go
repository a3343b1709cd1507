// Package ledgertest opens fresh ledgers for tests: a SQLite file, and a database of its own on the PostgreSQL that
// REPRIEVE_TEST_POSTGRES names.
package ledgertest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // registers "pgx"

	"reprieve.dev/ledger"
)

// Env is the variable with the URL of a PostgreSQL where tests may create databases.
const Env = "REPRIEVE_TEST_POSTGRES"

// Store is one fresh ledger that several processes or connections may open.
type Store struct {
	URL     string
	Dialect ledger.Dialect
}

// Each runs f as a subtest for each store; PostgreSQL is skipped by name when there is none.
func Each(t *testing.T, f func(t *testing.T, s Store)) {
	t.Run("sqlite", func(t *testing.T) { f(t, SQLite(t)) })
	t.Run("postgres", func(t *testing.T) { f(t, Postgres(t)) })
}

// SQLite is a new file.
func SQLite(t testing.TB) Store {
	t.Helper()
	return Store{"sqlite:" + filepath.Join(t.TempDir(), "ledger.db"), ledger.SQLite}
}

// Postgres is a new database, dropped when the test ends.
func Postgres(t testing.TB) Store {
	t.Helper()
	base := os.Getenv(Env)
	if base == "" {
		t.Skipf("no PostgreSQL: %s is not set", Env)
	}
	u, err := url.Parse(base)
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", base)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 8)
	rand.Read(b)
	name := "reprieve_test_" + hex.EncodeToString(b)
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
		db.Close()
	})
	u.Path = "/" + name
	return Store{u.String(), ledger.Postgres}
}

// Open opens the store; it is closed when the test ends.
func (s Store) Open(t testing.TB, o ledger.Options) *ledger.DB {
	t.Helper()
	if o.Clock == nil {
		o.Clock = time.Now
	}
	db, err := ledger.Open(context.Background(), s.URL, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// SQL opens the store beside the ledger, for tests that damage it.
func (s Store) SQL(t testing.TB) *sql.DB {
	t.Helper()
	driver, name := "sqlite3", s.URL[len("sqlite:"):]
	if s.Dialect == ledger.Postgres {
		driver, name = "pgx", s.URL
	}
	db, err := sql.Open(driver, name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}
