package call

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"reprieve.dev/pipeline"
)

// Options are the settings of a Client. Zero fields take the default in brackets.
type Options struct {
	Target      string            // name in failures and metrics, never a URL with values
	Origin      string            // scheme, host and port: the only place that is ever asked
	Timeout     time.Duration     // of a call: waiting for its turn, connecting, the whole answer (1 s)
	Concurrency int               // calls at once (16)
	MaxAnswer   int64             // bytes of an answer (64 KiB)
	Headers     map[string]string // sent with every call; may be secrets
	CA          string            // PEM text; empty trusts what the system trusts
	Cert, Key   string            // PEM texts of a client certificate
	Failures    int               // failures in a row that open the circuit (5)
	Shortest    time.Duration     // how long an open circuit asks nothing, at first (1 s)
	Longest     time.Duration     // and at most (30 s)
	Observe     func(result string, took time.Duration)
}

// Request is one call.
type Request struct {
	Method  string // "" is GET
	URL     string
	Headers []pipeline.Header
	Body    []byte // nil: none
	// Repeatable: doing it twice is harmless (a read, or an effect with a key that the service remembers).
	Repeatable bool
	// Effect: only the status counts. A 2xx whose body breaks off or is too large has happened all the same.
	Effect bool
}

// Answer is what a service said. Status 0 is no answer.
type Answer struct {
	Status int
	Body   []byte // at most Options.MaxAnswer
}

// Doer makes calls: a Client, or what stands for one in a test of a pipeline.
type Doer interface {
	Do(context.Context, Request) (Answer, *pipeline.Failure)
}

// Client calls one service. It is safe for concurrent use.
type Client struct {
	o       Options
	http    *http.Client
	base    *http.Transport
	room    chan struct{}
	circuit circuit
	clock   pipeline.Clock
}

// maxRedirects is how often a read may be sent on within its origin.
const maxRedirects = 3

// New makes a client. It connects to nothing yet. Codes: ERR_CONFIG_VALUE.
func New(o Options, clock pipeline.Clock) (*Client, error) {
	if u, err := url.Parse(o.Origin); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, pipeline.Errorf(pipeline.CodeConfigValue, o.Target, "it has no http or https origin")
	}
	if o.Timeout <= 0 {
		o.Timeout = time.Second
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 16
	}
	if o.MaxAnswer <= 0 {
		o.MaxAnswer = 64 << 10
	}
	if o.Failures <= 0 {
		o.Failures = 5
	}
	if o.Shortest <= 0 {
		o.Shortest = time.Second
	}
	if o.Longest <= 0 {
		o.Longest = 30 * time.Second
	}
	if o.Observe == nil {
		o.Observe = func(string, time.Duration) {}
	}
	for name, value := range o.Headers {
		if why := CheckHeader(name, value); why != "" {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, o.Target, "the header %q cannot be sent: %s", name, why)
		}
	}
	tlsConfig := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CA != "" {
		tlsConfig.RootCAs = x509.NewCertPool()
		if !tlsConfig.RootCAs.AppendCertsFromPEM([]byte(o.CA)) {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, o.Target, "the authorities' file has no certificate in PEM")
		}
	}
	if o.Cert != "" || o.Key != "" {
		pair, err := tls.X509KeyPair([]byte(o.Cert), []byte(o.Key))
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, o.Target, "certificate and key do not fit: %w", err)
		}
		tlsConfig.Certificates = []tls.Certificate{pair}
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	c := &Client{o: o, clock: clock, room: make(chan struct{}, o.Concurrency),
		circuit: circuit{limit: o.Failures, shortest: o.Shortest, longest: o.Longest}}
	c.base = &http.Transport{
		DialContext: (&net.Dialer{Timeout: o.Timeout}).DialContext, TLSClientConfig: tlsConfig, Protocols: protocols,
		TLSHandshakeTimeout: o.Timeout, MaxIdleConnsPerHost: o.Concurrency, MaxConnsPerHost: o.Concurrency, IdleConnTimeout: 30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
	}
	c.http = &http.Client{Transport: c.base, CheckRedirect: c.redirect}
	return c, nil
}

// redirect follows a read within its origin; otherwise the redirect itself is the answer.
func (c *Client) redirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	if len(via) > maxRedirects || first.Method != http.MethodGet && first.Method != http.MethodHead || r.URL.User != nil ||
		r.URL.Scheme+"://"+r.URL.Host != c.o.Origin {
		return http.ErrUseLastResponse
	}
	return nil
}

// Healthy tells whether the service is not known to be down.
func (c *Client) Healthy() bool { return c.circuit.healthy() }

