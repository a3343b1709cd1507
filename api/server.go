// Package api is what Reprieve answers over HTTP.
package api

import (
	"encoding/json"
	"net/http"
	"reflect"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// Options are what a handler answers with.
type Options struct {
	Lifecycle Lifecycle
	Metrics   http.Handler
	Version   string
	Tokens    *Tokens // nil: nobody is known, and what needs a token is refused
	Intake    Intake  // nil: this process takes no records
}

type server struct {
	o       Options
	answers answers
}

// New answers, for everybody, /healthz, /readyz, /metrics, /version, /v1/pipelines and /openapi.json; and for those with a token
// POST /v1/quarantine (one record or an array: 201 only when all of them are durable on their dead-letter topics) and POST
// /v1/outcomes (what a registered writer has signed) and /v1/quarantine/{id}/source-moved. Errors are application/problem+json with our codes.
func New(o Options) http.Handler {
	if o.Tokens == nil {
		o.Tokens = &Tokens{}
	}
	s := &server{o: o}
	mux := http.NewServeMux()
	health(mux, o)
	if o.Intake == nil {
		return mux
	}
	closed := http.NewServeMux()
	c := huma.DefaultConfig("Reprieve", o.Version)
	c.DocsPath, c.SchemasPath, c.OpenAPIPath, c.CreateHooks = "", "", "", nil
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	api := humago.New(closed, c)
	op := func(id, path, summary string) huma.Operation {
		return huma.Operation{OperationID: id, Method: http.MethodPost, Path: path, Summary: summary, DefaultStatus: http.StatusCreated, MaxBodyBytes: mostBody,
			SkipValidateBody: true, Security: []map[string][]string{{"token": {}}}, Errors: []int{401, 403, 413, 422, 503}}
	}
	take := op("quarantine", "/v1/quarantine", "Take records into custody that an application could not process")
	take.Description = "The answer is 201 only when every record is durable on its dead-letter topic: the caller may then move its source on. On 503 send the same request again."
	huma.Register(api, take, s.quarantine)
	body := api.OpenAPI().Paths[take.Path].Post.RequestBody.Content
	body["application/json"] = &huma.MediaType{Schema: submissions{}.Schema(api.OpenAPI().Components.Schemas)}
	huma.Register(api, op("outcome", "/v1/outcomes", "Write what became of a redriven record, signed by a registered writer"), s.outcome)
	moved := op("source-moved", "/v1/quarantine/{id}/source-moved", "State that the source has moved past a record that was taken")
	moved.Description = "404 until the custodian has brought the record into the ledger: ask again."
	moved.DefaultStatus = http.StatusNoContent
	huma.Register(api, moved, s.moved)
	mux.Handle("POST /v1/", o.Tokens.authenticated(closed))
	mux.HandleFunc("GET /openapi.json", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, api.OpenAPI()) })
	return mux
}

func typeOf[T any]() reflect.Type { return reflect.TypeFor[T]() }

func ptr[T any](v T) *T { return &v }

func reply(w http.ResponseWriter, code int, v any) { replyAs(w, "application/json", code, v) }

func replyAs(w http.ResponseWriter, kind string, code int, v any) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the client is gone if this fails
}
