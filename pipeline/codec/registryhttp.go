package codec

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/riferrei/srclient"

	"reprieve.dev/pipeline"
)

// RegistryConfig is one registry of the worker file.
type RegistryConfig struct {
	Name           string
	URL            string // several, separated by commas, stand for each other
	User, Password string // basic authentication
	Token          string // bearer authentication
	CA             string // PEM text; empty trusts what the system trusts
	Cert, Key      string // PEM texts of a client certificate
	ServerName     string
	Insecure       bool          // no check of the server's certificate: tests only
	Concurrency    int           // calls at a time; default 8
	Timeout        time.Duration // of a call; default 5 s
}

// maxAnswer bounds what is read of one answer.
const maxAnswer = 16 << 20

// registryHTTP makes the calls: the client library speaks the registry's language, our transport sees status, headers and
// whole bodies, which the library does not tell.
type registryHTTP struct {
	urls []string
	cfg  RegistryConfig
	base http.RoundTripper
	room chan struct{}
}

func newRegistryHTTP(cfg RegistryConfig) (*registryHTTP, error) {
	if cfg.Concurrency <= 0 {
		cfg.Concurrency = 8
	}
	if cfg.Timeout <= 0 {
		cfg.Timeout = 5 * time.Second
	}
	h := &registryHTTP{cfg: cfg, room: make(chan struct{}, cfg.Concurrency)}
	for _, u := range strings.Split(cfg.URL, ",") {
		u = strings.TrimRight(strings.TrimSpace(u), "/")
		p, err := url.Parse(u)
		if err != nil || p.Host == "" || p.Scheme != "http" && p.Scheme != "https" {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "registries."+cfg.Name+".url", "not an http or https URL")
		}
		if p.User != nil { // in the URL it would end up in messages
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "registries."+cfg.Name+".url", "credentials belong under user and password")
		}
		h.urls = append(h.urls, u)
	}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = cfg.Concurrency
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, ServerName: cfg.ServerName, InsecureSkipVerify: cfg.Insecure}
	if cfg.CA != "" {
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM([]byte(cfg.CA)) {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "registries."+cfg.Name+".ca", "no certificate in the PEM text")
		}
		t.TLSClientConfig.RootCAs = pool
	}
	if cfg.Cert != "" || cfg.Key != "" {
		pair, err := tls.X509KeyPair([]byte(cfg.Cert), []byte(cfg.Key))
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeConfigValue, "registries."+cfg.Name+".cert", "certificate and key do not fit: %w", err)
		}
		t.TLSClientConfig.Certificates = []tls.Certificate{pair}
	}
	h.base = t
	return h, nil
}

// exchange is one call as our transport saw it.
type exchange struct {
	h      *registryHTTP
	ctx    context.Context
	origin string // scheme and host that we were told to ask

	status     int
	retryAfter time.Duration
	body       []byte
	err        error
}

func origin(base string) string {
	u, err := url.Parse(base)
	if err != nil {
		return ""
	}
	return u.Scheme + "://" + u.Host
}

