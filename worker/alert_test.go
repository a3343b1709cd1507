package worker

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

func TestAlertsAreDeliveredOrSaidNotToBe(t *testing.T) {
	var got []Alert
	status := []int{503, 200}
	var auth string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var x Alert
		if err := json.NewDecoder(r.Body).Decode(&x); err != nil {
			t.Error(err)
		}
		got, auth = append(got, x), r.Header.Get("Authorization")
		w.WriteHeader(status[min(len(got)-1, len(status)-1)])
	}))
	defer s.Close()
	w, _, ps := config.LoadWorker("reprieve.yaml", []byte("name: w1\nalerts: {webhook: {url: '"+s.URL+"/hook', headers: {Authorization: 'Bearer token-of-the-hook'}}}"), config.Options{})
	if w == nil {
		t.Fatal(ps)
	}
	var log strings.Builder
	a := (&Plan{Config: w}).Alerts(func() time.Time { return time.Unix(0, 0) }, slog.New(slog.NewTextHandler(&log, nil)))
	a.wait = func(context.Context, time.Duration) error { return nil }
	if err := a.Send(t.Context(), Alert{Code: pipeline.CodeRetentionEnding, To: "finance", Tenant: "acme"}); err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[1].Code != pipeline.CodeRetentionEnding || got[1].To != "finance" || got[1].Worker != "w1" || got[1].Remedy == "" || got[1].V != 1 || auth != "Bearer token-of-the-hook" {
		t.Fatalf("%+v %q", got, auth)
	}
	status = []int{500}
	got = nil
	err := a.Send(t.Context(), Alert{Code: pipeline.CodeGlassBroken})
	if pipeline.CodeOf(err) != pipeline.CodeAlertUndelivered || len(got) != alertTries || strings.Contains(err.Error(), s.URL) {
		t.Fatal(err, len(got))
	}
	s.Close()
	if err := a.Send(t.Context(), Alert{Code: pipeline.CodeGlassBroken}); pipeline.CodeOf(err) != pipeline.CodeAlertUndelivered || strings.Contains(err.Error(), "/hook") {
		t.Fatal(err)
	}
	if strings.Contains(log.String(), "token-of-the-hook") || !strings.Contains(log.String(), "ALERT_BREAK_GLASS") {
		t.Fatal(log.String())
	}
}
