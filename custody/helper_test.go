package custody_test

import (
	"os"
	"testing"

	"reprieve.dev/ledger/ledgertest"
)

type benchStore struct {
	name string
	open func(testing.TB) ledgertest.Store
}

func stores(b *testing.B) []benchStore {
	out := []benchStore{{"sqlite", ledgertest.SQLite}}
	if os.Getenv(ledgertest.Env) != "" {
		out = append(out, benchStore{"postgres", ledgertest.Postgres})
	}
	return out
}
