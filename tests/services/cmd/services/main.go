// Command services starts the real servers that tests ask for and prints the environment that names them, so that many test
// binaries share one set:
//
//	services kafka postgres registry
//
// It prints a line "export NAME=VALUE" for each, then the line "ready", and runs until its standard input ends or it is told
// to stop. Servers that cannot be started are named on standard error; kafka and postgres then make it exit with 1.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"reprieve.dev/tests/services"
)

type server struct {
	env  string
	must bool
	run  func() (at string, stop func() error, err error)
}

var servers = map[string]server{
	"kafka": {"REPRIEVE_TEST_KAFKA", true, func() (string, func() error, error) {
		k, err := services.StartKafka(services.KafkaOptions{})
		if err != nil {
			return "", nil, err
		}
		return k.Bootstrap, k.Stop, nil
	}},
	"postgres": {"REPRIEVE_TEST_POSTGRES", true, func() (string, func() error, error) {
		p, err := services.StartPostgres()
		if err != nil {
			return "", nil, err
		}
		return p.URL, p.Stop, nil
	}},
	"registry": {"REPRIEVE_TEST_REGISTRY", false, func() (string, func() error, error) {
		r, err := services.StartRegistry(services.RegistryOptions{})
		if err != nil {
			return "", nil, err
		}
		return r.URL, r.Stop, nil
	}},
}

func main() { os.Exit(run(os.Args[1:])) }

func run(names []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		stops  []func() error
		failed int
	)
	for _, name := range names {
		s, ok := servers[name]
		if !ok {
			fmt.Fprintf(os.Stderr, "services: %q is none of kafka, postgres, registry\n", name)
			return 2
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			at, stop, err := s.run()
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Fprintf(os.Stderr, "services: %s: %v\n", name, err)
				if s.must {
					failed = 1
				}
				return
			}
			stops = append(stops, stop)
			fmt.Printf("export %s='%s'\n", s.env, at)
		}()
	}
	wg.Wait()
	if failed == 0 {
		fmt.Println("ready")
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
		<-ctx.Done()
	}
	for _, stop := range stops {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_ = stop()
		}()
	}
	wg.Wait()
	return failed
}
