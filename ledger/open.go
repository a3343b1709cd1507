// Package ledger is the database of custody: SQLite for one machine, PostgreSQL for more, behind one implementation. It opens
// and migrates, runs transactions, keeps the hash-chained history, roll-ups, leases and intake offsets, and hides what
// differs between the two stores. What the rows mean is custody's.
package ledger

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/mattn/go-sqlite3" // registers "sqlite3"

	"reprieve.dev/pipeline"
)

// Dialect is which store it is.
type Dialect uint8

// The stores.
const (
	SQLite Dialect = iota + 1
	Postgres
)

// String is the dialect as URLs spell it.
func (d Dialect) String() string {
	if d == Postgres {
		return "postgres"
	}
	return "sqlite"
}

// Options are what Open may be told.
type Options struct {
	Clock pipeline.Clock // required
	Log   *slog.Logger   // nil: silent
	// Readers is the number of read connections, and on PostgreSQL of write connections too. Default 4.
	Readers int
	// BusyTimeout is how long a write waits for another process. Default 5 s; after it ERR_LEDGER_BUSY.
	BusyTimeout time.Duration
	// UpTo migrates to this version only; 0 is this program's. Nothing but migrations can be done with an older one.
	UpTo int64
	// KeepVersion refuses a ledger of an older version with ERR_LEDGER_VERSION instead of migrating it.
	KeepVersion bool
}

// DB is an open ledger. It is safe for concurrent use; several processes may open the same one.
type DB struct {
	dialect Dialect
	place   string // the URL without its password
	clock   pipeline.Clock
	log     *slog.Logger
	write   *sql.DB
	read    *sql.DB
	readers int // connections of a pool; of PostgreSQL

	mu    sync.Mutex
	weeks map[int64]bool // payload partitions known to exist
}

// Open opens the ledger at url, "sqlite:PATH" or "postgres://...", and brings it to this version. Close it.
// Codes: ERR_CONFIG_VALUE (not such a URL), ERR_LEDGER_UNAVAILABLE, ERR_LEDGER_VERSION (newer than this program, or older and
// KeepVersion), ERR_LEDGER_CORRUPT, ERR_LEDGER_READ_ONLY.
func Open(ctx context.Context, rawURL string, o Options) (*DB, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Readers <= 0 {
		o.Readers = 4
	}
	if o.BusyTimeout <= 0 {
		o.BusyTimeout = 5 * time.Second
	}
	db := &DB{clock: o.Clock, log: o.Log, weeks: map[int64]bool{}}
	var err error
	switch {
	case strings.HasPrefix(rawURL, "sqlite:"):
		err = db.openSQLite(strings.TrimPrefix(strings.TrimPrefix(rawURL, "sqlite:"), "//"), o)
	case strings.HasPrefix(rawURL, "postgres://"), strings.HasPrefix(rawURL, "postgresql://"):
		err = db.openPostgres(rawURL, o)
	default:
		err = pipeline.Errorf(pipeline.CodeConfigValue, "ledger", "a ledger URL starts with sqlite: or postgres://")
	}
	if err != nil {
		return nil, err
	}
	if err := db.connect(ctx); err != nil {
		db.Close()
		return nil, err
	}
	if err := db.migrate(ctx, o); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// connect makes the first connection, which turns a new SQLite file to its write-ahead log. SQLite refuses that at once, whatever
// the busy timeout, to one of two processes that try it together: the second would wait for what the first waits for. So they
// take turns.
func (db *DB) connect(ctx context.Context) error {
	if file, ok := strings.CutPrefix(db.place, "sqlite:"); ok && db.dialect == SQLite && !hasWriteAheadLog(file) {
		unlock, err := lockFile(file + ".migrate")
		if err != nil {
			return &pipeline.Error{Code: pipeline.CodeLedgerReadOnly, Place: db.place, Text: "it cannot be made: " + err.Error(), Cause: err}
		}
		defer unlock()
	}
	if err := db.write.PingContext(ctx); err != nil {
		return db.fault("open", err)
	}
	return nil
}

// hasWriteAheadLog tells whether a SQLite file is in that mode for certain: a process that has it open keeps the log beside it. The
// file itself must never be opened here: closing it would drop every lock that SQLite holds on it in this process, and the next
// other process that closes the ledger would take itself for the last and delete the log under this one
// (https://www.sqlite.org/howtocorrupt.html section 2.2).
func hasWriteAheadLog(path string) bool {
	_, err := os.Stat(path + "-wal")
	return err == nil
}

// Close closes all connections.
func (db *DB) Close() error {
	return errors.Join(db.write.Close(), db.read.Close())
}

// Dialect is which store it is.
func (db *DB) Dialect() Dialect { return db.dialect }

// Place is the ledger's URL without its password, for messages.
func (db *DB) Place() string { return db.place }

// Now is the ledger's clock.
func (db *DB) Now() time.Time { return db.clock() }

func (db *DB) openSQLite(path string, o Options) error {
	db.dialect, db.place = SQLite, "sqlite:"+path
	if path == "" || strings.HasPrefix(path, ":memory:") {
		return pipeline.Errorf(pipeline.CodeConfigValue, "ledger", "a sqlite ledger needs a path: sqlite:PATH")
	}
	if dir := filepath.Dir(path); dir != "." {
		if _, err := os.Stat(dir); err != nil {
			return &pipeline.Error{Code: pipeline.CodeLedgerUnavailable, Place: db.place, Text: "its folder does not exist", Cause: err}
		}
	}
	q := url.Values{
		"_busy_timeout": {itoa(o.BusyTimeout.Milliseconds())},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
		"_txlock":       {"immediate"}, // a state change is read-then-write: a deferred one fails at once when another wrote meanwhile
		"_cache_size":   {"-65536"},
		// Our statements are few and come again in each transaction; to compile one costs more than to run it over a row.
		"_stmt_cache_size": {"64"},
	}
	name := "file:" + (&url.URL{Path: path}).EscapedPath() + "?"
	w := sql.OpenDB(writing(name + q.Encode()))
	w.SetMaxOpenConns(1) // writers of this process queue here, fairly; other processes by the busy timeout
	q.Set("_txlock", "deferred")
	q.Set("_query_only", "1")
	q.Set("_cache_size", "-16384")
	r, err := sql.Open("sqlite3", name+q.Encode())
	if err != nil {
		w.Close()
		return db.fault("open", err)
	}
	r.SetMaxOpenConns(o.Readers)
	r.SetMaxIdleConns(o.Readers)
	db.write, db.read = w, r
	return nil
}

// writing makes connections to a SQLite file that write.
type writing string

// checkpointPages is how many pages of the write-ahead log are gathered before they are brought into the file: 32 MiB. SQLite's own
// thousand are fewer than a batch of letters changes in a large ledger, so that each commit would wait for the file, too, and a page of
// an index that the next batch changes again would be written each time.
const checkpointPages = 8192

// Connect opens one.
func (w writing) Connect(context.Context) (driver.Conn, error) {
	d := sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
		_, err := c.Exec("PRAGMA wal_autocheckpoint = "+itoa(checkpointPages), nil)
		return err
	}}
	return d.Open(string(w))
}

