package custody_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/services"
)

// address is the one name under which the ledger is known; whose it is changes with a fail-over, for new connections.
type address struct {
	l  net.Listener
	mu sync.Mutex
	to string
}

func newAddress(t *testing.T, to string) *address {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	a := &address{l: l, to: to}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			a.mu.Lock()
			out, err := net.Dial("tcp", a.to)
			a.mu.Unlock()
			if err != nil {
				in.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
				go func() {
					_, _ = io.Copy(way[0], way[1]) // either end may go at any time
					way[0].Close()
					way[1].Close()
				}()
			}
		}
	}()
	return a
}

func (a *address) move(to string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.to = to
}

// hostOf is the host and port of a server.
func hostOf(t *testing.T, s *services.PostgresServer) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// told is a log that tests read.
type told struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (w *told) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}

func (w *told) has(text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.Contains(w.b.String(), text)
}

// A custodian whose PostgreSQL fails over in the middle says so, waits, and goes on by itself: with a primary that became read-only under
// its open sessions, and with a replica that had not everything, whose letters are read once more. Every letter is one item.
func TestAFailOverOfPostgresLosesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts two servers of PostgreSQL")
	}
	eventually := func(t *testing.T, what string, f func() bool) {
		t.Helper()
		for end := time.Now().Add(3 * time.Minute); !f(); time.Sleep(5 * time.Millisecond) { // between two looks at a server
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	exec := func(t *testing.T, s *services.PostgresServer, queries ...string) {
		t.Helper()
		db, err := sql.Open("pgx", s.URL)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		for _, q := range queries {
			if _, err := db.Exec(q); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, failOver := range map[string]func(t *testing.T, l *lab, log *told, a *address, primary, replica *services.PostgresServer, put func(n int), passed func()){
		"demoted under open sessions": func(t *testing.T, l *lab, log *told, a *address, primary, replica *services.PostgresServer, put func(n int), passed func()) {
			exec(t, primary, "ALTER SYSTEM SET default_transaction_read_only = on", "SELECT pg_reload_conf()")
			put(300)
			eventually(t, "the custodian says that the ledger is read-only", func() bool { return log.has(string(pipeline.CodeLedgerReadOnly)) })
			eventually(t, "the replica has everything", func() bool { return replica.Caught(primary) })
			if err := replica.Promote(); err != nil {
				t.Fatal(err)
			}
			exec(t, replica, "SELECT 1")
			a.move(hostOf(t, replica)) // sessions with the old primary stay open
		},
		"killed, and the replica is behind": func(t *testing.T, l *lab, log *told, a *address, primary, replica *services.PostgresServer, put func(n int), passed func()) {
			eventually(t, "the replica has everything", func() bool { return replica.Caught(primary) })
			if err := replica.Unfollow(); err != nil {
				t.Fatal(err)
			}
			put(300)
			passed() // taken by a primary that is gone in a moment
			if err := primary.Kill(); err != nil {
				t.Fatal(err)
			}
			a.move(hostOf(t, replica)) // which takes no writes yet
			if err := replica.Promote(); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the custodian sees what the ledger has lost", func() bool {
				l.Turn(time.Second)
				return log.has("it is read again")
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			primary, replica := services.PostgresPair(t)
			a := newAddress(t, hostOf(t, primary))
			u, err := url.Parse(primary.URL)
			if err != nil {
				t.Fatal(err)
			}
			u.Host = a.l.Addr().String()
			store := ledgertest.Store{URL: u.String(), Dialect: ledger.Postgres}
			l := newLab(t, store)
			log := &told{}
			k, _ := l.custodian(l.Items, func(o *custody.CustodianOptions) {
				o.Log = slog.New(slog.NewTextHandler(log, nil))
			})
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(log.b.String())
				}
			})
			n := int64(0)
			put := func(more int) {
				for range more {
					l.putLetter(n)
					n++
				}
			}
			passed := func() {
				t.Helper()
				eventually(t, "everything is in the ledger", func() bool {
					l.Turn(time.Second) // the custodian reviews once a second
					ok, err := l.Items.Passed(l.Ctx, "cluster-1", l.cl.Log(nil), l.ends())
					return err == nil && ok
				})
			}
			put(300)
			stop := run(k)
			passed()
			failOver(t, l, log, a, primary, replica, put, passed)
			put(300)
			passed()
			if err := stop(); err != nil {
				t.Fatal(err)
			}
			var items, letters int64
			if err := store.SQL(t).QueryRow("SELECT count(*), count(DISTINCT letter_offset * 2 + letter_partition) FROM items").Scan(&items, &letters); err != nil {
				t.Fatal(err)
			}
			if items != n || letters != n {
				t.Errorf("%d items of %d letters, want %d", items, letters, n)
			}
			for off := range n {
				id := l.Letter(off).Item
				s, err := l.Items.Show(context.Background(), custody.System("test"), id)
				if err != nil {
					t.Fatal(fmt.Errorf("letter %d: %w", off, err))
				}
				if s.Item.Sightings != 1 {
					t.Errorf("letter %d was seen %d times", off, s.Item.Sightings)
				}
			}
			mustVerify(t, l.Env)
		})
	}
}
