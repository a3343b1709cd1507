package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/engine"
	"reprieve.dev/transforms"
	"reprieve.dev/worker"
)

// tried is one line that try prints (CONTRACTS 7).
type tried struct {
	Position string            `json:"position"`
	Decision triedDecision     `json:"decision"`
	Class    string            `json:"class,omitempty"`
	Code     pipeline.Code     `json:"code,omitempty"`
	Stage    string            `json:"stage,omitempty"`
	Reason   string            `json:"reason,omitempty"`
	View     json.RawMessage   `json:"view,omitempty"`
	Messages []json.RawMessage `json:"messages"`
	Requests []triedRequest    `json:"requests,omitempty"`
}

// triedRequest is a call that would be made. The values of headers that the file sets may be secrets: they are not shown.
type triedRequest struct {
	Effect  string          `json:"effect"`
	Method  string          `json:"method"`
	URL     string          `json:"url"`
	Headers [][2]any        `json:"headers"`
	Body    json.RawMessage `json:"body"`
}

type triedDecision struct {
	Action  string          `json:"action"`
	Topic   string          `json:"topic,omitempty"`
	Attempt uint8           `json:"attempt"`
	Code    pipeline.Code   `json:"code,omitempty"`
	Policy  pipeline.Digest `json:"policy,omitempty"`
}

func (a *app) tryCmd() *cobra.Command {
	var schemas, now string
	var attempt uint8
	c := &cobra.Command{
		Use: "try PIPELINE < records.jsonl", Short: "Show what a pipeline would do with records, without a broker and without effects",
		Long: "Try reads records from standard input, one JSON object a line (topic, partition, offset, timestamp, key, value, headers; bytes\n" +
			"as {\"text\"}, {\"hex\"} or {\"base64\"}), runs them through the pipeline, and prints a line for each: the decision, class and\n" +
			"code, the redacted record, and the exact messages that would be written and requests that would be made. Where\n" +
			"messages are sealed, it is with a key that nobody has. Nothing is written or called, but look-ups do ask the services and read the\n" +
			"topics that they name.",
		Example: "  reprieve try pipelines/billing.yaml --schemas schemas < records.jsonl",
		Args:    exactly(1, "one pipeline file"),
		RunE: func(c *cobra.Command, args []string) error {
			plan, err := a.load(args)
			if err != nil {
				return err
			}
			clock := a.clock
			if now != "" {
				at, err := time.Parse(time.RFC3339, now)
				if err != nil {
					return pipeline.Errorf(pipeline.CodeUsage, "--now "+now, "the time is not RFC 3339").With("for example --now 2026-09-15T10:00:00Z")
				}
				clock = func() time.Time { return at }
			}
			return a.try(c, plan, schemas, attempt, clock)
		},
	}
	c.Flags().StringVar(&schemas, "schemas", "", "a folder that stands for the schema registry: 7.avsc, 7.json, 7.proto")
	c.Flags().Uint8Var(&attempt, "attempt", 0, "retries that have failed already")
	c.Flags().StringVar(&now, "now", "", "the time to decide at (RFC 3339)")
	return c
}

