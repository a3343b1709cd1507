package api_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

const dlq = "billing.invoices.v1.dlq"

// desk is a handler over a real ledger, a real intake and a scripted cluster.
type desk struct {
	*custodytest.Env
	t      *testing.T
	cl     *script.Cluster
	sink   *script.Sink
	h      http.Handler
	writer *seal.Signer
}

type lifecycle struct{ draining bool }

func (lifecycle) Pipelines() []pipeline.Status {
	return []pipeline.Status{{Name: "billing", Ready: true}}
}
func (l lifecycle) Draining() bool { return l.draining }

type door struct {
	*custody.Intake
	*custody.Items
}

func secret(t *testing.T, text string) (s config.Secret) {
	t.Helper()
	w, _, ps := config.LoadWorker("reprieve.yaml", []byte("http: {tokens: [{subject: x, roles: [intake], token: '"+text+"'}]}"), config.Options{})
	if w == nil || len(w.HTTP.Tokens) != 1 {
		t.Fatal(ps)
	}
	return w.HTTP.Tokens[0].Token
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	d := &desk{Env: custodytest.New(t, ledgertest.SQLite(t)), t: t, cl: script.New(custodytest.Start.UnixMilli())}
	d.cl.CreateTopic(dlq, 2, nil)
	d.cl.CreateTopic("reprieve.outcomes", 1, nil)
	d.sink = d.cl.Sink(script.SinkOptions{})
	clean, err := redact.New(redact.Config{}, redact.Options{HashKey: make([]byte, 32)})
	if err != nil {
		t.Fatal(err)
	}
	if d.writer, err = seal.GenerateSigner("app-1"); err != nil {
		t.Fatal(err)
	}
	in := custody.NewIntake(custody.IntakeOptions{Items: d.Items, Sanitizer: clean, Ring: d.Ring, Outcomes: "reprieve.outcomes", OutcomeSink: d.cl.Sink(script.SinkOptions{}),
		Writers: map[string]deadletter.Writer{"app-1": {Consumer: "app", Key: d.writer.Verifier()}},
		Target:  func(p string) (string, pipeline.Sink, bool) { return dlq, d.sink, p == "billing" }})
	sum := sha256.Sum256([]byte("the-token-of-the-second-application"))
	tokens, err := api.NewTokens([]config.Token{
		{Subject: "app", Token: secret(t, "the-token-of-the-application"), Roles: []string{"intake"}, Tenants: []string{"acme"}},
		{Subject: "app2", Token: secret(t, "sha256:"+hex.EncodeToString(sum[:])), Roles: []string{"intake"}, Tenants: []string{"globex"}},
		{Subject: "viewer", Token: secret(t, "the-token-of-a-viewer-who-only-looks"), Roles: []string{"viewer"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	d.h = api.New(api.Options{Lifecycle: lifecycle{}, Metrics: http.NotFoundHandler(), Version: "1", Tokens: tokens, Intake: door{in, d.Items}})
	return d
}

// ask sends a request with the application's token and further headers, name and value in turn.
func (d *desk) ask(path, body string, headers ...string) (int, map[string]any, http.Header) {
	d.t.Helper()
	r := httptest.NewRequest(http.MethodPost, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer the-token-of-the-application")
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	var v map[string]any
	if text, _ := io.ReadAll(w.Body); len(text) > 0 {
		if err := json.Unmarshal(text, &v); err != nil {
			d.t.Fatalf("%d %s: %v", w.Code, text, err)
		}
	}
	return w.Code, v, w.Header()
}

func one(n int) string {
	return fmt.Sprintf(`{"pipeline": "billing", "consumer": "app", "tenant": "acme", "event_id": "e%d", "code": "ERR_DOMAIN_REJECTED", "stage": "app", "reason": "no such account",
		"record": {"topic": "billing.invoices.v1", "partition": 1, "offset": "%d", "key": {"text": "ACC-1"}, "value": {"text": "{\"n\":%d}"}, "headers": [["h", null]]}}`, n, n, n)
}

func (d *desk) letters() []pipeline.Record { return d.cl.All(dlq) }

func TestARecordIsTakenOnceItIsDurable(t *testing.T) {
	d := newDesk(t)
	code, v, _ := d.ask("/v1/quarantine", one(1))
	if code != 201 || v["state"] != "DEAD_LETTERED" || !strings.HasPrefix(v["quarantine_id"].(string), "q") || len(d.letters()) != 1 {
		t.Fatal(code, v, len(d.letters()))
	}
	l, err := deadletter.Parse(dlq, &d.letters()[0], d.Ring)
	if err != nil || string(l.Item) != v["quarantine_id"] || l.Failure.Code != pipeline.CodeRejected || l.Original.Offset != 1 || string(l.Value) != `{"n":1}` {
		t.Fatalf("%+v %v", l, err)
	}
	// The same record again is the same item.
	if code, again, _ := d.ask("/v1/quarantine", one(1)); code != 201 || again["quarantine_id"] != v["quarantine_id"] {
		t.Fatal(code, again)
	}
	// A topic that does not acknowledge is no 201, and the caller is told to come again.
	d.cl.Refuse(dlq, pipeline.CodeSendTimeout, 1)
	code, v, h := d.ask("/v1/quarantine", one(2))
	if code != 503 || v["code"] != "ERR_CUSTODY_UNAVAILABLE" || h.Get("Content-Type") != "application/problem+json" || v["remedy"] == "" || v["type"] != "urn:reprieve:ERR_CUSTODY_UNAVAILABLE" {
		t.Fatal(code, v, h)
	}
}

func TestABatchIsTakenWhollyOrRefusedBeforeAnythingIsWritten(t *testing.T) {
	d := newDesk(t)
	code, v, _ := d.ask("/v1/quarantine", "["+one(1)+","+one(2)+","+one(3)+"]")
	if code != 201 || len(v["items"].([]any)) != 3 || len(d.letters()) != 3 {
		t.Fatal(code, v)
	}
	for name, c := range map[string]struct {
		body, place string
		code        pipeline.Code
		status      int
	}{
		"another tenant":      {"[" + one(4) + "," + strings.Replace(one(5), "acme", "globex", 1) + "]", "[1]", pipeline.CodeTenantForbidden, 403},
		"an unknown pipeline": {"[" + one(4) + "," + strings.Replace(one(5), `"billing"`, `"x"`, 1) + "]", "[1] pipeline", pipeline.CodeInputInvalid, 422},
		"an unknown member":   {"[" + one(4) + `,{"pipline": "billing"}]`, "[1] body", pipeline.CodeInputInvalid, 422},
		"no record":           {`[{"pipeline": "billing", "consumer": "app", "tenant": "acme"}]`, "[0] record", pipeline.CodeInputInvalid, 422},
		"half a record":       {`[{"pipeline": "billing", "consumer": "app", "tenant": "acme", "record": {"value": {"hex": "0"}}}]`, "[0]", pipeline.CodeInputInvalid, 422},
		"nothing":             {"[]", "body", pipeline.CodeInputInvalid, 422},
		"too many":            {"[" + strings.Repeat(one(1)+",", 500) + one(1) + "]", "body", pipeline.CodeInputInvalid, 422},
		"no JSON":             {"[", "body", pipeline.CodeInputInvalid, 422},
		"two documents":       {one(4) + one(5), "body", pipeline.CodeInputInvalid, 422},
	} {
		status, v, _ := d.ask("/v1/quarantine", c.body)
		if status != c.status || v["code"] != string(c.code) || !strings.HasPrefix(fmt.Sprint(v["place"]), c.place) {
			t.Errorf("%s: %d %v", name, status, v)
		}
	}
	if n := len(d.letters()); n != 3 {
		t.Fatalf("%d letters: something was written of a refused batch", n)
	}
	if status, _, _ := d.ask("/v1/quarantine", `{"record": {"value": {"text": "`+strings.Repeat("x", 17<<20)+`"}}}`); status != 413 {
		t.Error("too large:", status)
	}
}

func TestAnIdempotencyKeyMakesARepeatedRequestTheSame(t *testing.T) {
	d := newDesk(t)
	body := `{"pipeline": "billing", "consumer": "app", "tenant": "acme", "record": {"value": {"text": "{}"}}}`
	if code, v, _ := d.ask("/v1/quarantine", body); code != 422 || v["place"] != "[0] event_id" {
		t.Fatal(code, v)
	}
	code, v, _ := d.ask("/v1/quarantine", body, "Idempotency-Key", "k1")
	if code != 201 {
		t.Fatal(code, v)
	}
	if code, again, _ := d.ask("/v1/quarantine", body, "Idempotency-Key", "k1"); code != 201 || again["quarantine_id"] != v["quarantine_id"] || len(d.letters()) != 1 {
		t.Fatal(code, again, len(d.letters()))
	}
	if code, other, _ := d.ask("/v1/quarantine", strings.Replace(body, "{}", "[]", 1), "Idempotency-Key", "k1"); code != 422 || other["code"] != "ERR_IDEMPOTENCY_KEY_REUSED" {
		t.Fatal(code, other)
	}
	if code, other, _ := d.ask("/v1/quarantine", body, "Idempotency-Key", strings.Repeat("k", 256)); code != 422 || other["place"] != "Idempotency-Key" {
		t.Fatal(code, other)
	}
	// Another process knows nothing of the key: the record is the same item there, too.
	other := newDesk(t)
	if _, same, _ := other.ask("/v1/quarantine", body, "Idempotency-Key", "k1"); same["quarantine_id"] != v["quarantine_id"] {
		t.Fatal(same)
	}
}

func TestOnlyKnownCallersWithThePermissionAreHeard(t *testing.T) {
	d := newDesk(t)
	for name, c := range map[string]struct {
		header string
		status int
		code   string
	}{
		"no token":       {"", 401, "ERR_UNAUTHENTICATED"},
		"another scheme": {"Basic dGhlLXRva2Vu", 401, "ERR_UNAUTHENTICATED"},
		"an empty token": {"Bearer ", 401, "ERR_UNAUTHENTICATED"},
		"a wrong token":  {"Bearer the-token-of-the-applicatioN", 401, "ERR_UNAUTHENTICATED"},
		"a hash as a token": {"Bearer sha256:" + hex.EncodeToString(func() []byte {
			s := sha256.Sum256([]byte("the-token-of-the-second-application"))
			return s[:]
		}()), 401, "ERR_UNAUTHENTICATED"},
		"a viewer":         {"bearer the-token-of-a-viewer-who-only-looks", 403, "ERR_PERMISSION_DENIED"},
		"another tenant's": {"Bearer the-token-of-the-second-application", 403, "ERR_TENANT_FORBIDDEN"},
	} {
		for _, path := range []string{"/v1/quarantine", "/v1/outcomes", "/v1/quarantine/qaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa/source-moved"} {
			status, v, h := d.ask(path, one(1), "Authorization", c.header)
			if name == "another tenant's" && path != "/v1/quarantine" || name == "a viewer" && strings.HasSuffix(path, "moved") {
				continue // they need no tenant, or look for the item first
			}
			if status != c.status || v["code"] != c.code || status == 401 && h.Get("WWW-Authenticate") == "" {
				t.Errorf("%s: %s: %d %v", name, path, status, v)
			}
		}
	}
	if len(d.letters()) != 0 {
		t.Fatal("something was written")
	}
	// Refusals are in the history.
	var refused int
	if err := d.Store.SQL(t).QueryRow("SELECT count(*) FROM dlq_message_custody_ledger WHERE event = 'refused'").Scan(&refused); err != nil || refused < 2 {
		t.Fatal(refused, err)
	}
}

func TestSecretsDoNotReachTheTopic(t *testing.T) {
	d := newDesk(t)
	body := strings.NewReplacer(`{\"n\":7}`, `{\"card\":\"4111 1111 1111 1111\"}`, "no such account", "refused Authorization: Bearer abcdefghijklmnop").Replace(one(7))
	if code, v, _ := d.ask("/v1/quarantine", body); code != 201 {
		t.Fatal(code, v)
	}
	for _, r := range d.letters() {
		for _, b := range append([][]byte{r.Value}, values(r.Headers)...) {
			if bytes.Contains(b, []byte("4111 1111")) || bytes.Contains(b, []byte("abcdefghijklmnop")) {
				t.Fatalf("%s", b)
			}
		}
	}
}

func values(hs []pipeline.Header) (out [][]byte) {
	for _, h := range hs {
		out = append(out, h.Value)
	}
	return out
}

func TestTheSourceMovesOnAndOutcomesAreWritten(t *testing.T) {
	d := newDesk(t)
	_, v, _ := d.ask("/v1/quarantine", one(1))
	id := v["quarantine_id"].(string)
	path := "/v1/quarantine/" + id + "/source-moved"
	if code, v, _ := d.ask(path, ""); code != 404 || v["code"] != "ERR_ITEM_UNKNOWN" {
		t.Fatal(code, v)
	}
	l, err := deadletter.Parse(dlq, &d.letters()[0], d.Ring)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Items.Admit(d.Ctx, custodytest.Worker, []custody.Arrival{custodytest.Arrival(l, 0)}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if code, v, _ := d.ask(path, ""); code != 204 {
			t.Fatal(code, v)
		}
	}
	if it := d.Show(t, pipeline.ID(id)).Item; it.Confirmed != custody.IsConfirmed {
		t.Fatal(it.Confirmed)
	}
	if code, v, _ := d.ask(path, "", "Authorization", "Bearer the-token-of-the-second-application"); code != 403 {
		t.Fatal(code, v)
	}
	// An item of a pipeline is confirmed by settlements alone.
	other := d.Admit(t, 5, 6)[0]
	if code, v, _ := d.ask("/v1/quarantine/"+string(other)+"/source-moved", ""); code != 422 {
		t.Fatal(code, v)
	}
	m := &pipeline.Message{}
	if err := deadletter.AppendOutcomeBy(m, &pipeline.Outcome{Pipeline: "billing", Item: pipeline.ID(id), Redrive: "sha256:00", Try: 1, AtMS: 5, Result: pipeline.Applied}, "app-1", d.writer); err != nil {
		t.Fatal(err)
	}
	if code, v, _ := d.ask("/v1/outcomes", string(m.Value)); code != 201 || v["outcome"] != "applied" || len(d.cl.All("reprieve.outcomes")) != 1 {
		t.Fatal(code, v)
	}
	if code, v, _ := d.ask("/v1/outcomes", strings.Replace(string(m.Value), `"applied"`, `"failed"`, 1)); code != 403 || v["code"] != "ERR_SIGNATURE_INVALID" {
		t.Fatal(code, v)
	}
}

// Many callers at once each get the answer to their own record.
func TestConcurrentCallersGetTheirOwnAnswers(t *testing.T) {
	d := newDesk(t)
	ids := make(chan [2]string, 64)
	for n := range 64 {
		go func() {
			_, v, _ := d.ask("/v1/quarantine", one(n))
			ids <- [2]string{fmt.Sprint(n), fmt.Sprint(v["quarantine_id"])}
		}()
	}
	got := map[string]string{}
	for range 64 {
		x := <-ids
		got[x[1]] = x[0]
	}
	if len(got) != 64 || len(d.letters()) != 64 {
		t.Fatal(len(got), len(d.letters()))
	}
	for _, r := range d.letters() {
		l, err := deadletter.Parse(dlq, &r, d.Ring)
		if err != nil || got[string(l.Item)] != fmt.Sprint(l.Original.Offset) {
			t.Fatal(l.Item, l.Original, err)
		}
	}
}

func TestTheDescriptionSaysWhatIsThere(t *testing.T) {
	d := newDesk(t)
	get := func(path string) (int, map[string]any) {
		w := httptest.NewRecorder()
		d.h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		var v map[string]any
		if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil {
			t.Fatal(path, err, w.Body)
		}
		return w.Code, v
	}
	code, v := get("/openapi.json")
	if code != 200 || v["openapi"] != "3.1.0" {
		t.Fatal(code, v["openapi"])
	}
	paths := v["paths"].(map[string]any)
	for _, p := range []string{"/v1/quarantine", "/v1/outcomes", "/v1/quarantine/{id}/source-moved"} {
		if paths[p] == nil {
			t.Errorf("%s is not described", p)
		}
	}
	if code, v := get("/readyz"); code != 200 || v["status"] != "ready" {
		t.Fatal(code, v)
	}
	if code, v := get("/healthz"); code != 200 || v["status"] != "ok" {
		t.Fatal(code, v)
	}
}

// A caller that gives up leaves nothing that a later one takes for its own.
func TestACallerThatGivesUp(t *testing.T) {
	d := newDesk(t)
	d.sink.Hold()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	r := httptest.NewRequest(http.MethodPost, "/v1/quarantine", strings.NewReader(one(1))).WithContext(ctx)
	r.Header.Set("Authorization", "Bearer the-token-of-the-application")
	r.Header.Set("Content-Type", "application/json")
	w := httptest.NewRecorder()
	d.h.ServeHTTP(w, r)
	if w.Code != 503 {
		t.Fatal(w.Code, w.Body)
	}
	d.sink.Flow()
	if code, v, _ := d.ask("/v1/quarantine", one(2)); code != 201 {
		t.Fatal(code, v)
	}
}
