package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"reprieve.dev/examples/billing"
	"reprieve.dev/tests/lab"
	"reprieve.dev/tests/services"
)

const (
	perSecond    = 1800
	poisonCount  = 50
	partitions   = 12
	deadWithin   = 200 * time.Millisecond
	answerWithin = 150.0 // ms
	stallWithin  = 10 * time.Second
	redriveRate  = 50
)

// settings of a drill, from the environment.
type settings struct {
	before, outage, after time.Duration
	share                 float64
	wrong                 string // BREAK
}

// scenario is one run of the drill.
type scenario struct {
	name       string
	idempotent bool // the gateway recognises a repeated call: a 504 is transient; else it is ambiguous
	pause      bool // outage: pause
}

// TestDrill is the drill. DRILL=full or DRILL=quick runs it, DRILL_SCENARIOS names some of its scenarios.
func TestDrill(t *testing.T) {
	s := settings{10 * time.Second, 60 * time.Second, 15 * time.Second, 0.05, os.Getenv("BREAK")}
	switch os.Getenv("DRILL") {
	case "full":
	case "quick":
		s.before, s.outage, s.after = 3*time.Second, 10*time.Second, 5*time.Second
	default:
		t.Skip("DRILL is not set: make drill runs it")
	}
	if text := os.Getenv("SHARE"); text != "" {
		var err error
		if s.share, err = strconv.ParseFloat(text, 64); err != nil || s.share <= 0 || s.share > 1 {
			t.Fatalf("SHARE=%s is no share, as 0.05", text)
		}
	}
	if s.wrong != "" && s.wrong != "double-debit" && s.wrong != "drop-one" {
		t.Fatalf("BREAK=%s: it is double-debit or drop-one", s.wrong)
	}
	all := []scenario{{"idempotent", true, false}, {"ambiguous", false, false}, {"pause", true, true}}
	if s.wrong != "" || s.share > 0.5 {
		all = all[:1]
	}
	if names := os.Getenv("DRILL_SCENARIOS"); names != "" {
		all = slices.DeleteFunc(all, func(x scenario) bool { return !slices.Contains(strings.Split(names, ","), x.name) })
	}
	bootstrap, postgres := services.Kafka(t), services.Postgres(t)
	var audits []*audit
	for _, x := range all {
		t.Run(x.name, func(t *testing.T) {
			a := newAudit(t, x.name, map[string]any{"per_second": perSecond, "partitions": partitions, "poison": poisonCount, "outage_s": s.outage.Seconds(), "share": s.share, "break": s.wrong})
			audits = append(audits, a)
			defer a.end()
			run(t, a, s, x, bootstrap, postgres)
		})
	}
	path := os.Getenv("DRILL_AUDIT")
	if path == "" {
		path = filepath.Join(t.TempDir(), "drill-audit.json")
	}
	keep(t, path, audits)
}

// edit makes the billing example the pipeline of the drill.
func edit(l *lab.Lab, g *provider, s settings, x scenario) {
	const file = "pipelines/billing.yaml"
	promise := ""
	if x.idempotent {
		promise = "idempotency_key: view.token, idempotent: true, "
	}
	every := int(math.Round(1 / s.share))
	l.Edit(file, "rules: [{when: 'view.amount_minor > 1000000', topic: "+l.ID+".large.v1}]", fmt.Sprintf(`rules:
        - when: 'view.seq %% %d == 0'
          http: {name: gateway, url: "%s/debits/{/invoice_id}?token={/token}&amount={/amount_minor}", %stimeout: 800ms, concurrency: 32}
        - {when: 'view.amount_minor > 1000000', topic: %s.large.v1}`, every, g.url, promise, l.ID))
	if !x.pause {
		l.Edit(file, "outage:     pause", "outage:     quarantine")
	}
	l.Edit(file, "reconcile:  here", fmt.Sprintf("reconcile:  {http: {url: \"%s/processed/{idempotency_token}\", applied: 'status == 200', absent: 'status == 404', measures: {amount: body.amount_minor}}}", g.url))
	l.Edit(file, "approval: dual}", "approval: dual, measures: {amount: view.amount_minor}}")
}

