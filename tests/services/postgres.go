package services

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// PostgresServer is a PostgreSQL server of its own, for tests that restart or kill one. Others share the one of Postgres.
type PostgresServer struct {
	URL string // of a role that may do everything, database postgres

	p   *process
	dir string
}

// StartPostgres starts a new server in a temporary folder, without durability: about a second. Debian's package is installed
// first if it is missing and we are root.
func StartPostgres() (*PostgresServer, error) {
	return newPostgres("initdb", "-U", "reprieve", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync", "--no-instructions")
}

// Replica starts a server that follows s by streaming replication and answers reads: about two seconds. What is written to s from now on
// arrives a moment later.
func (s *PostgresServer) Replica() (*PostgresServer, error) {
	return newPostgres("pg_basebackup", "-d", s.URL, "-R", "-X", "stream", "-c", "fast", "--no-sync")
}

// newPostgres makes a data folder with a tool of PostgreSQL and starts a server over it.
func newPostgres(tool string, args ...string) (*PostgresServer, error) {
	bin, err := postgresBin()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "reprieve-postgres-")
	if err != nil {
		return nil, err
	}
	as, err := unprivileged(dir)
	if err != nil {
		return nil, err
	}
	data := filepath.Join(dir, "data")
	prepare := exec.Command(filepath.Join(bin, tool), append([]string{"-D", data}, args...)...)
	prepare.Dir = dir
	prepare.Env = []string{"HOME=" + dir, "LC_ALL=C.UTF-8", "PATH=" + os.Getenv("PATH")}
	prepare.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	if err := run(prepare); err != nil {
		_ = os.RemoveAll(dir)
		return nil, err
	}
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &PostgresServer{dir: dir, URL: fmt.Sprintf("postgres://reprieve@127.0.0.1:%d/postgres?sslmode=disable", port)}
	serve := []string{filepath.Join(bin, "postgres"), "-D", data, "-p", strconv.Itoa(port)}
	for _, set := range []string{"listen_addresses=127.0.0.1", "unix_socket_directories=" + dir, "fsync=off",
		"synchronous_commit=off", "full_page_writes=off", "shared_buffers=64MB", "max_connections=200", "max_wal_size=4GB",
		"autovacuum_naptime=10s"} {
		serve = append(serve, "-c", set)
	}
	if s.p, err = start(spec{name: "postgres", dir: dir, remove: true, signal: "INT", as: as, args: serve,
		env: []string{"HOME=" + dir, "LC_ALL=C.UTF-8"}}); err != nil {
		return nil, err
	}
	err = s.p.await(30*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c, err := pgx.Connect(ctx, s.URL)
		if err != nil {
			return false
		}
		_ = c.Close(ctx)
		return true
	})
	if err != nil {
		_ = s.p.stop()
		return nil, err
	}
	return s, nil
}

// Unfollow makes a replica stop following: it keeps what has arrived.
func (s *PostgresServer) Unfollow() error {
	for _, q := range []string{"ALTER SYSTEM SET primary_conninfo = ''", "SELECT pg_reload_conf()"} {
		if err := statement(s.URL, q); err != nil {
			return err
		}
	}
	return s.p.await(30*time.Second, func() bool {
		var n int
		return s.ask("SELECT count(*) FROM pg_stat_wal_receiver", &n) == nil && n == 0
	})
}

// Promote makes a replica a server that takes writes.
func (s *PostgresServer) Promote() error {
	var ok bool
	if err := s.ask("SELECT pg_promote(true, 60)", &ok); err != nil || ok {
		return err
	}
	return errors.New("the replica was not promoted within a minute")
}

// Caught tells whether a replica has everything that the server it follows has written.
func (s *PostgresServer) Caught(up *PostgresServer) bool {
	var at string
	var ok bool
	return up.ask("SELECT pg_current_wal_lsn()::text", &at) == nil && s.ask("SELECT pg_last_wal_replay_lsn() >= '"+at+"'::pg_lsn", &ok) == nil && ok
}

// ask reads one value.
func (s *PostgresServer) ask(sql string, into any) error {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, s.URL)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	return c.QueryRow(ctx, sql).Scan(into)
}

// Kill ends it as a crash does.
func (s *PostgresServer) Kill() error { return s.p.kill() }

// Stop ends it, with its data.
func (s *PostgresServer) Stop() error { return s.p.stop() }

// Pid is its process id, for measuring.
func (s *PostgresServer) Pid() int { return s.p.pid }

// unprivileged gives dir to nobody when we are root: the server refuses to run as root.
func unprivileged(dir string) (*syscall.Credential, error) {
	if os.Getuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("nobody")
	if err != nil {
		return nil, err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, os.Chown(dir, uid, gid)
}

// postgresBin finds initdb and postgres.
func postgresBin() (string, error) {
	if dir := findPostgres(); dir != "" {
		return dir, nil
	}
	if os.Getuid() != 0 {
		return "", fmt.Errorf("PostgreSQL is not installed, and only root may install it")
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil {
		return "", fmt.Errorf("PostgreSQL is not installed, and apt-get is missing: %w", err)
	}
	_, err = cached("apt-postgresql", func(string) error {
		for _, args := range [][]string{{"update", "-qq"}, {"install", "-y", "-qq", "--no-install-recommends", "postgresql"}} {
			cmd := exec.Command(apt, args...)
			cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
			if err := run(cmd); err != nil {
				return err
			}
		}
		if findPostgres() == "" {
			return fmt.Errorf("no initdb below /usr/lib/postgresql after the installation")
		}
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("install PostgreSQL: %w", err)
	}
	return findPostgres(), nil
}

func findPostgres() string {
	if path, err := exec.LookPath("initdb"); err == nil {
		if real, err := filepath.EvalSymlinks(path); err == nil { // its neighbours may have no link
			path = real
		}
		return filepath.Dir(path)
	}
	dirs, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(dirs) == 0 {
		return ""
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	return filepath.Dir(slices.MaxFunc(dirs, func(a, b string) int { return version(a) - version(b) }))
}

// databaseURL is base with another database.
func databaseURL(base, name string) string {
	u, err := url.Parse(base)
	if err != nil {
		return base
	}
	u.Path = "/" + name
	return u.String()
}

// statement runs one statement on a server.
func statement(base, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := pgx.Connect(ctx, base)
	if err != nil {
		return err
	}
	defer func() { _ = c.Close(ctx) }()
	_, err = c.Exec(ctx, sql)
	return err
}

// quote makes an identifier of letters, digits and underscores.
func quote(name string) string {
	return pgx.Identifier{strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' {
			return r
		}
		return '_'
	}, strings.ToLower(name))}.Sanitize()
}