// Timeout is the time of one call.
func (c *Client) Timeout() time.Duration { return c.o.Timeout }

// Close closes idle connections; calls in work end by themselves.
func (c *Client) Close() error {
	c.base.CloseIdleConnections()
	return nil
}

// Do makes one call. A failure is about the record that it was made for; the answer is there too when the service gave one.
// Codes: those of the package comment, ERR_HTTP_REQUEST if the request cannot be made.
func (c *Client) Do(ctx context.Context, r Request) (Answer, *pipeline.Failure) {
	begun := c.clock()
	a, f := c.do(ctx, r)
	result := "ok"
	if f != nil {
		result = string(f.Code)
	}
	c.o.Observe(result, c.clock().Sub(begun))
	return a, f
}

func (c *Client) do(ctx context.Context, r Request) (Answer, *pipeline.Failure) {
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeout)
	defer cancel()
	select {
	case c.room <- struct{}{}:
		defer func() { <-c.room }()
	case <-ctx.Done():
		f := c.unavailable("busy", ctx.Err())
		f.Unasked = true
		return Answer{}, f
	}
	probe, after, ok := c.circuit.enter(c.clock())
	if !ok {
		f := c.unavailable("circuit", nil)
		f.RetryAfter, f.Unasked = max(1, after.Milliseconds()), true
		return Answer{}, f
	}
	said := unknown
	defer func() { c.circuit.leave(c.clock(), probe, said) }()
	req, sent, f := c.request(ctx, r)
	if f != nil {
		return Answer{}, f
	}
	x := exchange{c: c, repeatable: r.Repeatable, effect: r.Effect}
	resp, err := c.http.Do(req)
	if resp != nil { // with an error too: a redirect that cannot be followed
		defer resp.Body.Close()
	}
	x.sent = sent.Load()
	if err == nil {
		x.status = resp.StatusCode
		x.after = retryAfter(resp.Header, c.clock())
		x.body, err = read(resp.Body, c.o.MaxAnswer)
	}
	x.timeout = ctx.Err() != nil || isTimeout(err)
	if u, ok := errors.AsType[*url.Error](err); ok {
		err = u.Err // without the URL: it has values of the record
	}
	f = x.judge(err)
	if outer.Err() == nil {
		said = x.health(f)
	}
	return Answer{x.status, x.body}, f
}

// errTooLarge says that an answer has more bytes than are read.
var errTooLarge = errors.New("the answer is larger than allowed")

// read reads the whole body: half a body is an error, and so is one that is too large.
func read(r io.Reader, limit int64) ([]byte, error) {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err == nil && int64(len(body)) > limit {
		return nil, errTooLarge
	}
	return body, err
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}

// request builds the request; sent becomes true once a connection was found to write it to.
func (c *Client) request(ctx context.Context, r Request) (*http.Request, *atomic.Bool, *pipeline.Failure) {
	sent := &atomic.Bool{}
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { sent.Store(true) }})
	method := r.Method
	if method == "" {
		method = http.MethodGet
	}
	var body io.Reader
	if len(r.Body) > 0 || !r.Repeatable {
		// On a used connection that breaks, the transport repeats a request that it takes for harmless: one without a body, or
		// with a body that it can get again. This one, even when empty, it cannot.
		body = io.NopCloser(bytes.NewReader(r.Body))
	}
	req, err := http.NewRequestWithContext(ctx, method, r.URL, body)
	if err != nil {
		return nil, nil, c.unfit("url", nil) // the error would show the URL
	}
	if req.URL.Scheme+"://"+req.URL.Host != c.o.Origin || req.URL.User != nil { // INV-CALL-ORIGIN
		return nil, nil, c.unfit("origin", nil)
	}
	req.ContentLength = int64(len(r.Body))
	req.Header.Set("User-Agent", "reprieve")
	for name, value := range c.o.Headers {
		req.Header.Set(name, value)
	}
	for _, h := range r.Headers {
		if CheckHeader(h.Name, string(h.Value)) != "" {
			return nil, nil, c.unfit("header "+h.Name, nil)
		}
		req.Header.Set(h.Name, string(h.Value))
	}
	return req, sent, nil
}

// CheckHeader says why a request header cannot be sent, or "": names that frame the message or choose the server are not for
// files, and a value has no control characters.
func CheckHeader(name, value string) string {
	const token = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
	lower := strings.ToLower(name)
	switch lower {
	case "host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade", "expect":
		return "it frames the message"
	}
	switch {
	case name == "" || strings.Trim(lower, token) != "" || strings.HasPrefix(lower, "proxy-"):
		return "it is not the name of a header"
	case strings.IndexFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) >= 0:
		return "its value has a control character"
	}
	return ""
}
