package embedded

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// refused is an answer that says no, with the registry's own error code.
type refused struct {
	status, code int
	text         string
}

func (e *refused) Error() string { return e.text }

func no(code int, format string, args ...any) *refused {
	status := code
	for status >= 1000 {
		status /= 10
	}
	return &refused{status, code, fmt.Sprintf(format, args...)}
}

// maxBody is how large a schema may be.
const maxBody = 4 << 20

type handler func(q *http.Request) (any, error)

// routes is the API. Names with an escaped slash are one segment: the pattern matcher unescapes after matching.
func (r *Registry) routes() http.Handler {
	mux := http.NewServeMux()
	on := func(pattern string, h handler) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, q *http.Request) {
			b, err := io.ReadAll(http.MaxBytesReader(w, q.Body, maxBody)) // before the lock: a slow caller stops nobody
			if err != nil {
				answer(w, nil, no(413, "the body is larger than %d bytes", maxBody))
				return
			}
			q.Body = io.NopCloser(bytes.NewReader(b))
			r.mu.Lock()
			out, err := h(q)
			r.mu.Unlock()
			answer(w, out, err)
		})
	}
	on("GET /{$}", func(*http.Request) (any, error) { return struct{}{}, nil })
	on("GET /mode", func(*http.Request) (any, error) { return map[string]string{"mode": "READWRITE"}, nil })
	on("GET /subjects", r.listSubjects)
	on("POST /subjects/{s}", r.lookUp)
	on("DELETE /subjects/{s}", r.deleteSubject)
	on("GET /subjects/{s}/versions", r.listVersions)
	on("POST /subjects/{s}/versions", r.register)
	on("GET /subjects/{s}/versions/{v}", r.getVersion)
	on("GET /subjects/{s}/versions/{v}/schema", r.getVersionText)
	on("GET /subjects/{s}/versions/{v}/referencedby", r.referencedBy)
	on("DELETE /subjects/{s}/versions/{v}", r.deleteVersion)
	on("GET /schemas/types", func(*http.Request) (any, error) { return []string{"AVRO", "JSON", "PROTOBUF"}, nil })
	on("GET /schemas/ids/{id}", r.byID)
	on("GET /schemas/ids/{id}/schema", r.textByID)
	on("GET /schemas/ids/{id}/versions", r.versionsByID)
	on("GET /schemas/ids/{id}/subjects", r.subjectsByID)
	on("GET /schemas/guids/{guid}", r.byGUID)
	on("GET /config", r.getConfig)
	on("PUT /config", r.putConfig)
	on("GET /config/{s}", r.getConfig)
	on("PUT /config/{s}", r.putConfig)
	on("DELETE /config/{s}", r.deleteConfig)
	on("POST /compatibility/subjects/{s}/versions", r.compatible)
	on("POST /compatibility/subjects/{s}/versions/{v}", r.compatible)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answer(w, nil, no(404, "HTTP 404 Not Found")) })
	return mux
}

// text is an answer that is not wrapped.
type text string

func answer(w http.ResponseWriter, out any, err error) {
	w.Header().Set("Content-Type", "application/vnd.schemaregistry.v1+json")
	if err != nil {
		e, ok := err.(*refused)
		if !ok {
			e = &refused{500, 50001, "Error in the backend data store: " + err.Error()}
		}
		w.WriteHeader(e.status)
		_ = json.NewEncoder(w).Encode(map[string]any{"error_code": e.code, "message": e.text})
		return
	}
	if t, ok := out.(text); ok {
		_, _ = io.WriteString(w, string(t))
		return
	}
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(out)
}

// asked is the body of a registration, a look-up and a compatibility check.
type asked struct {
	Schema        string      `json:"schema"`
	SchemaType    string      `json:"schemaType"`
	References    []reference `json:"references"`
	Compatibility string      `json:"compatibility"`
}

func body(q *http.Request) (asked, error) {
	var a asked
	if err := json.NewDecoder(q.Body).Decode(&a); err != nil {
		return a, no(400, "the body is not the JSON that is expected: %v", err)
	}
	if a.SchemaType == "" {
		a.SchemaType = "AVRO"
	}
	if formats[a.SchemaType] == "" {
		return a, no(42201, "Invalid schema type %s", a.SchemaType)
	}
	return a, nil
}

