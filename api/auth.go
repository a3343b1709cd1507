package api

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"net/http"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// Tokens are the callers that authenticate by a bearer token. Only hashes are kept.
type Tokens struct{ callers []caller }

type caller struct {
	hash [sha256.Size]byte
	who  custody.Actor
}

// NewTokens reads the tokens of a worker file: the token itself, or "sha256:" and the hex of its hash.
func NewTokens(list []config.Token) (*Tokens, error) {
	t := &Tokens{}
	for _, c := range list {
		tenants := c.Tenants
		if len(tenants) == 0 {
			tenants = []string{custody.AllTenants}
		}
		k := caller{who: custody.Actor{Subject: c.Subject, Roles: c.Roles, Tenants: tenants, Via: "api"}}
		text := c.Token.Reveal()
		if hexed, ok := strings.CutPrefix(text, "sha256:"); ok {
			if n, err := hex.Decode(k.hash[:], []byte(hexed)); err != nil || n != sha256.Size {
				return nil, pipeline.Errorf(pipeline.CodeConfigValue, "http.tokens "+c.Subject, "the hash of the token is not 64 hex digits")
			}
		} else {
			k.hash = sha256.Sum256([]byte(text))
		}
		t.callers = append(t.callers, k)
	}
	return t, nil
}

// of is whose token a request carries. It compares with all, each in constant time.
func (t *Tokens) of(r *http.Request) (custody.Actor, error) {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	token = strings.TrimSpace(token)
	if !strings.EqualFold(scheme, "bearer") || token == "" {
		return custody.Actor{}, pipeline.Errorf(pipeline.CodeUnauthenticated, "Authorization", "the request carries no bearer token")
	}
	sum := sha256.Sum256([]byte(token))
	found := -1
	for i := range t.callers {
		if subtle.ConstantTimeCompare(sum[:], t.callers[i].hash[:]) == 1 {
			found = i
		}
	}
	if found < 0 {
		return custody.Actor{}, pipeline.Errorf(pipeline.CodeUnauthenticated, "Authorization", "nobody has this token")
	}
	return t.callers[found].who, nil
}

type actorKey struct{}

// authenticated passes on only requests with a token, and with whose it is.
func (t *Tokens) authenticated(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who, err := t.of(r)
		if err != nil {
			problemOf(err).write(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), actorKey{}, who)))
	})
}

// actor is who calls; handlers behind authenticated have one.
func actor(ctx context.Context) custody.Actor {
	who, _ := ctx.Value(actorKey{}).(custody.Actor)
	return who
}
