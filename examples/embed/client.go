package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// client speaks to the HTTP API of Reprieve.
type client struct {
	url, token string
	signer     *seal.Signer // registered under keys.writers by its subject
}

// post returns the status and the answer; statuses other than those expected are errors.
func (c client) post(ctx context.Context, path, key string, body []byte, expected ...int) (int, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+c.token)
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return 0, nil, err
	}
	for _, status := range expected {
		if resp.StatusCode == status {
			return status, answer, nil
		}
	}
	return resp.StatusCode, nil, fmt.Errorf("POST %s: %s: %s", path, resp.Status, answer)
}

// quarantine hands an event over and returns the id of its item, once it is durable.
func (c client) quarantine(ctx context.Context, key, line, reason string) (string, error) {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return "", err
	}
	body, err := json.Marshal(map[string]any{"pipeline": "accounts", "consumer": "accounts-app", "tenant": "acme", "event_id": e.ID, "entity": e.Account,
		"code": pipeline.CodeRejected, "stage": "book", "reason": reason, "record": map[string]any{"key": map[string]string{"text": e.Account}, "value": map[string]string{"text": line}}})
	if err != nil {
		return "", err
	}
	_, answer, err := c.post(ctx, "/v1/quarantine", key, body, http.StatusCreated)
	if err != nil {
		return "", err
	}
	var item struct {
		ID string `json:"quarantine_id"`
	}
	return item.ID, json.Unmarshal(answer, &item)
}

// sourceMoved states that the source is past an item; false: the ledger does not have it yet.
func (c client) sourceMoved(ctx context.Context, item string) (bool, error) {
	status, _, err := c.post(ctx, "/v1/quarantine/"+item+"/source-moved", "", nil, http.StatusNoContent, http.StatusNotFound)
	return status == http.StatusNoContent, err
}

// outcome sends what became of a redriven event, signed.
func (c client) outcome(ctx context.Context, line, result string) error {
	var e event
	if err := json.Unmarshal([]byte(line), &e); err != nil {
		return err
	}
	var m pipeline.Message
	if err := deadletter.AppendOutcomeBy(&m, &pipeline.Outcome{Pipeline: "accounts", Item: pipeline.ID(e.Item), Redrive: pipeline.Digest(e.Redrive), Try: e.Try,
		AtMS: time.Now().UnixMilli(), Result: pipeline.Result(result), EffectRef: e.ID}, c.signer.Subject(), c.signer); err != nil {
		return err
	}
	_, _, err := c.post(ctx, "/v1/outcomes", "", m.Value, http.StatusCreated)
	return err
}