// shown is a schema as the API shows it.
type shown struct {
	Subject    string      `json:"subject,omitempty"`
	Version    int         `json:"version,omitempty"`
	ID         int32       `json:"id,omitempty"`
	GUID       string      `json:"guid,omitempty"`
	SchemaType string      `json:"schemaType,omitempty"` // absent for Avro
	References []reference `json:"references,omitempty"`
	Schema     string      `json:"schema"`
}

func show(row *schemaRow) shown {
	s := shown{GUID: row.GUID, References: row.References, Schema: row.Text}
	if row.Type != "AVRO" {
		s.SchemaType = row.Type
	}
	return s
}

func showVersion(subject string, v version, row *schemaRow) shown {
	s := show(row)
	s.Subject, s.Version, s.ID = subject, v.number, row.ID
	return s
}

func wants(q *http.Request, flag string) bool { return q.URL.Query().Get(flag) == "true" }

func (r *Registry) listSubjects(q *http.Request) (any, error) {
	out := []string{}
	prefix := q.URL.Query().Get("subjectPrefix")
	for _, s := range slices.Sorted(maps.Keys(r.s.subjects)) {
		if strings.HasPrefix(s, prefix) && (wants(q, "deleted") || len(r.s.live(s)) > 0) {
			out = append(out, s)
		}
	}
	return out, nil
}

// versions returns those of a subject that the request may see.
func (r *Registry) versions(q *http.Request) (string, []version, error) {
	subject := q.PathValue("s")
	vs := r.s.live(subject)
	if wants(q, "deleted") {
		vs = r.s.subjects[subject]
	}
	if len(vs) == 0 {
		return subject, nil, no(40401, "Subject '%s' not found.", subject)
	}
	return subject, vs, nil
}

// pick finds the version that the path names.
func pick(q *http.Request, vs []version) (version, error) {
	name := q.PathValue("v")
	if name == "latest" || name == "-1" {
		return vs[len(vs)-1], nil
	}
	n, err := strconv.Atoi(name)
	if err != nil || n < 1 {
		return version{}, no(42202, "The specified version '%s' is not a valid version id.", name)
	}
	for _, v := range vs {
		if v.number == n {
			return v, nil
		}
	}
	return version{}, no(40402, "Version %d not found.", n)
}

// version is the subject and the version that a request names.
func (r *Registry) version(q *http.Request) (string, version, error) {
	subject, vs, err := r.versions(q)
	if err != nil {
		return "", version{}, err
	}
	v, err := pick(q, vs)
	return subject, v, err
}

func (r *Registry) listVersions(q *http.Request) (any, error) {
	_, vs, err := r.versions(q)
	if err != nil {
		return nil, err
	}
	out := make([]int, 0, len(vs))
	for _, v := range vs {
		out = append(out, v.number)
	}
	return out, nil
}

func (r *Registry) getVersion(q *http.Request) (any, error) {
	subject, v, err := r.version(q)
	if err != nil {
		return nil, err
	}
	return showVersion(subject, v, r.s.schemas[v.id]), nil
}

func (r *Registry) getVersionText(q *http.Request) (any, error) {
	out, err := r.getVersion(q)
	if err != nil {
		return nil, err
	}
	return text(out.(shown).Schema), nil
}

func (r *Registry) referencedBy(q *http.Request) (any, error) {
	subject, v, err := r.version(q)
	if err != nil {
		return nil, err
	}
	return append([]int32{}, r.s.referrers(subject, v.number)...), nil
}