func (a *app) try(c *cobra.Command, plan *worker.Plan, schemas string, attempt uint8, clock pipeline.Clock) error {
	if schemas != "" {
		if info, err := os.Stat(schemas); err != nil || !info.IsDir() {
			return pipeline.Errorf(pipeline.CodeUsage, "--schemas "+schemas, "there is no such folder").With("name a folder with files like 7.avsc, 7.json or 7.proto")
		}
	}
	pp := plan.Pipelines[0]
	keys, err := worker.NewKeys(plan.Config.Keys)
	if err != nil {
		return err
	}
	lookup := func(name string) (codec.Registry, error) {
		if schemas != "" {
			return codec.Folder(schemas)
		}
		return plan.Registry(name, clock)
	}
	env := pipeline.Env{Log: slog.New(slog.DiscardHandler), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: clock}
	o, shut, err := pp.Assemble(c.Context(), plan, keys, env, lookup)
	if err != nil {
		return err
	}
	defer func() { _ = shut() }() // the process ends
	trial := engine.NewTrial(o)
	effects := worker.Calls(o.Stages)
	trial.Answer = func(m *pipeline.Message) *pipeline.Failure {
		_, f := effects[m.Topic].Request(m)
		return f
	}
	in := bufio.NewReaderSize(a.in, 64<<10)
	next := int64(0)
	for n := 1; ; n++ {
		line, err := in.ReadBytes('\n')
		if len(bytes.TrimSpace(line)) > 0 {
			tp, r, perr := pipeline.ParseForm(line)
			if perr != nil {
				if e, ok := perr.(*pipeline.Error); ok {
					e.Place = "standard input, line " + strconv.Itoa(n)
				}
				return perr
			}
			if tp.Topic == "" {
				tp.Topic = pp.Config.Source.Topics[0]
			}
			if r.Offset == 0 {
				r.Offset = next
			}
			next = r.Offset + 1
			b := o.Pool.Get()
			b.TP, b.Recs = tp, append(b.Recs[:0], r)
			if attempt > 0 {
				at := pipeline.Position{TP: tp, Offset: r.Offset}
				b.Lane = pipeline.Retry
				b.Recs[0].Trail = &pipeline.Trail{Attempt: attempt, Original: at, At: at, OriginalMS: r.TimeMS, TimeType: r.TimeType}
			}
			print := func(t engine.Tried) error {
				if t.Failure != nil && t.Failure.Code == pipeline.CodeRegistryUnavailable && schemas == "" {
					return pipeline.Errorf(pipeline.CodeEnvironmentTool, "registries", "%s", t.Failure.Reason()).
						With("start the registry that the worker file names, or let a folder stand for it: --schemas DIR")
				}
				return a.printTried(pp, tp, t, triedRequests(effects, t.Calls, o.Sanitize))
			}
			if err := trial.Try(transforms.Twice(c.Context()), b, print); err != nil {
				return err
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return pipeline.Errorf(pipeline.CodeInputInvalid, "standard input", "%w", err)
		}
	}
}

// triedRequests are the calls as they would be made, without what may be a secret.
func triedRequests(effects map[string]call.Effect, ms []pipeline.Message, clean pipeline.Sanitizer) (out []triedRequest) {
	for i := range ms {
		e := effects[ms[i].Topic]
		r, f := e.Request(&ms[i])
		if f != nil {
			continue // it was told as the record's failure
		}
		one := triedRequest{Effect: ms[i].Topic, Method: r.Method, URL: clean.Text(r.URL), Body: pipeline.AppendBytesForm(nil, r.Body), Headers: [][2]any{}}
		for _, name := range e.Headers {
			one.Headers = append(one.Headers, [2]any{name, "***"})
		}
		for _, h := range r.Headers {
			one.Headers = append(one.Headers, [2]any{h.Name, json.RawMessage(pipeline.AppendBytesForm(nil, h.Value))})
		}
		out = append(out, one)
	}
	return out
}

func (a *app) printTried(pp *worker.PipelinePlan, tp pipeline.TP, t engine.Tried, requests []triedRequest) error {
	out := tried{
		Position: pipeline.Position{TP: tp, Offset: t.Record.Offset}.String(),
		Decision: triedDecision{Action: pipeline.ActDeliver.String(), Policy: pp.Policy.Digest()}, Messages: []json.RawMessage{}, Requests: requests,
	}
	if f := t.Failure; f != nil {
		d := t.Decision
		out.Class, out.Code, out.Stage, out.Reason = pipeline.Lookup(f.Code).Class.String(), f.Code, f.Stage, f.Reason()
		out.Decision = triedDecision{d.Action.String(), d.Topic, d.Attempt, d.Code, d.Policy}
	}
	if s := t.Stalled; s != nil {
		out.Decision.Action, out.Decision.Code = pipeline.ActPause.String(), s.Code
	}
	if t.View != nil {
		if b, err := t.View.AppendJSON(nil); err == nil {
			out.View = b
		}
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		r := pipeline.Record{Key: m.Key, Value: m.Value, Headers: m.Headers}
		out.Messages = append(out.Messages, pipeline.AppendForm(nil, pipeline.TP{Topic: m.Topic, Partition: m.Partition}, &r))
	}
	if a.format == "table" {
		return a.printTriedForPeople(&out, t)
	}
	var buf bytes.Buffer
	if a.format == "yaml" {
		buf.WriteString("---\n")
		b, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if err := writeYAML(&buf, b); err != nil {
			return err
		}
		_, err = a.out.Write(buf.Bytes())
		return err
	}
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return err
	}
	_, err := a.out.Write(buf.Bytes())
	return err
}

// size is how long a value is; null is not empty.
func size(b []byte) string {
	if b == nil {
		return "null"
	}
	return many(len(b), "byte")
}

func (a *app) printTriedForPeople(out *tried, t engine.Tried) error {
	fmt.Fprintf(a.out, "%s  %s", harmless(out.Position), out.Decision.Action)
	if out.Code != "" {
		fmt.Fprintf(a.out, "  %s (%s) in %s: %s", out.Code, out.Class, harmless(out.Stage), harmless(out.Reason))
	}
	fmt.Fprintln(a.out)
	if len(out.View) > 0 {
		fmt.Fprintf(a.out, "  view: %s\n", harmless(string(out.View)))
	}
	for i := range t.Messages {
		m := &t.Messages[i]
		fmt.Fprintf(a.out, "  -> %s  key=%s  %s, %s\n", harmless(m.Topic), harmless(string(m.Key)), size(m.Value), many(len(m.Headers), "header"))
		for _, h := range m.Headers {
			v := "null"
			if h.Value != nil {
				v = harmless(string(h.Value))
			}
			if len(v) > 120 {
				v = v[:117] + "..."
			}
			fmt.Fprintf(a.out, "       %s: %s\n", harmless(h.Name), v)
		}
	}
	for _, r := range out.Requests {
		fmt.Fprintf(a.out, "  -> %s  %s %s\n", harmless(r.Effect), r.Method, harmless(r.URL))
		for _, h := range r.Headers {
			v, _ := h[1].(string)
			if b, ok := h[1].(json.RawMessage); ok {
				v = string(b)
			}
			fmt.Fprintf(a.out, "       %s: %s\n", harmless(h[0].(string)), harmless(v))
		}
	}
	return nil
}