// run plays one scenario from the first invoice to the proof.
func run(t *testing.T, a *audit, s settings, x scenario, bootstrap, postgres string) {
	l := lab.New(t, bootstrap)
	l.Ledger = services.Postgres(t)
	g := startGateway(t, services.Postgres(t))
	_ = postgres // it was started before the clock runs
	edit(l, g, s, x)
	l.Must("check", "pipelines/billing.yaml")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w := watch(ctx, t, l)
	live := l.Start("pipelines/billing.yaml")
	in, retry, group := l.Topic(billing.InvoicesTopic), l.Topic("billing.invoices.v1.retry"), l.Group("billing-event-processor")
	l.Until(time.Minute, "the pipeline's partitions", func() bool { return strings.Contains(live.Log(), "partitions assigned") })

	warm := newTraffic(t, l, perSecond, perSecond, 5, int(math.Round(1/s.share)))
	warm.first, warm.warm = 50_000_000, true
	warm.run(ctx)
	l.Until(time.Minute, "a warm live lane", func() bool { return l.Settled(group, in, retry) })
	n := int((s.before + s.outage + s.after).Seconds()) * perSecond
	f := newTraffic(t, l, n, perSecond, poisonCount, int(math.Round(1/s.share)))
	var flow sync.WaitGroup
	flow.Go(func() { f.run(ctx) })
	a.say("%d invoices/s over %d partitions, %d of them poison", perSecond, partitions, poisonCount)
	pause(ctx, s.before)
	g.post("/admin/outage")
	a.say("the gateway answers 504")
	p := &progress{longest: map[int32]time.Duration{}, last: map[int32]int64{}, since: map[int32]time.Time{}}
	look, stop := context.WithCancel(ctx)
	var looking sync.WaitGroup
	looking.Go(func() { p.run(look, l, in, group) })
	pause(ctx, s.outage)
	stop()
	looking.Wait()
	g.post("/admin/restore")
	a.say("the gateway works again")
	flow.Wait()
	a.must(f.sent == n, "every invoice was acknowledged by Kafka", "%d of %d", f.sent, n)
	for at, v := range warm.all {
		f.all[at] = v
	}
	l.Until(3*time.Minute, "the end of the source and retry topics", func() bool { return l.Settled(group, in, retry) })
	a.say("the live lane has settled all of %d invoices", f.sent)

	before := count(t, l, retry)
	redriven := redriveAll(t, a, l, g, s, x, before, f)
	if code := live.Stop(); code != 0 && code != 143 {
		t.Errorf("the worker ended with exit code %d", code)
	}
	cancel()
	prove(t, a, l, g, s, x, f, w, p, before, redriven)
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// redriveAll triages what the outage put into quarantine and redrives it, as its people type it: a plan for each tenant, approved by
// another person, two executors at once under one rate. It returns the end of each run.
func redriveAll(t *testing.T, a *audit, l *lab.Lab, g *provider, s settings, x scenario, before *counted, f *traffic) []runEnd {
	class := "transient"
	if !x.idempotent {
		class = "ambiguous"
	}
	want := before.letters[class]
	a.say("%d letters in quarantine, %d of them %s", before.total(), want, class)
	if want == 0 {
		return nil
	}
	operator, finance := []string{"--credential", l.Key("operator")}, []string{"--credential", l.Key("finance")}
	done := int64(0)
	l.Until(3*time.Minute, "custody of all of them", func() bool {
		done += l.Triage("class="+class+" state=DEAD_LETTERED confirmed=yes", "OUTAGE-1")
		return done == int64(want)
	})
	a.say("triaged: %d", done)
	if s.wrong != "" {
		g.post("/admin/break?kind=" + s.wrong)
		a.say("the gateway will do %s once", s.wrong)
	}
	command := append([]string{"redrive", "run", "--source-dlq", l.Topic("billing.invoices.v1.dlq"), "--rate-limit", strconv.Itoa(redriveRate), "--dry-run=false"}, operator...)
	_, errs, code := l.Run(command...)
	a.must(code == 4 && strings.Contains(errs, "ERR_APPROVAL_MISSING"), "nothing is sent without an approval", "exit %d", code)
	var list struct {
		Redrives []struct {
			Manifest string
			Counts   struct{ Planned int64 }
		}
	}
	l.JSON(&list, "redrive", "list")
	var ends []runEnd
	planned := int64(0)
	for _, m := range list.Redrives {
		planned += m.Counts.Planned
		ends = append(ends, runEnd{digest: m.Manifest})
		_, _, self := l.Run(append([]string{"redrive", "approve", m.Manifest, "--role", "operator"}, operator...)...)
		a.must(self == 4, "the requester cannot approve", "exit %d", self)
		l.Must(append([]string{"redrive", "approve", m.Manifest}, finance...)...)
	}
	a.say("%d plans for %d items, approved by another person", len(ends), planned)
	a.must(planned == done, "everything is planned", "%d of %d", planned, done)
	var wg sync.WaitGroup
	for i := range ends {
		wg.Go(func() { ends[i].run(t, l, operator, time.Duration(want/redriveRate+600)*time.Second) })
	}
	wg.Wait()
	for _, e := range ends {
		a.say("redrive %s ended %s: %s", e.digest[7:19], e.State, e.Detail)
	}
	return ends
}

// runEnd is how one executor's run ended.
type runEnd struct {
	digest string
	code   int
	errs   string
	State  string
	Detail string
	Counts map[string]int64
	Halt   *struct{ By, Reason string }
}

// run executes one manifest in a process of its own. The live lane goes on beside it.
func (e *runEnd) run(t *testing.T, l *lab.Lab, who []string, limit time.Duration) {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var errs strings.Builder
	cmd := l.Command(ctx, append([]string{"redrive", "run", e.digest, "-o", "json"}, who...)...)
	cmd.Stderr = &errs
	_, err := cmd.Output()
	e.errs, e.code = errs.String(), cmd.ProcessState.ExitCode()
	if err != nil && e.code < 0 {
		t.Errorf("redrive run: %v", err)
	}
	out, _, _ := l.Run("redrive", "status", e.digest, "-o", "json")
	if err := json.Unmarshal([]byte(out), e); err != nil {
		t.Errorf("redrive status: %v\n%s", err, out)
	}
}