// Driver is the one that Connect asks.
func (writing) Driver() driver.Driver { return &sqlite3.SQLiteDriver{} }

func (db *DB) openPostgres(rawURL string, o Options) error {
	db.dialect, db.place = Postgres, "postgres"
	if u, err := url.Parse(rawURL); err == nil {
		db.place = u.Redacted()
	}
	cfg, err := pgx.ParseConfig(rawURL)
	if err != nil {
		return &pipeline.Error{Code: pipeline.CodeConfigValue, Place: "ledger", Text: "the postgres URL cannot be read"} // the cause may show the password
	}
	if cfg.ConnectTimeout == 0 {
		cfg.ConnectTimeout = 5 * time.Second
	}
	set := func(k, v string) {
		if _, ok := cfg.RuntimeParams[k]; !ok {
			cfg.RuntimeParams[k] = v
		}
	}
	set("application_name", "reprieve")
	set("timezone", "UTC")
	set("lock_timeout", itoa(o.BusyTimeout.Milliseconds()))
	set("idle_in_transaction_session_timeout", "60000")
	// Two pools: a write transaction may read beside itself (a key, to open what it has just read) and must not wait for a
	// connection that another such transaction holds.
	db.write, db.read = stdlib.OpenDB(*cfg), stdlib.OpenDB(*cfg)
	for _, pool := range []*sql.DB{db.write, db.read} {
		pool.SetMaxOpenConns(o.Readers)
		pool.SetMaxIdleConns(o.Readers)
		pool.SetConnMaxLifetime(10 * time.Minute) // no session outlives a fail-over by more
	}
	db.readers = o.Readers
	return nil
}

// forget closes the connections that nobody uses now.
func (db *DB) forget() {
	for _, pool := range []*sql.DB{db.write, db.read} {
		pool.SetMaxIdleConns(-1)
		pool.SetMaxIdleConns(db.readers)
	}
}
