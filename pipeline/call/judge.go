package call

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"reprieve.dev/pipeline"
)

// exchange is one call as it went.
type exchange struct {
	c          *Client
	repeatable bool
	effect     bool
	sent       bool // a byte may have reached the service
	timeout    bool
	status     int
	after      time.Duration // Retry-After
	body       []byte
}

// judge tells what happened to the record. Nil: the service did what was asked.
func (x *exchange) judge(err error) *pipeline.Failure {
	switch {
	case x.status == 0 && !x.sent:
		f := x.c.unavailable(notSent(x.timeout), err)
		f.Unasked = true
		return f
	case x.status == 0 || x.status == http.StatusRequestTimeout || x.status >= 500:
		return x.trouble(err)
	case x.status == http.StatusTooManyRequests, x.status == http.StatusTooEarly:
		return x.wait()
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden, x.status == http.StatusProxyAuthRequired:
		return x.c.failure(pipeline.CodeHTTPDenied, err, pipeline.Int("status", x.status))
	case x.status >= 400:
		return x.c.failure(pipeline.CodeHTTPRejected, err, pipeline.Int("status", x.status))
	case x.status >= 300 || x.status < 200:
		return x.unsure("status "+strconv.Itoa(x.status), err)
	case err == nil || x.effect:
		return nil
	}
	what := "broken off"
	switch {
	case errors.Is(err, errTooLarge):
		what = "too large"
	case x.timeout && x.repeatable:
		return x.c.failure(pipeline.CodeHTTPTimeout, err)
	}
	return x.unsure(what, err)
}

// trouble is a service that failed after it may have begun (INV-CALL-AMBIGUOUS).
func (x *exchange) trouble(err error) *pipeline.Failure {
	switch {
	case x.status == http.StatusServiceUnavailable && x.after > 0:
		return x.wait()
	case !x.repeatable && x.status == 0:
		return x.c.failure(pipeline.CodeHTTPAmbiguous, err, pipeline.Str("what", broken(x.timeout)))
	case !x.repeatable:
		return x.c.failure(pipeline.CodeHTTPAmbiguous, err, pipeline.Int("status", x.status))
	case x.status == 0 && x.timeout:
		return x.c.failure(pipeline.CodeHTTPTimeout, err)
	case x.status == 0:
		return x.c.unavailable(broken(false), err)
	}
	return x.wait()
}

// wait is a service that asks to come back.
func (x *exchange) wait() *pipeline.Failure {
	f := x.c.failure(pipeline.CodeHTTPUnavailable, nil, pipeline.Int("status", x.status))
	f.RetryAfter = x.after.Milliseconds()
	return f
}

// unsure is a status that answers nothing.
func (x *exchange) unsure(what string, err error) *pipeline.Failure {
	if !x.repeatable {
		return x.c.failure(pipeline.CodeHTTPAmbiguous, err, pipeline.Str("what", what))
	}
	return x.c.failure(pipeline.CodeHTTPAnswer, err, pipeline.Str("what", what))
}

// health is what the call says about the service. Being asked to slow down and being refused are answers of a service that is
// up.
func (x *exchange) health(f *pipeline.Failure) health {
	switch {
	case f == nil, f.Code == pipeline.CodeHTTPRejected, f.Code == pipeline.CodeHTTPDenied,
		x.status == http.StatusTooManyRequests, x.status == http.StatusTooEarly:
		return good
	}
	return bad
}

func notSent(timeout bool) string {
	if timeout {
		return "no connection in time"
	}
	return "no connection"
}

func broken(timeout bool) string {
	if timeout {
		return "timeout"
	}
	return "connection broken"
}

func (c *Client) failure(code pipeline.Code, cause error, more ...pipeline.Param) *pipeline.Failure {
	return &pipeline.Failure{Code: code, Cause: cause, Params: append([]pipeline.Param{pipeline.Str("target", c.o.Target)}, more...)}
}

func (c *Client) unavailable(what string, cause error) *pipeline.Failure {
	return c.failure(pipeline.CodeHTTPUnavailable, cause, pipeline.Str("what", what))
}

func (c *Client) unfit(what string, cause error) *pipeline.Failure {
	return c.failure(pipeline.CodeHTTPRequest, cause, pipeline.Str("what", what))
}

// longestAfter bounds what Retry-After may ask for; the policy clamps it further.
const longestAfter = 24 * time.Hour

// retryAfter reads Retry-After: seconds, or a time that counts from the answer's own Date if it has one. 0 is not said.
func retryAfter(h http.Header, now time.Time) time.Duration {
	text := strings.TrimSpace(h.Get("Retry-After"))
	if text == "" {
		return 0
	}
	if s, err := strconv.ParseUint(text, 10, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		return min(time.Duration(min(s, uint64(longestAfter/time.Second)))*time.Second, longestAfter)
	}
	at, err := http.ParseTime(text)
	if err != nil {
		return 0
	}
	if sent, err := http.ParseTime(h.Get("Date")); err == nil {
		now = sent
	}
	return min(max(at.Sub(now), 0), longestAfter)
}

// Judge tells what a status means for a request to target, as if a service had answered it: for tests of pipelines.
func Judge(target string, r Request, status int, after time.Duration) *pipeline.Failure {
	x := exchange{c: &Client{o: Options{Target: target}}, repeatable: r.Repeatable, effect: r.Effect, sent: true, status: status, after: after}
	return x.judge(nil)
}
