// Package custody is the law over quarantined records: which states an item may take, who may do what, what counts as
// evidence, where its faithful bytes are, and when it may go. It writes to a ledger; a custodian fills it from dead-letter topics.
package custody

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Opener opens sealed bytes (CONTRACTS 4); seal.Opener is one.
type Opener interface {
	Open(tenant, enc string, sealed, aad []byte) ([]byte, error)
}

// Options are what an Items is made with.
type Options struct {
	Clock    pipeline.Clock    // required
	Identity *seal.IdentityKey // required: ids and keyed digests
	Ring     *seal.Ring        // signs heads of the history; nil: they are not signed
	Log      *slog.Logger      // nil: silent
	Roles    Roles             // nil: DefaultRoles
	Opener   Opener            // nil: sealed payloads cannot be revealed
	Sealer   pipeline.Sealer   // nil: repairs of sealed items are refused
	// Source reads the topics of a cluster for faithful bytes; nil answers that there is none.
	Source func(cluster string) (pipeline.Log, bool)
	// Schemas tells whether the registry of a pipeline knows a schema ("avro:7", "guid:..."); nil: nobody is asked.
	Schemas func(ctx context.Context, pipeline, schema string) (bool, error)
	// Owner says who owns a new item; nil: nobody until it is assigned.
	Owner func(*Item) string
	// Keep says of a new item its data class and how long it stays, once and for all; 0: whoever asks says it later (Retention.Fix).
	Keep func(*Item) (data string, keep time.Duration)
	// Large is where large payload values stand.
	Large Large
	// ChunkItems is how many items a bulk change writes in one transaction. Default 500.
	ChunkItems int
}

// Items is custody over one ledger. It is safe for concurrent use; other processes may use the same ledger.
type Items struct {
	db      *ledger.DB
	id      *seal.IdentityKey
	ring    *seal.Ring
	log     *slog.Logger
	roles   Roles
	clock   pipeline.Clock
	opener  Opener
	sealer  pipeline.Sealer
	source  func(string) (pipeline.Log, bool)
	schemas func(ctx context.Context, pipeline, schema string) (bool, error)
	chunk   int
	owner   func(*Item) string
	keep    func(*Item) (string, time.Duration)
	large   Large
}

// New makes custody over db. It starts nothing and keeps db, which the caller closes.
func New(db *ledger.DB, o Options) *Items {
	c := &Items{db: db, id: o.Identity, ring: o.Ring, log: o.Log, roles: o.Roles, clock: o.Clock, opener: o.Opener, sealer: o.Sealer,
		source: o.Source, schemas: o.Schemas, chunk: o.ChunkItems, owner: o.Owner, keep: o.Keep, large: o.Large}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	if c.roles == nil {
		c.roles = DefaultRoles()
	}
	if c.source == nil {
		c.source = func(string) (pipeline.Log, bool) { return nil, false }
	}
	if c.chunk <= 0 {
		c.chunk = 500
	}
	return c
}

// Ledger is the database below.
func (c *Items) Ledger() *ledger.DB { return c.db }

// Roles is what each role permits.
func (c *Items) Roles() Roles { return c.roles }

// Within runs f in one write transaction of the ledger: for callers that change items together with rows of their own.
func (c *Items) Within(ctx context.Context, f func(*ledger.Tx) error) error {
	return c.db.Write(ctx, f)
}

// Check refuses what the actor may not do and writes the refusal into the history. Redrive and api call it for their own
// methods. An empty tenant asks for the permission alone. Codes: ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) Check(ctx context.Context, who Actor, p Permission, tenant string) error {
	return c.refused(ctx, who, string(p), "", tenant, c.roles.check(who, p, tenant))
}

// CheckWhole is Check for what is done to the whole ledger, or tells of all of it: it takes an actor of all tenants. Codes:
// ERR_PERMISSION_DENIED, ERR_TENANT_FORBIDDEN.
func (c *Items) CheckWhole(ctx context.Context, who Actor, p Permission) error {
	return c.refused(ctx, who, string(p), "", "", c.roles.whole(who, p))
}

// refused writes a refusal into the history and returns it. Only refusals of rights are written: a wrong state is no
// attempt at anything.
func (c *Items) refused(ctx context.Context, who Actor, action, item, tenant string, err error) error {
	switch pipeline.CodeOf(err) {
	case pipeline.CodePermissionDenied, pipeline.CodeTenantForbidden:
	default:
		return err
	}
	werr := c.db.Write(ctx, func(tx *ledger.Tx) error {
		tx.Append(ledger.Entry{Tenant: tenant, Item: item, Event: "refused", Actor: who.Subject,
			Detail: map[string]string{"action": action, "code": string(pipeline.CodeOf(err)), "roles": strings.Join(who.Roles, ","), "via": who.Via}})
		return nil
	})
	if werr != nil {
		c.log.Warn("a refusal could not be written to the ledger", "action", action, "subject", who.Subject, "code", pipeline.CodeOf(werr))
	}
	return err
}
