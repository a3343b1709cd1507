package worker

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"sync"

	"reprieve.dev/config"
	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/call"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/pipeline/expr"
	"reprieve.dev/redrive"
)

// question is a compiled reconcile.http: it asks a service what became of an item's effect.
type question struct {
	url    *call.Template
	method string
	when   []ruling // the first that holds decides; none: unknown
	sums   []sum
	client *call.Client
	body   *codec.Decoder // of answers
	record *codec.Decoder // of records, for a template that names fields; may be nil
	items  *custody.Items
	pool   sync.Pool // *codec.Scratch
}

type ruling struct {
	result pipeline.Result
	cond   *expr.AnswerCond
}

type sum struct {
	name string
	num  *expr.Measure
}

// compile checks the texts of a question; each problem stands where the text does.
func (q *question) compile(c *config.ReconcileHTTP, n config.Node) (ps config.Problems) {
	var err error
	if q.url, err = call.ParseTemplate(c.URL); err != nil && c.URL != "" {
		text, remedy := err.Error(), "for example https://payments/{event_id}"
		if e, ok := err.(*pipeline.Error); ok {
			text, remedy = e.Text, e.Fix()
		}
		ps = append(ps, n.Problem("url", config.CodeValue, text, remedy))
	}
	for _, x := range []struct {
		path, src string
		result    pipeline.Result
	}{{"superseded", c.Superseded, pipeline.Superseded}, {"already_applied", c.AlreadyApplied, pipeline.AlreadyApplied}, {"applied", c.Applied, pipeline.Applied}, {"absent", c.Absent, pipeline.Absent}} {
		if x.src == "" {
			continue
		}
		cond, err := expr.AnswerCondition(x.src)
		if err != nil {
			ps = append(ps, expressionProblems(n, x.path, err)...)
			continue
		}
		q.when = append(q.when, ruling{x.result, cond})
	}
	for _, name := range slices.Sorted(maps.Keys(c.Measures)) {
		num, err := expr.AnswerNumber(c.Measures[name])
		if err != nil {
			ps = append(ps, expressionProblems(n, "measures."+name, err)...)
			continue
		}
		q.sums = append(q.sums, sum{name, num})
	}
	return ps
}

// checkQuestion finds what is wrong in reconcile.http, and in the measures of redrives.
func checkQuestion(c *config.Pipeline, doc *config.Doc) (ps config.Problems) {
	for _, name := range slices.Sorted(maps.Keys(c.Redrive.Measures)) {
		if _, err := expr.Number(c.Redrive.Measures[name]); err != nil {
			ps = append(ps, expressionProblems(doc.At("redrive.measures"), name, err)...)
		}
	}
	if c.Reconcile.Mode != "http" {
		return ps
	}
	n := doc.At("reconcile.http")
	for _, name := range slices.Sorted(maps.Keys(c.Reconcile.HTTP.Measures)) {
		if _, ok := c.Redrive.Measures[name]; !ok {
			ps = append(ps, n.Problem("measures."+name, config.CodeReference, "redrive.measures has no "+strconv.Quote(name), "measure the records by the same name: redrive: {measures: {"+name+": view.amount_minor}}"))
		}
	}
	return append(ps, new(question).compile(&c.Reconcile.HTTP, n)...)
}

// question opens reconcile.http of a pipeline. record reads records, for a template that names fields. Codes: ERR_CONFIG_VALUE.
func (pp *PipelinePlan) question(items *custody.Items, record *codec.Decoder, clock pipeline.Clock) (*question, error) {
	c := &pp.Config.Reconcile.HTTP
	q := &question{method: c.Method, record: record, items: items, pool: sync.Pool{New: func() any { return codec.NewScratch() }}}
	if ps := q.compile(c, config.Node{}); len(ps) > 0 { // a plan that was loaded has none
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, pp.File+": reconcile.http."+ps[0].Path, "%s", ps[0].Text)
	}
	headers := map[string]string{}
	for name, v := range c.Headers {
		headers[name] = v.Reveal()
	}
	var err error
	if q.client, err = call.New(call.Options{Target: "reconcile", Origin: q.url.Origin(), Timeout: c.Timeout.Std(), Headers: headers}, clock); err != nil {
		return nil, err
	}
	q.body, err = codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSON}, nil)
	return q, err
}

// ask implements redrive.Target.Ask. An answer that no condition knows is unknown; without an answer the error says why.
func (q *question) ask(ctx context.Context, it *custody.Item) (redrive.Answer, error) {
	s := q.pool.Get().(*codec.Scratch)
	defer q.pool.Put(s)
	url, err := q.address(ctx, s, it)
	if err != nil {
		return redrive.Answer{}, err
	}
	a, f := q.client.Do(ctx, call.Request{Method: q.method, URL: url, Repeatable: true})
	if a.Status == 0 {
		if f == nil {
			return redrive.Answer{}, pipeline.Errorf(pipeline.CodeHTTPUnavailable, "reconcile.http", "no answer")
		}
		return redrive.Answer{}, pipeline.Errorf(f.Code, "reconcile.http", "%s", f.Reason())
	}
	s.Reset()
	var body pipeline.View
	if len(a.Body) > 0 {
		if v, f := q.body.Decode(ctx, s, a.Body, nil); f == nil {
			body = v
		}
	}
	out := redrive.Answer{Result: pipeline.UnknownOutcome, Evidence: "HTTP " + strconv.Itoa(a.Status)}
	for _, w := range q.when {
		if holds, err := w.cond.Eval(a.Status, body); err == nil && holds {
			out.Result = w.result
			break
		}
	}
	if out.Result != pipeline.Applied && out.Result != pipeline.AlreadyApplied {
		return out, nil
	}
	for _, m := range q.sums {
		n, ok, err := m.num.Eval(body)
		if err != nil || !ok {
			return redrive.Answer{Result: pipeline.UnknownOutcome, Evidence: out.Evidence + " without " + m.name}, nil
		}
		if out.Effect == nil {
			out.Effect = map[string]string{}
		}
		out.Effect[m.name] = n.String()
	}
	return out, nil
}

// address is the URL of the question about an item.
func (q *question) address(ctx context.Context, s *codec.Scratch, it *custody.Item) (string, error) {
	var view pipeline.View
	if q.url.ReadsView() {
		b, err := q.items.Faithful(ctx, it)
		if err != nil {
			return "", err
		}
		s.Reset()
		if q.record != nil && b.Value != nil {
			v, f := q.record.Decode(ctx, s, b.Value, b.Headers)
			if f != nil {
				return "", pipeline.Errorf(f.Code, string(it.ID), "the question needs a field of a record that cannot be read: %s", f.Reason())
			}
			view = v
		}
	}
	url, at, why := q.url.Append(nil, view, &it.Identity)
	if at != "" {
		return "", pipeline.Errorf(pipeline.CodeHTTPRequest, string(it.ID), "the question cannot be put: %s is %s", at, why)
	}
	return string(url), nil
}
