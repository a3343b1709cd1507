package codec

import "reprieve.dev/pipeline"

// Mark says that a reader's default stands for a symbol that it does not know.
type Mark struct{ Path, Symbol, Default string }

type resolved struct{}

func (r *resolved) renamed(path string) (string, bool) { return "", false }

type resolveError struct{ place, what string }

func (e *resolveError) Error() string { return e.place + ": " + e.what }

func resolve(w, r *Schema) (*resolved, *resolveError) { return &resolved{}, nil }

func (v *avroView) resolve() *pipeline.Failure { return nil }
