package main

import (
	"context"
	"os"
	"os/user"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
	"reprieve.dev/worker"
)

// desk is where a person works on items: the ledger, custody over it, and who they are.
type desk struct {
	plan   *worker.Plan
	keys   worker.Keys
	db     *ledger.DB
	items  *custody.Items
	who    custody.Actor
	signer *seal.Signer  // nil without a credential file
	vault  *worker.Vault // nil: the worker file names no keeper
	url    string        // of the ledger
	logs   *worker.Logs  // topics of the clusters that the worker file names
	close  []func()
}

// opening says what a desk needs.
type opening struct {
	ledger     string // by name; "" is the only one
	credential string
	pipelines  bool // their files are needed too
	create     bool // a file that is not there is made
}

// flags adds the flags that every verb over the ledger has.
func (o *opening) flags(c *cobra.Command, a *app) {
	c.Flags().StringVar(&o.ledger, "ledger", "", "name of the ledger in the worker file, if there are several")
	c.Flags().StringVar(&o.credential, "credential", a.envOr("REPRIEVE_CREDENTIAL", ""), "your private key file: it says who you are (REPRIEVE_CREDENTIAL)")
}

// open opens the desk. Close it.
func (a *app) open(ctx context.Context, o opening) (_ *desk, err error) {
	d := &desk{}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if o.pipelines {
		d.plan, err = a.load(nil)
	} else {
		d.plan, err = a.loadWorker()
	}
	if err != nil {
		return nil, err
	}
	if d.keys, err = worker.NewKeys(d.plan.Config.Keys); err != nil {
		return nil, err
	}
	if d.who, d.signer, err = a.actor(d.plan, o.credential); err != nil {
		return nil, err
	}
	url, err := d.plan.LedgerURL(o.ledger)
	if err != nil {
		return nil, err
	}
	d.url = url
	if path, ok := strings.CutPrefix(url, "sqlite:"); ok && !o.create {
		if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() && info.Size() == 0 { // a database made here would read as "nothing waits"
			return nil, pipeline.Errorf(pipeline.CodeLedgerUnavailable, path, "there is no ledger file here, or nothing is in it").
				With("correct ledgers in " + d.plan.File + "; reprieve run or reprieve ledger migrate makes a new one")
		}
	}
	if d.db, err = ledger.Open(ctx, url, ledger.Options{Clock: a.clock, Log: a.log()}); err != nil {
		return nil, err
	}
	d.close = append(d.close, func() { _ = d.db.Close() }) // nothing is left to be written
	d.logs = d.plan.Logs(ctx)
	d.close = append(d.close, d.logs.Close)
	large, closing := d.plan.Large()
	d.close = append(d.close, closing)
	co := custody.Options{Large: large, Clock: a.clock, Identity: d.keys.Identity, Ring: d.keys.Ring, Log: a.log(), Source: d.logs.Of, Schemas: d.plan.Schemas(a.clock), Owner: d.plan.Owner, Keep: d.plan.Retention().Fix, Roles: d.plan.Roles()}
	if d.plan.Vaulted() {
		d.vault = d.plan.OpenVault(ctx, custody.New(d.db, co), a.clock)
		d.close = append(d.close, func() { _ = d.vault.Close() }) // it only asked
		co.Opener, co.Sealer = d.vault.Opener, d.vault.Sealer
	}
	d.items = custody.New(d.db, co)
	d.who, err = d.items.Granted(ctx, d.who)
	return d, err
}

// ledgerURL is where the ledger is.
func (d *desk) ledgerURL() string { return d.url }

// Close frees what the desk holds.
func (d *desk) Close() {
	for _, f := range slices.Backward(d.close) {
		f()
	}
	d.close = nil
}

// actor is who runs the program: the person whose key is registered as an approver, else the user of this machine as a local
// operator. The subject never comes from a flag's text.
func (a *app) actor(plan *worker.Plan, credential string) (custody.Actor, *seal.Signer, error) {
	if credential == "" {
		name := "unknown"
		if u, err := user.Current(); err == nil {
			name = u.Username
		}
		return custody.Actor{Subject: "local:" + name, Roles: []string{"operator", "auditor"}, Tenants: []string{custody.AllTenants}, Via: "cli"}, nil, nil
	}
	s, err := seal.ReadSigner(credential)
	if err != nil {
		return custody.Actor{}, nil, err
	}
	for _, ap := range plan.Config.Approvers {
		v, err := seal.ParseVerifier([]byte(ap.Public))
		if err != nil || v.KeyID() != s.KeyID() {
			continue
		}
		tenants := ap.Tenants
		if len(tenants) == 0 {
			tenants = []string{custody.AllTenants}
		}
		return custody.Actor{Subject: ap.Subject, Roles: ap.Roles, Tenants: tenants, Via: "cli"}, s, nil
	}
	return custody.Actor{}, nil, pipeline.Errorf(pipeline.CodePermissionDenied, credential, "the key %s of %s is not registered in %s", s.KeyID(), s.Subject(), plan.File).
		With("add it under approvers: {subject: " + s.Subject() + ", public: " + s.Verifier().Text() + ", roles: [operator]}")
}

