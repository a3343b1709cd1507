package services

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// once starts a server for the whole test process. It ends with the process: its supervisor sees our end of the pipe close.
type once struct {
	mu  sync.Mutex
	ran bool
	at  string
	err error
}

func (o *once) get(env string, start func() (string, error)) (string, error) {
	if at := os.Getenv(env); at != "" {
		return at, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ran {
		o.ran = true
		o.at, o.err = start()
	}
	return o.at, o.err
}

// The servers of this process. They are state of the package because a process shares them; nothing else is.
var (
	sharedKafka    once
	sharedPostgres once
	sharedRegistry once
	templates      sync.Map // key -> *once
	databases      atomic.Int64
)

// missing fails the test where the server must be there, else skips it.
func missing(t TB, what string, err error, must bool) {
	t.Helper()
	if must && os.Getenv("CI") == "true" {
		t.Fatalf("%s cannot be started: %v", what, err)
	}
	t.Skipf("no %s: %v", what, err)
}

// Kafka returns the bootstrap servers of a real Kafka. It is shared: use names of your own.
func Kafka(t TB) string {
	t.Helper()
	at, err := sharedKafka.get("REPRIEVE_TEST_KAFKA", func() (string, error) {
		k, err := StartKafka(KafkaOptions{})
		if err != nil {
			return "", err
		}
		return k.Bootstrap, nil
	})
	if err != nil {
		missing(t, "Apache Kafka", err, true)
	}
	return at
}

// Postgres returns the URL of an empty database of this test alone; it is dropped at the test's end.
func Postgres(t TB) string {
	t.Helper()
	return PostgresFrom(t, "", nil)
}

// PostgresPair starts a server and a replica that follows it, of this test alone: for tests of fail-over.
func PostgresPair(t TB) (primary, replica *PostgresServer) {
	t.Helper()
	stop := func(s *PostgresServer) func() {
		return func() { _ = s.Stop() } // the test may have killed it
	}
	primary, err := StartPostgres()
	if err != nil {
		missing(t, "PostgreSQL", err, true)
	}
	t.Cleanup(stop(primary))
	if replica, err = primary.Replica(); err != nil {
		t.Fatalf("start a replica: %v", err)
	}
	t.Cleanup(stop(replica))
	return primary, replica
}

// PostgresFrom is Postgres, with a database that is a copy of a template (0.1 s). prepare fills the template once for the
// server; key names it and what it was made from, such as a digest of the migrations.
func PostgresFrom(t TB, key string, prepare func(url string) error) string {
	t.Helper()
	base, err := sharedPostgres.get("REPRIEVE_TEST_POSTGRES", func() (string, error) {
		s, err := StartPostgres()
		if err != nil {
			return "", err
		}
		return s.URL, nil
	})
	if err != nil {
		missing(t, "PostgreSQL", err, true)
	}
	template := "template1"
	if prepare != nil {
		o, _ := templates.LoadOrStore(key, new(once))
		template, err = o.(*once).get("", func() (string, error) {
			name := fmt.Sprintf("tpl_%s_%d", key, os.Getpid())
			if err := statement(base, "CREATE DATABASE "+quote(name)); err != nil {
				return "", err
			}
			return name, prepare(databaseURL(base, unquoted(name)))
		})
		if err != nil {
			t.Fatalf("prepare the template database: %v", err)
		}
	}
	name := fmt.Sprintf("t_%d_%d_%d", os.Getpid(), databases.Add(1), time.Now().UnixNano())
	if err := statement(base, "CREATE DATABASE "+quote(name)+" TEMPLATE "+quote(template)+" STRATEGY file_copy"); err != nil {
		t.Fatalf("create a database: %v", err)
	}
	t.Cleanup(func() {
		if err := statement(base, "DROP DATABASE IF EXISTS "+quote(name)+" WITH (FORCE)"); err != nil {
			t.Logf("drop the database: %v", err)
		}
	})
	return databaseURL(base, name)
}

// unquoted is the name that quote makes, without quotes.
func unquoted(name string) string { q := quote(name); return q[1 : len(q)-1] }

// Registry returns the base URL of a real registry with the Confluent API. It is shared: use subjects of your own.
func Registry(t TB) string {
	t.Helper()
	at, err := sharedRegistry.get("REPRIEVE_TEST_REGISTRY", func() (string, error) {
		s, err := StartRegistry(RegistryOptions{})
		if err != nil {
			return "", err
		}
		return s.URL, nil
	})
	if err != nil {
		missing(t, "schema registry", err, false)
	}
	return at
}
