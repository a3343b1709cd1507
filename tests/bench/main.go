// Command bench measures what the design promises, each against a baseline of the same run, and prints one JSON object a line:
//
//	{"name", "what", "unit", "value", "baseline", "ratio", "budget", "ok"}
//
// The lines are appended to bench-results.jsonl too. Arguments are prefixes of names: without one, everything runs.
// RECORDS and ROUNDS change the live benchmark, PROFILE=FILE writes a CPU profile of its pipeline, REPRIEVE_TEST_KAFKA names a broker to use instead of an own one.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// result is one line. Budget 0 is none: the line is a fact, not a promise.
type result struct {
	Name     string  `json:"name"`
	What     string  `json:"what"`
	Unit     string  `json:"unit"`
	Value    float64 `json:"value"`
	Baseline float64 `json:"baseline,omitempty"`
	Ratio    float64 `json:"ratio,omitempty"`
	Budget   float64 `json:"budget,omitempty"`
	OK       bool    `json:"ok"`
}

// atLeast judges the ratio, atMost the value.
func (r result) atLeast(budget float64) result {
	r.Budget, r.OK = budget, r.Ratio >= budget
	return r
}

func (r result) atMost(budget float64) result {
	r.Budget, r.OK = budget, r.Value <= budget
	return r
}

// entry makes the lines whose names it lists.
type entry struct {
	names []string
	run   func(ctx context.Context) ([]result, error)
}

// results is where lines are kept.
const results = "bench-results.jsonl"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	command := measure
	args := os.Args[1:]
	if len(args) > 0 {
		switch args[0] {
		case "copy":
			command, args = copyCommand, args[1:]
		case "profile":
			command, args = profileCommand, args[1:]
		}
	}
	err := command(ctx, args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, prefixes []string) error {
	entries := append(append(liveEntries(), peersEntry(), redriveEntry(), poisonEntry()), append(goEntries(), repairEntries()...)...)
	out, err := os.OpenFile(results, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	ran := false
	for _, e := range entries {
		if !slices.ContainsFunc(e.names, func(name string) bool { return wanted(name, prefixes) }) {
			continue
		}
		ran = true
		rs, err := e.run(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", e.names[0], err)
		}
		for _, r := range rs {
			if !wanted(r.Name, prefixes) {
				continue
			}
			r.Value, r.Baseline, r.Ratio = round(r.Value), round(r.Baseline), round(r.Ratio)
			line, err := json.Marshal(r)
			if err != nil {
				return err
			}
			fmt.Printf("%s\n", line)
			if _, err := fmt.Fprintf(out, "%s\n", line); err != nil {
				return err
			}
		}
	}
	if !ran {
		var names []string
		for _, e := range entries {
			names = append(names, e.names...)
		}
		return errors.New("no benchmark has such a name; there are " + strings.Join(names, ", "))
	}
	return nil
}

func wanted(name string, prefixes []string) bool {
	return len(prefixes) == 0 || slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}

// round keeps four digits: more would only be noise.
func round(v float64) float64 {
	r, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return r
}

// median is the middle of the rounds, or the mean of the two in the middle.
func median(v []float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(v))
	return (s[(len(s)-1)/2] + s[len(s)/2]) / 2
}

// setting reads a whole number from the environment.
func setting(name string, missing int) int {
	if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
		return n
	}
	return missing
}
