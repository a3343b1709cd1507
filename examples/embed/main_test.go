package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"reprieve.dev/api"
	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/custody/custodytest"
	"reprieve.dev/ledger/ledgertest"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/pipeline/redact"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

// The test binary is the application, too: EMBED_DIR is its folder, and EMBED_KILL the step at which it ends as by kill -9.
func TestMain(m *testing.M) {
	dir := os.Getenv("EMBED_DIR")
	if dir == "" {
		os.Exit(m.Run())
	}
	kill, _ := strconv.Atoi(os.Getenv("EMBED_KILL"))
	n := 0
	err := work(context.Background(), dir, func(string) {
		if n++; n == kill {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
			select {}
		}
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const token = "the-token-of-the-accounts-application"

// world is Reprieve around the application: the real API and intake over a ledger, and a scripted cluster.
type world struct {
	*custodytest.Env
	t      *testing.T
	cl     *script.Cluster
	url    string
	dir    string
	signer *seal.Signer
	read   int // letters that the custodian has taken
}

type door struct {
	*custody.Intake
	*custody.Items
}

type lifecycle struct{}

func (lifecycle) Pipelines() []pipeline.Status { return nil }
func (lifecycle) Draining() bool               { return false }

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{Env: custodytest.New(t, ledgertest.SQLite(t)), t: t, cl: script.New(custodytest.Start.UnixMilli()), dir: t.TempDir()}
	w.cl.CreateTopic("accounts.dlq", 1, nil)
	w.cl.CreateTopic("reprieve.outcomes", 1, nil)
	sink := w.cl.Sink(script.SinkOptions{})
	clean, err := redact.New(redact.Config{}, redact.Options{HashKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	if w.signer, err = seal.GenerateSigner("accounts-app"); err != nil {
		t.Fatal(err)
	}
	if err := w.signer.WriteFile(filepath.Join(w.dir, "key.pem")); err != nil {
		t.Fatal(err)
	}
	in := custody.NewIntake(custody.IntakeOptions{Items: w.Items, Sanitizer: clean, Ring: w.Ring, Outcomes: "reprieve.outcomes", OutcomeSink: w.cl.Sink(script.SinkOptions{}), Writers: w.writers(),
		Target: func(p string) (string, pipeline.Sink, bool) { return "accounts.dlq", sink, p == "accounts" }})
	c, _, ps := config.LoadWorker("reprieve.yaml", []byte("http: {tokens: [{subject: accounts-app, roles: [intake], tenants: [acme], token: "+token+"}]}"), config.Options{})
	if c == nil {
		t.Fatal(ps)
	}
	tokens, err := api.NewTokens(c.HTTP.Tokens)
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewServer(api.New(api.Options{Lifecycle: lifecycle{}, Metrics: http.NotFoundHandler(), Tokens: tokens, Intake: door{in, w.Items}}))
	t.Cleanup(s.Close)
	w.url = s.URL
	return w
}

func (w *world) writers() map[string]deadletter.Writer {
	return map[string]deadletter.Writer{"accounts-app": {Consumer: "accounts-app", Key: w.signer.Verifier()}}
}

func (w *world) write(events ...event) {
	w.t.Helper()
	f, err := os.OpenFile(filepath.Join(w.dir, "events.jsonl"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if err := json.NewEncoder(f).Encode(events[0]); err != nil {
		w.t.Fatal(err)
	}
	for _, e := range events[1:] {
		if err := json.NewEncoder(f).Encode(e); err != nil {
			w.t.Fatal(err)
		}
	}
}

// run runs the application; killed says whether it came to the step.
func (w *world) run(kill int) (killed bool) {
	w.t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "EMBED_DIR="+w.dir, "EMBED_KILL="+strconv.Itoa(kill), "EMBED_API="+w.url, "EMBED_TOKEN="+token)
	out, err := cmd.CombinedOutput()
	if e, ok := err.(*exec.ExitError); ok && e.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL {
		return true
	}
	if err != nil {
		w.t.Fatalf("%v: %s", err, out)
	}
	return false
}

// custodian brings new letters into the ledger.
func (w *world) custodian() {
	w.t.Helper()
	var list []custody.Arrival
	for _, r := range w.cl.All("accounts.dlq")[w.read:] {
		l, err := deadletter.Parse("accounts.dlq", &r, w.Ring)
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, custody.Arrival{Letter: l, Stands: pipeline.Position{TP: pipeline.TP{Topic: "accounts.dlq"}, Offset: r.Offset}, TimeMS: r.TimeMS, Cluster: "cluster-1"})
		w.read++
	}
	if _, err := w.Items.Admit(w.Ctx, custodytest.Worker, list); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) db() *sql.DB {
	w.t.Helper()
	db, err := sql.Open("sqlite3", filepath.Join(w.dir, "app.db"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	return db
}

func (w *world) accounts(ids ...string) {
	w.t.Helper()
	db := w.db()
	if _, err := db.Exec(schema); err != nil {
		w.t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := db.Exec("INSERT INTO accounts VALUES (?, 0)", id); err != nil {
			w.t.Fatal(err)
		}
	}
}

func TestKilledAtEveryStepNothingIsLostAndNothingIsDoneTwice(t *testing.T) {
	kills := 0
	for step := 1; ; step++ {
		w := newWorld(t)
		w.accounts("ACC-1")
		w.write(event{ID: "e1", Account: "ACC-1", Amount: 5}, event{ID: "e2", Account: "ACC-2", Amount: 7}, event{ID: "e3", Account: "ACC-1", Amount: 11}, event{ID: "e4", Account: "ACC-2", Amount: 13})
		first := w.run(step)
		w.run(0)
		w.custodian()
		w.run(0) // states that the source moved on
		items, err := w.Items.Find(w.Ctx, custodytest.Operator, custody.Selection{}, custody.Page{})
		if err != nil || len(items.Items) != 2 {
			t.Fatalf("step %d: %d items: %v", step, len(items.Items), err)
		}
		for _, it := range items.Items {
			if it.Confirmed != custody.IsConfirmed {
				t.Fatalf("step %d: the source's progress of %s is not known", step, it.EventID)
			}
			if it.Reason != "there is no such account" || it.Code != pipeline.CodeRejected {
				t.Fatalf("step %d: %+v", step, it)
			}
		}
		// The account is opened and the two are sent again.
		w.accounts("ACC-2")
		for _, it := range items.Items {
			amount := map[string]int64{"e2": 7, "e4": 13}[it.EventID]
			w.write(event{ID: it.EventID, Account: "ACC-2", Amount: amount, Item: string(it.ID), Redrive: "sha256:00", Try: 1})
		}
		second := w.run(step)
		w.run(0)
		w.run(0)
		if first {
			kills++
		}
		if second {
			kills++
		}
		w.check(step)
		if !first && !second {
			break
		}
	}
	t.Logf("%d kills", kills)
	if kills < 20 {
		t.Errorf("only %d kills: the steps are not told", kills)
	}
}

// check counts effects, items and outcomes.
func (w *world) check(step int) {
	w.t.Helper()
	var one, two, open int64
	db := w.db()
	for q, to := range map[string]*int64{"SELECT balance FROM accounts WHERE id = 'ACC-1'": &one, "SELECT balance FROM accounts WHERE id = 'ACC-2'": &two, "SELECT count(*) FROM outbox WHERE state <> 'done'": &open} {
		if err := db.QueryRow(q).Scan(to); err != nil {
			w.t.Fatal(err)
		}
	}
	if one != 16 || two != 20 || open != 0 {
		w.t.Errorf("step %d: the balances are %d and %d, and %d rows wait", step, one, two, open)
	}
	outcomes := map[string]string{}
	for _, r := range w.cl.All("reprieve.outcomes") {
		o, consumer, err := deadletter.ParseOutcomeBy(&r, nil, w.writers())
		if err != nil || consumer != "accounts-app" {
			w.t.Fatal(err)
		}
		outcomes[string(o.Item)] += " " + string(o.Result)
	}
	for item, results := range outcomes {
		if strings.ReplaceAll(results, " applied", "") != "" { // told twice after a kill, never otherwise
			w.t.Errorf("step %d: %s ended as %s", step, item, results)
		}
	}
	if len(outcomes) != 2 {
		w.t.Errorf("step %d: %d outcomes", step, len(outcomes))
	}
}
