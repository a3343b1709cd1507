package api

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"reprieve.dev/custody"
	"reprieve.dev/pipeline"
)

// Problem is an error as RFC 9457 spells one, with our code, place and remedy.
type Problem struct {
	Type   string        `json:"type" example:"urn:reprieve:ERR_INPUT_INVALID" doc:"urn:reprieve: and the code."`
	Title  string        `json:"title" doc:"What the code means."`
	Status int           `json:"status" doc:"The HTTP status."`
	Detail string        `json:"detail,omitempty" doc:"What happened this time; never bytes of a record."`
	Code   pipeline.Code `json:"code" doc:"The code; reprieve explain CODE tells more."`
	Place  string        `json:"place,omitempty" doc:"Where in the request."`
	Remedy string        `json:"remedy,omitempty" doc:"What to do."`

	retryAfter int
}

// Error is the detail, or the title.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// GetStatus is the HTTP status.
func (p *Problem) GetStatus() int { return p.Status }

// ContentType makes JSON a problem.
func (p *Problem) ContentType(ct string) string {
	if ct == "application/json" {
		return "application/problem+json"
	}
	return ct
}

// statuses are the HTTP statuses of codes; what is not here follows from the exit code.
var statuses = map[pipeline.Code]int{
	pipeline.CodeUnauthenticated:    http.StatusUnauthorized,
	pipeline.CodePermissionDenied:   http.StatusForbidden,
	pipeline.CodeTenantForbidden:    http.StatusForbidden,
	pipeline.CodeSignatureInvalid:   http.StatusForbidden,
	pipeline.CodeItemUnknown:        http.StatusNotFound,
	pipeline.CodeInputInvalid:       http.StatusUnprocessableEntity,
	pipeline.CodeLetterInvalid:      http.StatusUnprocessableEntity,
	pipeline.CodeRedactFailed:       http.StatusUnprocessableEntity,
	pipeline.CodeIdempotencyReused:  http.StatusUnprocessableEntity,
	pipeline.CodeTooLarge:           http.StatusRequestEntityTooLarge,
	pipeline.CodeCustodyUnavailable: http.StatusServiceUnavailable,
	pipeline.CodeLedgerUnavailable:  http.StatusServiceUnavailable,
	pipeline.CodeLedgerBusy:         http.StatusServiceUnavailable,
	pipeline.CodeSealFailed:         http.StatusServiceUnavailable,
}

// problemOf is the problem of an error of ours. An error without a code is an internal one and tells nothing of itself.
func problemOf(err error) *Problem {
	code := pipeline.CodeOf(err)
	if code == "" {
		code = pipeline.CodeInternal
	}
	info := pipeline.Lookup(code)
	p := &Problem{Type: "urn:reprieve:" + string(code), Title: info.Text, Code: code, Remedy: info.Remedy, Status: statuses[code]}
	if code == pipeline.CodeStateInvalid {
		p.Title = "InvalidStateTransitionException"
	}
	if p.Status == 0 {
		switch info.Exit {
		case pipeline.ExitInput:
			p.Status = http.StatusUnprocessableEntity
		case pipeline.ExitRefused:
			p.Status = http.StatusConflict
		case pipeline.ExitEnvironment:
			p.Status = http.StatusServiceUnavailable
		default:
			p.Status = http.StatusInternalServerError
		}
	}
	if e, ok := errors.AsType[*pipeline.Error](err); ok {
		p.Detail, p.Place, p.Remedy = e.Text, e.Place, e.Fix()
	}
	if r, ok := errors.AsType[*custody.Refused](err); ok {
		p.Place = "[" + strconv.Itoa(r.Index) + "] " + p.Place
	}
	if p.Status == http.StatusServiceUnavailable {
		p.retryAfter = 1
	}
	return p
}

// The library makes its own errors (a media type that it does not know, a body that is too large) by this hook alone.
func init() {
	huma.NewError = func(status int, msg string, _ ...error) huma.StatusError {
		p := problemOf(pipeline.Errorf(pipeline.CodeInputInvalid, "", "%s", msg))
		if status >= 500 {
			p = problemOf(pipeline.Errorf(pipeline.CodeInternal, "", "%s", http.StatusText(status)))
		}
		p.Status = status
		return p
	}
}

// write sends a problem outside the library.
func (p *Problem) write(w http.ResponseWriter) {
	if p.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(p.retryAfter))
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Bearer realm="reprieve"`)
	}
	replyAs(w, "application/problem+json", p.Status, p)
}