// targeting is how a verb that changes items is told which.
type targeting struct {
	snapshot string
	count    int64
	digest   string
	yes      bool
}

func (t *targeting) flags(c *cobra.Command) {
	c.Flags().StringVar(&t.snapshot, "snapshot", "", "id of a snapshot, as it was shown")
	c.Flags().Int64Var(&t.count, "count", 0, "its count, as it was shown")
	c.Flags().StringVar(&t.digest, "digest", "", "its digest, as it was shown")
	c.Flags().BoolVar(&t.yes, "yes", false, "take a snapshot of the selection and change exactly those items")
}

// target turns ids, or a selection, into the items that are changed. A selection is frozen first; without --yes it is only
// shown, so that nothing is done that nobody saw.
func (a *app) target(ctx context.Context, d *desk, t *targeting, args []string) (custody.Target, error) {
	if t.snapshot != "" {
		return custody.Target{Snapshot: t.snapshot, Count: t.count, Digest: pipeline.Digest(t.digest)}, nil
	}
	if len(args) == 0 {
		return custody.Target{}, pipeline.Errorf(pipeline.CodeUsage, "", "say which items: ids, a selection, or --snapshot").
			With("for example: reprieve quarantine triage 'fingerprint=f1... state=DEAD_LETTERED' --ticket OPS-1 --yes")
	}
	if ids, ok := itemIDs(args); ok {
		return custody.Target{Items: ids}, nil
	}
	sel, err := custody.ParseSelection(strings.Join(args, " "))
	if err != nil {
		return custody.Target{}, err
	}
	s, err := d.items.TakeSnapshot(ctx, d.who, sel)
	if err != nil {
		return custody.Target{}, err
	}
	if !t.yes {
		return custody.Target{}, pipeline.Errorf(pipeline.CodeSnapshotRequired, s.ID, "%s match %q now; nothing was changed", many(s.Count, "item"), s.Selection).
			With("look at them, then go on with exactly these: --snapshot " + s.ID + " --count " + num(s.Count) + " --digest " + string(s.Digest) + " (or --yes to freeze and go on at once)")
	}
	return custody.Of(s), nil
}

// itemIDs tells whether all args are item ids.
func itemIDs(args []string) ([]pipeline.ID, bool) {
	var ids []pipeline.ID
	for _, s := range args {
		if len(s) != 33 || s[0] != 'q' || strings.ContainsAny(s, "=<> ") {
			return nil, false
		}
		ids = append(ids, pipeline.ID(s))
	}
	return ids, true
}

// reported is what a change answers.
type reported struct {
	Selected int64                   `json:"selected"`
	Changed  int64                   `json:"changed"`
	Skipped  int64                   `json:"skipped"`
	ByCode   map[pipeline.Code]int64 `json:"skipped_by_code,omitempty"`
	Items    []skippedItem           `json:"skipped_items,omitempty"`
}

type skippedItem struct {
	Item  pipeline.ID   `json:"id"`
	State custody.State `json:"state,omitempty"`
	Code  pipeline.Code `json:"code"`
	Text  string        `json:"text"`
}

// report prints what a change did, and after one that changed something next: what usually follows, if it is known.
func (a *app) report(r custody.Report, what, next string) error {
	out := reported{Selected: r.Selected, Changed: r.Changed, Skipped: r.SkippedCount, ByCode: r.ByCode}
	for _, s := range r.Skipped {
		out.Items = append(out.Items, skippedItem{s.Item, s.State, s.Code, pipeline.Lookup(s.Code).Text})
	}
	err := a.print(out, func(t *table) {
		t.line("%d of %s %s", out.Changed, many(out.Selected, "item"), what)
		if out.Skipped > 0 {
			t.line("%d skipped:", out.Skipped)
			var codes []pipeline.Code
			for i, s := range out.Items {
				if i == 20 {
					t.line("  ... and %d more (-o json shows the first 1,000)", out.Skipped-20)
					break
				}
				text := s.Text
				if s.State != "" {
					text = "it is " + string(s.State) + ": " + text
				}
				t.row("  "+string(s.Item), s.Code, text)
				codes = append(codes, s.Code)
			}
			t.remedies(codes)
		}
		if out.Changed > 0 && next != "" {
			t.line("next: %s", next)
		}
	})
	if err == nil && out.Changed == 0 {
		return silent(pipeline.ExitRefused) // a script must see that nothing was done
	}
	return err
}
