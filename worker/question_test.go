package worker

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

func TestTheReconcileQuestionReadsStatusAndBody(t *testing.T) {
	answers := map[string]struct {
		status int
		body   string
	}{
		"/e/there":   {200, `{"amount_minor": 100, "debits": 1}`},
		"/e/partly":  {200, `{"debits": 1}`},
		"/e/newer":   {200, `{"amount_minor": 100, "newer": true}`},
		"/e/gone":    {404, "no such debit"},
		"/e/broken":  {500, ""},
		"/e/a%2Fb":   {200, `{"amount_minor": 7}`},
		"/e/strange": {204, ""},
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a, ok := answers[r.URL.EscapedPath()]
		if !ok {
			t.Errorf("asked for %s", r.URL)
		}
		w.WriteHeader(a.status)
		_, _ = w.Write([]byte(a.body))
	}))
	defer s.Close()
	pp := &PipelinePlan{File: "billing.yaml", Config: &config.Pipeline{Reconcile: config.Reconcile{Mode: "http", HTTP: config.ReconcileHTTP{
		URL: s.URL + "/e/{event_id}", Method: "GET", Timeout: config.Duration(time.Second), Applied: "status == 200", Absent: "status == 404",
		Superseded: "status == 200 && has(body.newer) && body.newer == true", Measures: map[string]string{"amount": "body.amount_minor"}}}}}
	q, err := pp.question(nil, nil, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for event, want := range map[string]struct {
		result pipeline.Result
		amount string
	}{
		"there": {pipeline.Applied, "100"}, "a/b": {pipeline.Applied, "7"}, "partly": {pipeline.UnknownOutcome, ""}, "newer": {pipeline.Superseded, ""},
		"gone": {pipeline.Absent, ""}, "broken": {pipeline.UnknownOutcome, ""}, "strange": {pipeline.UnknownOutcome, ""},
	} {
		got, err := q.ask(t.Context(), &custody.Item{Identity: pipeline.Identity{EventID: event}})
		if err != nil || got.Result != want.result || got.Effect["amount"] != want.amount {
			t.Errorf("%s: %+v %v, want %+v", event, got, err, want)
		}
	}
	if _, err := q.ask(t.Context(), &custody.Item{}); pipeline.CodeOf(err) != pipeline.CodeHTTPRequest {
		t.Errorf("without an event id: %v", err)
	}
	s.Close()
	if _, err := q.ask(t.Context(), &custody.Item{Identity: pipeline.Identity{EventID: "there"}}); err == nil {
		t.Error("nobody answered, and that was an answer")
	}
}
