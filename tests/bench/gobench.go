package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"reprieve.dev/tests/services"
)

// goBench is a line that comes from benchmarks of a package: the median of their runs.
type goBench struct {
	name, what string
	pkg, bench string // package and -bench expression
	unit       string // as the benchmark reports it
	value      string // name of the benchmark without the word Benchmark, as `go test` prints it
	baseline   string // "" is none; of several with a space between, the best
	beside     string // the unit of a baseline that the benchmark itself reports
	once       bool   // its world is too large to be made several times
	flat       bool   // it must not allocate
	less       bool   // less is better: the ratio is baseline by value
	least      float64
	most       float64
	postgres   bool
}

// goEntries are the benchmarks of packages. Budgets are those of the design; where it has none, the ratio must only not be a
// loss.
func goEntries() []entry {
	var out []entry
	for _, g := range []goBench{
		{name: "decode_redact", what: "decode an Avro invoice and redact seven places without an allocation, beside the fastest of hamba/avro, twmb/avro and goavro, " +
			"which decode, mask and encode again", pkg: "./pipeline/codec", bench: "DecodeRedact/(reprieve|hamba|twmb|goavro)/redact", unit: "ns/op",
			value: "DecodeRedact/reprieve/redact", baseline: "DecodeRedact/hamba/redact DecodeRedact/twmb/redact DecodeRedact/goavro/redact", less: true, least: 8, flat: true},
		{name: "redact_json", what: "decode a JSON invoice and look for secrets without an allocation, beside encoding/json decoding, the simplest walk and encoding again",
			pkg: "./pipeline/redact", bench: "RedactJSON/clean/(decode.redact|encoding.json)", unit: "ns/op", value: "RedactJSON/clean/decode+redact",
			baseline: "RedactJSON/clean/encoding-json", less: true, least: 4, flat: true},
		{name: "billing_stages", what: "the full stage list of the billing pipeline over a batch in memory, a record", pkg: "./worker",
			bench: "BillingStages", unit: "ns/record", value: "BillingStages"},
		{name: "partition_loop", what: "the engine itself: begin, compose, settle, a record", pkg: "./pipeline/engine", bench: "PartitionLoop", unit: "ns/record",
			value: "PartitionLoop"},
		{name: "groups_1m_sqlite", what: "the page of groups over 1,000,000 items", pkg: "./custody", bench: "Million/sqlite/groups", unit: "ns/op",
			value: "Million/sqlite/groups", most: 50e6, once: true},
		{name: "groups_1m_postgres", what: "the page of groups over 1,000,000 items", pkg: "./custody", bench: "Million/postgres/groups", unit: "ns/op",
			value: "Million/postgres/groups", most: 50e6, once: true, postgres: true},
		{name: "list_1m_sqlite", what: "the first page of a list over 1,000,000 items", pkg: "./custody", bench: "Million/sqlite/list", unit: "ns/op",
			value: "Million/sqlite/list", most: 20e6, once: true},
		{name: "list_1m_postgres", what: "the first page of a list over 1,000,000 items", pkg: "./custody", bench: "Million/postgres/list", unit: "ns/op",
			value: "Million/postgres/list", most: 20e6, once: true, postgres: true},
		{name: "needs_1m_sqlite", what: "find which of 1,000,000 open items outlive their source, key, schema or payload", pkg: "./custody", bench: "Million/sqlite/needs",
			unit: "ns/op", value: "Million/sqlite/needs", most: 30e9, once: true},
		{name: "needs_1m_postgres", what: "find which of 1,000,000 open items outlive their source, key, schema or payload", pkg: "./custody", bench: "Million/postgres/needs",
			unit: "ns/op", value: "Million/postgres/needs", most: 30e9, once: true, postgres: true},
		{name: "custodian_sqlite", what: "letters from their topic into custody, beside a bare insert of the same rows", pkg: "./custody",
			bench: "Custodian/sqlite", unit: "items/s", value: "Custodian/sqlite", beside: "bare-items/s", least: 0.6},
		{name: "custodian_postgres", what: "letters from their topic into custody, beside a bare insert of the same rows", pkg: "./custody",
			bench: "Custodian/postgres", unit: "items/s", value: "Custodian/postgres", beside: "bare-items/s", least: 0.6, postgres: true},
		{name: "custodian_memory", what: "most memory while taking letters into custody, the letters included", pkg: "./custody",
			bench: "CustodianMemory/sqlite", unit: "MiB", value: "CustodianMemory/sqlite", most: 300, once: true},
		{name: "ledger_verify_sqlite", what: "verify the whole ledger, by rows of its history", pkg: "./custody", bench: "Verify/sqlite", unit: "rows/s",
			value: "Verify/sqlite", least: 50_000},
		{name: "ledger_verify_postgres", what: "verify the whole ledger, by rows of its history", pkg: "./custody", bench: "Verify/postgres", unit: "rows/s",
			value: "Verify/postgres", least: 50_000, postgres: true},
		{name: "evidence_bytes", what: "evidence of an item beside its payload, PostgreSQL", pkg: "./custody", bench: "Evidence", unit: "B/item",
			value: "Evidence", most: 900, postgres: true},
		{name: "plan_1m", what: "plan a redrive of 1,000,000 items in PostgreSQL and store its manifest", pkg: "./redrive", bench: "PlanMillion",
			unit: "s", value: "PlanMillion", most: 30, once: true, postgres: true},
		{name: "plan_1m_memory", what: "most memory of the process while it plans 1,000,000 items", pkg: "./redrive", bench: "PlanMillion",
			unit: "MiB", value: "PlanMillion", most: 500, once: true, postgres: true},
		{name: "redrive_records", what: "redrive to reconciled, from PostgreSQL over a scripted topic", pkg: "./redrive", bench: "Run/PostgreSQL",
			unit: "items/s", value: "Run/PostgreSQL", least: 8000, postgres: true},
	} {
		out = append(out, entry{names: []string{g.name}, run: g.run})
	}
	return out
}

