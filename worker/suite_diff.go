package worker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/engine"
)

// comparison collects what differs for one record.
type comparison struct {
	record   int
	position string
	now      time.Time
	maker    *maker
	effects  map[string]call.Effect
	found    []Difference
}

func (c *comparison) differ(what, want, got string) {
	c.found = append(c.found, Difference{Record: c.record, Position: c.position, What: what, Want: want, Got: got})
}

func (c *comparison) text(what, want, got string) {
	if want != "" && want != got {
		if got == "" {
			got = "none"
		}
		c.differ(what, want, got)
	}
}

// all compares a record with what is expected. An error is an expectation that cannot be read.
func (c *comparison) all(ctx context.Context, e *SuiteExpect, t engine.Tried) error {
	action, code, class, failed, reason := pipeline.ActDeliver.String(), "none", "none", "", ""
	d := t.Decision
	decided := string(d.Code)
	if f := t.Failure; f != nil {
		action, code, class, failed, reason = d.Action.String(), string(f.Code), pipeline.Lookup(f.Code).Class.String(), f.Stage, f.Reason()
	}
	switch {
	case t.Stalled != nil:
		action = pipeline.ActPause.String()
		if t.Failure == nil || t.Stalled.Code != t.Failure.Code {
			code, class, failed, reason = string(t.Stalled.Code), pipeline.Lookup(t.Stalled.Code).Class.String(), t.Stalled.Stage, t.Stalled.Reason()
		}
	case t.Held:
		action = "hold"
	}
	before := len(c.found)
	c.text("action", e.Action, action)
	c.text("code", e.Code, code)
	c.text("decided", e.Decided, decided)
	c.text("class", e.Class, class)
	c.text("stage", e.Stage, failed)
	if len(c.found) > before && reason != "" { // what really happened helps most
		c.found[len(c.found)-1].Reason = reason
	}
	if e.Reason != "" && !strings.Contains(reason, e.Reason) {
		c.text("reason", e.Reason, reason)
	}
	if e.Attempt != nil && int(d.Attempt) != *e.Attempt {
		c.differ("attempt", strconv.Itoa(*e.Attempt), strconv.Itoa(int(d.Attempt)))
	}
	if e.Delay != nil {
		if wait := time.Duration(d.NotBefore-c.now.UnixMilli()) * time.Millisecond; d.NotBefore == 0 || wait != e.Delay.Std() {
			c.differ("delay", e.Delay.String(), map[bool]string{true: "none", false: wait.String()}[d.NotBefore == 0])
		}
	}
	if n := len(t.Messages) + len(t.Calls); e.Messages != nil && n != *e.Messages {
		c.differ("messages", strconv.Itoa(*e.Messages), strconv.Itoa(n))
	}
	leaves := t.Messages
	if called := c.call(e, t.Calls); called != nil && len(leaves) == 0 {
		leaves = []pipeline.Message{*called}
	}
	if err := c.message(ctx, e, leaves); err != nil {
		return err
	}
	view := viewOfWhatLeaves(t)
	c.view(e.View, view)
	c.secrets(e.MustNotContain, t, view, reason)
	return nil
}

// call compares the request that a record leaves by, and returns it in the form of a message; nil if there is none.
func (c *comparison) call(e *SuiteExpect, calls []pipeline.Message) *pipeline.Message {
	if len(calls) == 0 {
		c.text("effect", e.Effect, "")
		c.text("url", e.URL, "")
		c.text("method", e.Method, "")
		return nil
	}
	m := calls[0]
	r, f := c.effects[m.Topic].Request(&m)
	if f != nil {
		return nil
	}
	c.text("effect", e.Effect, m.Topic)
	c.text("url", e.URL, r.URL)
	c.text("method", e.Method, r.Method)
	m.Headers = r.Headers
	return &m
}

