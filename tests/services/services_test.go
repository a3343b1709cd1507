package services_test

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"reprieve.dev/tests/services"
)

func TestPostgresGivesEachTestADatabaseOfItsOwn(t *testing.T) {
	prepare := func(url string) error {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return err
		}
		defer c.Close(t.Context())
		_, err = c.Exec(t.Context(), "CREATE TABLE seen (n int)")
		return err
	}
	a, b := services.PostgresFrom(t, "own", prepare), services.PostgresFrom(t, "own", prepare)
	if a == b {
		t.Fatalf("two tests share %s", a)
	}
	for _, url := range []string{a, b} {
		c, err := pgx.Connect(t.Context(), url)
		if err != nil {
			t.Fatal(err)
		}
		var before int
		if err := c.QueryRow(t.Context(), "WITH i AS (INSERT INTO seen VALUES (1)) SELECT count(*) FROM seen").Scan(&before); err != nil {
			t.Fatal(err)
		}
		if before != 0 {
			t.Errorf("the database is not fresh: %d rows", before)
		}
		_ = c.Close(t.Context())
	}
}

func TestKafkaSurvivesAKill(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM twice")
	}
	services.Kafka(t) // skips or fails with the reason when it cannot be had
	k, err := services.StartKafka(services.KafkaOptions{Dir: filepath.Join(t.TempDir(), "k")})
	if err != nil {
		t.Fatal(err)
	}
	at := k.Bootstrap
	if err := k.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	if k.Bootstrap != at {
		t.Errorf("it came back at %s, was at %s", k.Bootstrap, at)
	}
	if c, err := net.Dial("tcp", k.Bootstrap); err != nil {
		t.Error(err)
	} else {
		_ = c.Close()
	}
	pid := k.Pid()
	if err := k.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, 0); err == nil {
		t.Errorf("process %d is still there after Stop", pid)
	}
}

func TestRegistryAnswers(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a JVM")
	}
	url := services.Registry(t)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/subjects", nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Errorf("GET /subjects: %s", r.Status)
	}
}

func TestAServerOfTheEnvironmentIsUsed(t *testing.T) {
	t.Setenv("REPRIEVE_TEST_KAFKA", "127.0.0.1:1")
	if got := services.Kafka(t); got != "127.0.0.1:1" {
		t.Errorf("got %s", got)
	}
}