func (g goBench) run(ctx context.Context) ([]result, error) {
	env := os.Environ()
	if g.postgres && os.Getenv("REPRIEVE_TEST_POSTGRES") == "" {
		db, err := services.StartPostgres()
		if err != nil {
			return nil, err
		}
		defer func() { _ = db.Stop() }() // its folder goes with it
		env = append(env, "REPRIEVE_TEST_POSTGRES="+db.URL)
	}
	rounds := setting("ROUNDS", 3) + 1
	if g.once {
		rounds = 1
	}
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^Benchmark"+g.bench, "-benchtime", "300ms", "-count", strconv.Itoa(rounds), g.pkg)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Env = &out, os.Stderr, env
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out.String())
	}
	r := result{Name: g.name, What: g.what, Unit: g.unit, OK: true}
	var err error
	if r.Value, err = reported(out.String(), g.value, g.unit); err != nil {
		return nil, err
	}
	if g.baseline != "" || g.beside != "" {
		for _, name := range strings.Fields(cmp.Or(g.baseline, g.value)) {
			v, err := reported(out.String(), name, cmp.Or(g.beside, g.unit))
			if err != nil {
				return nil, err
			}
			if r.Baseline == 0 || g.less == (v < r.Baseline) {
				r.Baseline = v
			}
		}
		if r.Ratio = r.Value / r.Baseline; g.less {
			r.Ratio = r.Baseline / r.Value
		}
	}
	switch {
	case g.most > 0:
		r = r.atMost(g.most)
	case r.Baseline > 0 && g.least > 0:
		r = r.atLeast(g.least)
	case g.least > 0:
		r.Budget, r.OK = g.least, r.Value >= g.least
	}
	if g.flat {
		n, err := reported(out.String(), g.value, "allocs/op")
		if err != nil {
			return nil, err
		}
		r.OK = r.OK && n == 0
	}
	return []result{r}, nil
}

// reported reads the runs of one benchmark from what `go test -bench` prints, drops the first, and returns the median.
func reported(text, name, unit string) (float64, error) {
	var runs []float64
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		what, _ := strings.CutPrefix(f[0], "Benchmark")
		if i := strings.LastIndexByte(what, '-'); i > 0 && strings.Trim(what[i+1:], "0123456789") == "" {
			what = what[:i] // the number of cores
		}
		if what != name {
			continue
		}
		for i := 2; i+1 < len(f); i += 2 {
			if f[i+1] != unit {
				continue
			}
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				return 0, fmt.Errorf("%s: %w", name, err)
			}
			runs = append(runs, v)
		}
	}
	if len(runs) == 0 {
		return 0, fmt.Errorf("no benchmark %s with %s in:\n%s", name, unit, text)
	}
	if len(runs) > 1 {
		runs = runs[1:]
	}
	return median(runs), nil
}