// message compares the message that a record leaves as: the effect, the retry or the letter.
func (c *comparison) message(ctx context.Context, e *SuiteExpect, ms []pipeline.Message) error {
	asked := e.Topic != "" || e.Key != nil || e.Value != nil || len(e.Headers) > 0
	if len(ms) == 0 {
		if asked {
			c.differ("topic", cmp.Or(e.Topic, "a message"), "nothing is written")
		}
		return nil
	}
	m := &ms[0]
	c.text("topic", e.Topic, m.Topic)
	for _, f := range []struct {
		what string
		want *SuiteBytes
		got  []byte
	}{{"key", e.Key, m.Key}, {"value", e.Value, m.Value}} {
		if f.want == nil {
			continue
		}
		want, err := c.maker.bytes(ctx, f.want, nil, nil)
		if err != nil {
			return err
		}
		if !bytes.Equal(want, f.got) || (want == nil) != (f.got == nil) {
			c.differ(f.what, shownBytes(want), shownBytes(f.got))
		}
	}
	r := pipeline.Record{Headers: m.Headers}
	for _, name := range slices.Sorted(maps.Keys(e.Headers)) {
		n := e.Headers[name]
		got, ok := r.Header(name)
		want, isText := n.Text()
		switch {
		case !ok:
			c.differ("headers."+name, shownNode(n), "no such header")
		case n.IsNull() && got != nil, isText && (got == nil || string(got) != want), !isText && !n.IsNull():
			c.differ("headers."+name, shownNode(n), shownBytes(got))
		}
	}
	for _, name := range e.WithoutHeaders {
		if got, ok := r.Header(name); ok {
			c.differ("headers."+name, "no such header", shownBytes(got))
		}
	}
	return nil
}

// viewOfWhatLeaves is the record as its message has it: of a letter the sanitised value, else the view that stages saw last.
func viewOfWhatLeaves(t engine.Tried) []byte {
	if t.View == nil {
		return nil
	}
	if t.Failure != nil {
		if len(t.Messages) == 0 || t.Messages[0].Value == nil || t.View.Rebind(t.Messages[0].Value) != nil {
			return nil
		}
	}
	text, err := t.View.AppendJSON(nil)
	if err != nil {
		return nil
	}
	return text
}

func (c *comparison) view(want map[string]config.Node, view []byte) {
	if len(want) == 0 {
		return
	}
	var doc any
	dec := json.NewDecoder(bytes.NewReader(view))
	dec.UseNumber()
	readable := view != nil && dec.Decode(&doc) == nil
	for _, path := range slices.Sorted(maps.Keys(want)) {
		n := want[path]
		if !readable {
			c.differ("view"+path, shownNode(n), "the record cannot be read")
			continue
		}
		got, ok := member(doc, path)
		if !ok && n.IsNull() || ok && same(n.Value(), got) {
			continue
		}
		shown := "no such member"
		if ok {
			shown = shownJSON(got)
		}
		c.differ("view"+path, shownNode(n), shown)
	}
}

func member(doc any, path string) (any, bool) {
	p, err := pipeline.NewPath(path)
	if err != nil {
		return nil, false
	}
	for _, seg := range p.Segs {
		switch v := doc.(type) {
		case map[string]any:
			e, ok := v[seg]
			if !ok {
				return nil, false
			}
			doc = e
		case []any:
			i, err := strconv.Atoi(seg)
			if err != nil || i < 0 || i >= len(v) {
				return nil, false
			}
			doc = v[i]
		default:
			return nil, false
		}
	}
	return doc, true
}

// same compares JSON values; numbers by what they are worth, exactly.
func same(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		b, ok := b.(map[string]any)
		return ok && maps.EqualFunc(a, b, same)
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	case json.Number:
		b, ok := b.(json.Number)
		if !ok || len(a) > 1000 || len(b) > 1000 || strings.ContainsAny(string(a+b), "eE") {
			return ok && a == b
		}
		x, okx := new(big.Rat).SetString(string(a))
		y, oky := new(big.Rat).SetString(string(b))
		return okx && oky && x.Cmp(y) == 0
	}
	return a == b
}

// secrets looks for what must not leave, in every form that a message has. The message itself is never shown.
func (c *comparison) secrets(texts []string, t engine.Tried, view []byte, reason string) {
	leaving := slices.Concat(t.Messages, t.Calls)
	for _, s := range texts {
		found := func(what string, in []byte) {
			if s != "" && bytes.Contains(in, []byte(s)) {
				c.differ("must_not_contain", "nowhere: "+s, "in "+what)
			}
		}
		for i := range leaving {
			m := &leaving[i]
			found("the value for "+m.Topic, m.Value)
			found("the key for "+m.Topic, m.Key)
			for _, h := range m.Headers {
				found("the header "+h.Name+" for "+m.Topic, h.Value)
			}
		}
		found("the record as it leaves", view)
		found("the reason", []byte(reason))
	}
}

func shownBytes(b []byte) string {
	s := string(pipeline.AppendBytesForm(nil, b))
	if b != nil && utf8.Valid(b) {
		s = shownJSON(string(b))
	}
	if len(s) > 300 {
		s = s[:297] + "..."
	}
	return s
}

func shownNode(n config.Node) string {
	if n.IsNull() {
		return "null"
	}
	return shownJSON(n.Value())
}

func shownJSON(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return "?"
	}
	return string(b)
}
