package api

import (
	"crypto/sha256"
	"sync"

	"reprieve.dev/pipeline"
)

// mostKeys is how many idempotency keys are remembered.
const mostKeys = 10_000

// answers remembers what was answered under an idempotency key, so that a repeated request is not written twice. It is a
// convenience: the same record is the same item anyway, in any process.
type answers struct {
	mu    sync.Mutex
	byKey map[string]*answer
	order []string
}

type answer struct {
	digest [sha256.Size]byte
	ids    []pipeline.ID
}

// look returns the answer to the same request under the key, or nil. Codes: ERR_IDEMPOTENCY_KEY_REUSED.
func (a *answers) look(subject, key string, body []byte) ([]pipeline.ID, error) {
	if key == "" {
		return nil, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	known := a.byKey[subject+"\x00"+key]
	switch {
	case known == nil:
		return nil, nil
	case known.digest != sha256.Sum256(body):
		return nil, pipeline.Errorf(pipeline.CodeIdempotencyReused, "Idempotency-Key", "another request had this key before")
	}
	return known.ids, nil
}

func (a *answers) keep(subject, key string, body []byte, ids []pipeline.ID) {
	if key == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	k := subject + "\x00" + key
	if a.byKey == nil {
		a.byKey = map[string]*answer{}
	}
	if a.byKey[k] == nil {
		if len(a.order) == mostKeys {
			delete(a.byKey, a.order[0])
			a.order = a.order[1:]
		}
		a.order = append(a.order, k)
	}
	a.byKey[k] = &answer{sha256.Sum256(body), ids}
}
