package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"time"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
)

// Alert is what somebody must know. It never holds bytes of a record.
type Alert struct {
	V      int               `json:"v"` // 1
	Code   pipeline.Code     `json:"code"`
	Text   string            `json:"text"`
	Remedy string            `json:"remedy"`
	To     string            `json:"to,omitempty"` // the owner, or who it was escalated to
	Tenant string            `json:"tenant,omitempty"`
	At     string            `json:"at"`
	Worker string            `json:"worker"`
	Detail map[string]string `json:"detail,omitempty"`
}

// Alerts go to the log, and to the webhook of the worker file if it names one.
type Alerts struct {
	hook   config.Webhook
	worker string
	clock  pipeline.Clock
	log    *slog.Logger
	http   *http.Client
	wait   func(context.Context, time.Duration) error
}

// Alerts are told as the worker file says.
func (p *Plan) Alerts(clock pipeline.Clock, log *slog.Logger) *Alerts {
	return &Alerts{hook: p.Config.Alerts.Webhook, worker: p.Config.Name, clock: clock, log: log, http: &http.Client{Timeout: p.Config.Alerts.Webhook.Timeout.Std()}, wait: wait}
}

// alertTries is how often a delivery is tried, after 0, 1 and 2 seconds.
const alertTries = 3

// Send tells an alert and returns once the webhook has answered with a status below 300. Codes: ERR_ALERT_UNDELIVERED.
func (a *Alerts) Send(ctx context.Context, x Alert) error {
	info := pipeline.Lookup(x.Code)
	x.V, x.Remedy, x.Worker, x.At = 1, info.Remedy, a.worker, a.clock().UTC().Format(pipeline.TimeForm)
	if x.Text == "" {
		x.Text = info.Text
	}
	a.log.Warn("alert", "code", x.Code, "text", x.Text, "to", x.To, "tenant", x.Tenant, "detail", x.Detail)
	url := a.hook.URL.Reveal()
	if url == "" {
		return nil
	}
	body, err := json.Marshal(x)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeInternal, "alerts", "%w", err)
	}
	for try := range alertTries {
		if err = a.wait(ctx, time.Duration(try)*time.Second); err != nil {
			break
		}
		if err = a.post(ctx, url, body); err == nil {
			return nil
		}
	}
	return &pipeline.Error{Code: pipeline.CodeAlertUndelivered, Place: "alerts.webhook", Text: string(x.Code) + " could not be delivered: " + err.Error(), Cause: err}
}

func (a *Alerts) post(ctx context.Context, url string, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return pipeline.Errorf(pipeline.CodeConfigValue, "alerts.webhook", "it is not a URL") // the cause would show it
	}
	req.Header.Set("Content-Type", "application/json")
	for name, value := range a.hook.Headers {
		req.Header.Set(name, value.Reveal())
	}
	resp, err := a.http.Do(req)
	if err != nil {
		return pipeline.Errorf(pipeline.CodeAlertUndelivered, "alerts.webhook", "it does not answer") // the cause would show the URL
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection is kept
	if resp.StatusCode >= 300 {
		return pipeline.Errorf(pipeline.CodeAlertUndelivered, "alerts.webhook", "it answers with the status %s", strconv.Itoa(resp.StatusCode))
	}
	return nil
}

// alarm hands an alert over without waiting: the work goes on. One that finds no room is in the log alone.
func (w *Worker) alarm(x Alert) {
	select {
	case w.alarms <- x:
	default:
		w.o.Log.Warn("too many alerts at once: this one is told here alone", "code", x.Code, "detail", x.Detail)
	}
}

// deliver sends the alerts of pipelines until ctx ends.
func (w *Worker) deliver(ctx context.Context) {
	alerts := w.o.Plan.Alerts(w.o.Clock, w.o.Log)
	for {
		select {
		case <-ctx.Done():
			return
		case x := <-w.alarms:
			if err := alerts.Send(ctx, x); err != nil && ctx.Err() == nil {
				w.o.Log.Error("an alert could not be delivered", "alert", x.Code, "code", pipeline.CodeOf(err), "cause", err.Error())
			}
		}
	}
}