// register takes a schema as the subject's newest version, unless it has it already.
func (r *Registry) register(q *http.Request) (any, error) {
	a, err := body(q)
	if err != nil {
		return nil, err
	}
	subject := q.PathValue("s")
	guid := guidOf(a.SchemaType, a.Schema, a.References)
	row := r.s.guids[guid]
	if row != nil {
		for _, v := range r.s.live(subject) {
			if v.id == row.ID {
				return registered(v.number, row), nil
			}
		}
	}
	if _, err := r.s.parse(a.SchemaType, a.Schema, a.References); err != nil {
		return nil, no(42201, "Invalid schema: %v", err)
	}
	level := r.s.level(subject)
	bad, err := r.s.judge(subject, level, a.SchemaType, a.Schema, a.References, r.s.live(subject))
	if err != nil {
		return nil, err
	}
	if len(bad) > 0 {
		return nil, no(409, "Schema being registered is incompatible with an earlier schema for subject \"%s\", details: [%s], {compatibility: '%s'}",
			subject, strings.Join(bad, "; "), level)
	}
	var cs []change
	if row == nil {
		row = &schemaRow{ID: r.s.nextID, GUID: guid, Type: a.SchemaType, Text: a.Schema, References: a.References}
		cs = append(cs, change{Schema: row})
	}
	number := r.s.highest[subject] + 1
	cs = append(cs, change{Version: &versionRow{Subject: subject, Version: number, ID: row.ID}})
	if err := r.s.write(cs...); err != nil {
		return nil, err
	}
	return registered(number, row), nil
}

func registered(number int, row *schemaRow) any {
	return map[string]any{"id": row.ID, "version": number, "guid": row.GUID}
}

func (r *Registry) lookUp(q *http.Request) (any, error) {
	a, err := body(q)
	if err != nil {
		return nil, err
	}
	subject, vs, err := r.versions(q)
	if err != nil {
		return nil, err
	}
	if row := r.s.guids[guidOf(a.SchemaType, a.Schema, a.References)]; row != nil {
		for _, v := range slices.Backward(vs) {
			if v.id == row.ID {
				return showVersion(subject, v, row), nil
			}
		}
	}
	return nil, no(40403, "Schema not found")
}

func (r *Registry) deleteSubject(q *http.Request) (any, error) {
	subject := q.PathValue("s")
	all, live := r.s.subjects[subject], r.s.live(subject)
	permanent := wants(q, "permanent")
	switch {
	case len(all) == 0:
		return nil, no(40401, "Subject '%s' not found.", subject)
	case permanent && len(live) > 0:
		return nil, no(40405, "Subject '%s' was not deleted first before being permanently deleted", subject)
	case !permanent && len(live) == 0:
		return nil, no(40404, "Subject '%s' was soft deleted. Set permanent=true to delete permanently", subject)
	}
	vs := live
	if permanent {
		vs = all
	}
	var cs []change
	out := []int{}
	for _, v := range vs {
		if ids := r.s.referrers(subject, v.number); len(ids) > 0 {
			return nil, no(42206, "One or more references exist to the schema {subject=%s,version=%d}.", subject, v.number)
		}
		cs = append(cs, change{Delete: &deleteRow{Subject: subject, Version: v.number, Permanent: permanent}})
		out = append(out, v.number)
	}
	return out, r.s.write(cs...)
}

func (r *Registry) deleteVersion(q *http.Request) (any, error) {
	subject, permanent := q.PathValue("s"), wants(q, "permanent")
	all := r.s.subjects[subject]
	if len(all) == 0 {
		return nil, no(40401, "Subject '%s' not found.", subject)
	}
	v, err := pick(q, all)
	if err != nil {
		return nil, err
	}
	switch {
	case permanent && !v.deleted:
		return nil, no(40407, "Subject '%s' Version %d was not deleted first before being permanently deleted", subject, v.number)
	case !permanent && v.deleted:
		return nil, no(40406, "Subject '%s' Version %d was soft deleted. Set permanent=true to delete permanently", subject, v.number)
	}
	if ids := r.s.referrers(subject, v.number); len(ids) > 0 {
		return nil, no(42206, "One or more references exist to the schema {subject=%s,version=%d}.", subject, v.number)
	}
	return v.number, r.s.write(change{Delete: &deleteRow{Subject: subject, Version: v.number, Permanent: permanent}})
}