// RoundTrip sends with our context and credentials and reads the whole answer: half an answer is an error, not a short one.
func (x *exchange) RoundTrip(req *http.Request) (*http.Response, error) {
	x.status, x.retryAfter, x.body, x.err = 0, 0, nil, nil
	req = req.Clone(x.ctx)
	switch {
	case req.URL.Scheme+"://"+req.URL.Host != x.origin: // redirected: another server does not get our credentials
	case x.h.cfg.Token != "":
		req.Header.Set("Authorization", "Bearer "+x.h.cfg.Token)
	case x.h.cfg.User != "":
		req.SetBasicAuth(x.h.cfg.User, x.h.cfg.Password)
	}
	resp, err := x.h.base.RoundTrip(req)
	if err != nil {
		x.err = err
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	if err == nil && len(body) > maxAnswer {
		err = fmt.Errorf("the answer is larger than %d bytes", maxAnswer)
	}
	if err != nil {
		x.err = err
		return nil, err
	}
	x.status, x.body = resp.StatusCode, body
	if s, err := strconv.ParseInt(strings.TrimSpace(resp.Header.Get("Retry-After")), 10, 32); err == nil && s > 0 {
		x.retryAfter = time.Duration(s) * time.Second
	} else if at, err := http.ParseTime(resp.Header.Get("Retry-After")); err == nil {
		if sent, err := http.ParseTime(resp.Header.Get("Date")); err == nil && at.After(sent) {
			x.retryAfter = at.Sub(sent)
		}
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, nil
}

// call runs do with a client whose one request is watched, again after a while when the registry is in trouble. tries 0 is
// one try without a schema in the answer.
func (h *registryHTTP) call(ctx context.Context, tries int, what string, do func(*srclient.SchemaRegistryClient) error) *pipeline.Failure {
	wantSchema := tries > 0
	var f *pipeline.Failure
	for i := 0; ; i++ {
		if f = h.once(ctx, h.urls[i%len(h.urls)], wantSchema, what, do); f == nil || f.Code != pipeline.CodeRegistryUnavailable {
			return f
		}
		wait := jitter(50 * time.Millisecond << i)
		if i+1 >= max(tries, len(h.urls)) || time.Duration(f.RetryAfter)*time.Millisecond > wait {
			return f
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return f
		}
	}
}

// begin waits for its turn among the calls and starts the time of one; end gives both back.
func (h *registryHTTP) begin(ctx context.Context, base string) (x *exchange, end func(), f *pipeline.Failure) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	select {
	case h.room <- struct{}{}:
		return &exchange{h: h, ctx: ctx, origin: origin(base)}, func() { <-h.room; cancel() }, nil
	case <-ctx.Done():
		defer cancel()
		return nil, nil, unavailable("no call became free in time", ctx.Err())
	}
}

func (h *registryHTTP) once(ctx context.Context, base string, wantSchema bool, what string, do func(*srclient.SchemaRegistryClient) error) *pipeline.Failure {
	x, end, f := h.begin(ctx, base)
	if f != nil {
		return f
	}
	defer end()
	client := srclient.NewSchemaRegistryClient(base, srclient.WithClient(&http.Client{Transport: x}))
	client.CachingEnabled(false)
	return x.judge(do(client), wantSchema, what)
}

// judge tells what an answer means (case C19).
func (x *exchange) judge(err error, wantSchema bool, what string) *pipeline.Failure {
	if x.status == 0 {
		why := "connection"
		if x.ctx.Err() != nil {
			why = "timeout"
		}
		if x.err != nil {
			err = x.err
		}
		return unavailable(why, err)
	}
	switch {
	case x.status >= 200 && x.status < 300:
		if err == nil && (!wantSchema || hasSchema(x.body)) {
			return nil
		}
		return unavailable("not the registry's answer", err)
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		return &pipeline.Failure{Code: pipeline.CodeRegistryDenied, Cause: err, Params: []pipeline.Param{pipeline.Int("status", x.status)}}
	case x.status == http.StatusNotFound:
		switch code, _ := errorCode(x.body); code {
		case 40401, 40402, 40403:
			return &pipeline.Failure{Code: pipeline.CodeSchemaUnknown, Cause: err, Params: []pipeline.Param{pipeline.Str("schema", what)}}
		}
		return unavailable("not the registry's answer", err)
	case !wantSchema && x.refused():
		return &pipeline.Failure{Code: pipeline.CodeSchemaInvalid, Cause: err,
			Params: []pipeline.Param{pipeline.Str("schema", what), pipeline.Int("status", x.status)}}
	}
	f := unavailable("status "+strconv.Itoa(x.status), err)
	f.RetryAfter = x.retryAfter.Milliseconds()
	return f
}

// refused tells whether the registry itself does not want what we sent it.
func (x *exchange) refused() bool {
	switch x.status {
	case http.StatusTooManyRequests, http.StatusRequestTimeout, http.StatusTooEarly:
		return false
	}
	_, its := errorCode(x.body)
	return x.status >= 400 && x.status < 500 && its
}

// errorCode is the code in a registry's own refusal, which may be 0 (Apicurio, of a schema that it cannot judge); false is
// somebody else's answer.
func errorCode(body []byte) (code int, its bool) {
	var e struct {
		Code *int `json:"error_code"`
	}
	if json.Unmarshal(body, &e) != nil || e.Code == nil {
		return 0, false
	}
	return *e.Code, true
}

// hasSchema tells whether an answer is a schema at all: {} is what a wrong server says. An empty one is refused later.
func hasSchema(body []byte) bool {
	var a struct {
		Schema *string `json:"schema"`
	}
	return json.Unmarshal(body, &a) == nil && a.Schema != nil
}

// fetchGUID is plain HTTP: the client library has no call for it.
func (c *Cache) fetchGUID(ctx context.Context, guid string) (*Schema, *pipeline.Failure) {
	var got struct {
		Schema     string               `json:"schema"`
		Type       *srclient.SchemaType `json:"schemaType"`
		References []srclient.Reference `json:"references"`
	}
	h := c.http
	var f *pipeline.Failure
	for i := 0; i < attempts; i++ {
		if f = h.guid(ctx, h.urls[i%len(h.urls)], guid, &got); f == nil || f.Code != pipeline.CodeRegistryUnavailable || f.RetryAfter > 0 {
			break
		}
	}
	if f != nil {
		return nil, f
	}
	return c.build(ctx, pipeline.SchemaRef{Format: formatOf(got.Type), GUID: guid}, got.Schema, got.References)
}

func (h *registryHTTP) guid(ctx context.Context, base, guid string, into any) *pipeline.Failure {
	x, end, f := h.begin(ctx, base)
	if f != nil {
		return f
	}
	defer end()
	req, err := http.NewRequestWithContext(x.ctx, http.MethodGet, base+"/schemas/guids/"+url.PathEscape(guid), nil)
	if err != nil {
		return unavailable("request", err)
	}
	client := http.Client{Transport: x}
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
		if x.status < 300 {
			err = json.Unmarshal(x.body, into)
		}
	}
	return x.judge(err, true, "guid:"+guid)
}
