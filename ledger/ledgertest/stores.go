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
	"strings"
	"testing"
	"time"

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

// Postgres is a new database with the ledger in it, dropped when the test ends.
func Postgres(t testing.TB) Store {
	t.Helper()
	s, db := fresh(t)
	template := template(t, db)
	create(t, db, s.name(), "TEMPLATE "+template)
	return s.Store
}

// EmptyPostgres is a new database with nothing in it.
func EmptyPostgres(t testing.TB) Store {
	t.Helper()
	s, db := fresh(t)
	create(t, db, s.name(), "")
	return s.Store
}

type database struct {
	Store
	u *url.URL
}

func (d database) name() string { return strings.TrimPrefix(d.u.Path, "/") }

func fresh(t testing.TB) (database, *sql.DB) {
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
	t.Cleanup(func() { db.Close() })
	b := make([]byte, 8)
	rand.Read(b)
	u.Path = "/reprieve_test_" + hex.EncodeToString(b)
	return database{Store{u.String(), ledger.Postgres}, u}, db
}

func create(t testing.TB, db *sql.DB, name, how string) {
	t.Helper()
	if _, err := db.Exec("CREATE DATABASE " + name + " " + how); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name + " WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
}

// template is a database that was migrated once, for all tests of this version: copying it is much faster than migrating.
func template(t testing.TB, db *sql.DB) string {
	t.Helper()
	ctx := context.Background()
	name := "reprieve_template_" + ledger.SchemaDigest()[:16]
	conn, err := db.Conn(ctx) // the lock belongs to the connection
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(q string) {
		t.Helper()
		if _, err := conn.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	exec("SELECT pg_advisory_lock(7265)")
	defer exec("SELECT pg_advisory_unlock(7265)")
	var n int
	if err := conn.QueryRowContext(ctx, "SELECT count(*) FROM pg_database WHERE datname = $1", name).Scan(&n); err != nil {
		t.Fatal(err)
	}
	if n == 1 {
		return name
	}
	half := name + "_half" // a test that was killed here leaves no template that is half migrated
	exec("DROP DATABASE IF EXISTS " + half)
	exec("CREATE DATABASE " + half)
	u, err := url.Parse(os.Getenv(Env))
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + half
	l, err := ledger.Open(ctx, u.String(), ledger.Options{Clock: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	exec("ALTER DATABASE " + half + " RENAME TO " + name)
	return name
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