func (r *Registry) rowByID(q *http.Request) (*schemaRow, error) {
	id, err := strconv.ParseInt(q.PathValue("id"), 10, 32)
	if err != nil {
		return nil, no(404, "HTTP 404 Not Found")
	}
	if row := r.s.schemas[int32(id)]; row != nil && r.s.kept(int32(id)) {
		return row, nil
	}
	return nil, no(40403, "Schema %d not found", id)
}

func (r *Registry) byID(q *http.Request) (any, error) {
	row, err := r.rowByID(q)
	if err != nil {
		return nil, err
	}
	return show(row), nil
}

func (r *Registry) textByID(q *http.Request) (any, error) {
	row, err := r.rowByID(q)
	if err != nil {
		return nil, err
	}
	return text(row.Text), nil
}

func (r *Registry) byGUID(q *http.Request) (any, error) {
	row := r.s.guids[strings.ToLower(q.PathValue("guid"))]
	if row == nil || !r.s.kept(row.ID) {
		return nil, no(40403, "Schema %s not found", q.PathValue("guid"))
	}
	s := show(row)
	s.ID = row.ID
	return s, nil
}

func (r *Registry) versionsByID(q *http.Request) (any, error) {
	row, err := r.rowByID(q)
	if err != nil {
		return nil, err
	}
	out := []map[string]any{}
	for _, s := range slices.Sorted(maps.Keys(r.s.subjects)) {
		for _, v := range r.s.subjects[s] {
			if v.id == row.ID && (!v.deleted || wants(q, "deleted")) {
				out = append(out, map[string]any{"subject": s, "version": v.number})
			}
		}
	}
	return out, nil
}

func (r *Registry) subjectsByID(q *http.Request) (any, error) {
	rows, err := r.versionsByID(q)
	if err != nil {
		return nil, err
	}
	out := []string{}
	for _, row := range rows.([]map[string]any) {
		if s := row["subject"].(string); !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// levels are the compatibilities that there are.
var levels = []string{"NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"}

func (r *Registry) getConfig(q *http.Request) (any, error) {
	subject := q.PathValue("s")
	l := r.s.levels[subject]
	if l == "" && wants(q, "defaultToGlobal") {
		l = r.s.levels[""]
	}
	if l == "" {
		return nil, no(40408, "Subject '%s' does not have subject-level compatibility configured", subject)
	}
	return map[string]string{"compatibilityLevel": l}, nil
}

func (r *Registry) putConfig(q *http.Request) (any, error) {
	a, err := body(q)
	if err != nil {
		return nil, err
	}
	if !slices.Contains(levels, a.Compatibility) {
		return nil, no(42203, "Invalid compatibility level. Valid values are %s", strings.Join(levels, ", "))
	}
	return map[string]string{"compatibility": a.Compatibility},
		r.s.write(change{Config: &configRow{Subject: q.PathValue("s"), Level: a.Compatibility}})
}

func (r *Registry) deleteConfig(q *http.Request) (any, error) {
	subject := q.PathValue("s")
	l := r.s.levels[subject]
	if l == "" {
		return nil, no(40408, "Subject '%s' does not have subject-level compatibility configured", subject)
	}
	return map[string]string{"compatibilityLevel": l}, r.s.write(change{Config: &configRow{Subject: subject}})
}

// compatible answers whether a schema could be registered, without doing it.
func (r *Registry) compatible(q *http.Request) (any, error) {
	a, err := body(q)
	if err != nil {
		return nil, err
	}
	subject := q.PathValue("s")
	vs := r.s.live(subject)
	if q.PathValue("v") != "" {
		if len(vs) == 0 {
			return nil, no(40401, "Subject '%s' not found.", subject)
		}
		v, err := pick(q, vs)
		if err != nil {
			return nil, err
		}
		vs = []version{v}
	}
	if _, err := r.s.parse(a.SchemaType, a.Schema, a.References); err != nil {
		return nil, no(42201, "Invalid schema: %v", err)
	}
	bad, err := r.s.judge(subject, r.s.level(subject), a.SchemaType, a.Schema, a.References, vs)
	if err != nil {
		return nil, err
	}
	out := map[string]any{"is_compatible": len(bad) == 0}
	if wants(q, "verbose") {
		out["messages"] = append([]string{}, bad...)
	}
	return out, nil
}
