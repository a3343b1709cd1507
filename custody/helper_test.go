package custody_test

import (
	"os"
	"strings"
	"testing"

	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
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

// headerOf makes headers of every shape: empty and binary names, null, empty and long values, repeats.
func headerOf(i int) pipeline.Header {
	h := pipeline.Header{Name: []string{"", "a", "\xff\x00", "a", strings.Repeat("n", 200)}[i%5]}
	switch i % 4 {
	case 1:
		h.Value = []byte{}
	case 2:
		h.Value = []byte{0, 0xff, byte(i)}
	case 3:
		h.Value = make([]byte, i)
	}
	return h
}
