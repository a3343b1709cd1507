package embedded

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// change is one line of the file; the state is their fold. Exactly one field is set.
type change struct {
	Schema  *schemaRow  `json:"schema,omitempty"`
	Version *versionRow `json:"version,omitempty"`
	Delete  *deleteRow  `json:"delete,omitempty"`
	Config  *configRow  `json:"config,omitempty"`
}

type schemaRow struct {
	ID         int32       `json:"id"`
	GUID       string      `json:"guid"`
	Type       string      `json:"type"`
	Text       string      `json:"text"`
	References []reference `json:"references,omitempty"`
}

// reference is a schema that another one names, as the API spells it.
type reference struct {
	Name    string `json:"name"`
	Subject string `json:"subject"`
	Version int    `json:"version"`
}

type versionRow struct {
	Subject string `json:"subject"`
	Version int    `json:"version"`
	ID      int32  `json:"id"`
}

type deleteRow struct {
	Subject   string `json:"subject"`
	Version   int    `json:"version"`
	Permanent bool   `json:"permanent,omitempty"`
}

type configRow struct {
	Subject string `json:"subject,omitempty"` // "" is the default of all
	Level   string `json:"level,omitempty"`   // "" removes it
}

// version is one version of a subject.
type version struct {
	number  int
	id      int32
	deleted bool
}

type store struct {
	f        *os.File
	schemas  map[int32]*schemaRow
	guids    map[string]*schemaRow
	subjects map[string][]version // by number; permanently deleted ones are gone
	highest  map[string]int       // highest number ever given: never given again
	levels   map[string]string
	nextID   int32
}

func openStore(path string) (*store, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	s := &store{f: f, schemas: map[int32]*schemaRow{}, guids: map[string]*schemaRow{}, subjects: map[string][]version{},
		highest: map[string]int{}, levels: map[string]string{"": "BACKWARD"}, nextID: 1}
	good := int64(0)
	for r := bufio.NewReader(f); ; {
		line, err := r.ReadBytes('\n')
		if err == io.EOF { // a last line without its end was not answered: it never happened
			break
		}
		if err != nil {
			_ = f.Close()
			return nil, err
		}
		var c change
		if err := json.Unmarshal(line, &c); err != nil {
			_ = f.Close()
			return nil, fmt.Errorf("%s at byte %d: %w", path, good, err)
		}
		s.apply(c)
		good += int64(len(line))
	}
	if err := f.Truncate(good); err != nil {
		_ = f.Close()
		return nil, err
	}
	if _, err := f.Seek(good, io.SeekStart); err != nil {
		_ = f.Close()
		return nil, err
	}
	return s, nil
}

func (s *store) close() error { return s.f.Close() }

// write makes changes durable, then part of the state.
func (s *store) write(cs ...change) error {
	var b bytes.Buffer
	for _, c := range cs {
		line, err := json.Marshal(c)
		if err != nil {
			return err
		}
		b.Write(line)
		b.WriteByte('\n')
	}
	if _, err := s.f.Write(b.Bytes()); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return err
	}
	for _, c := range cs {
		s.apply(c)
	}
	return nil
}

func (s *store) apply(c change) {
	switch {
	case c.Schema != nil:
		s.schemas[c.Schema.ID], s.guids[c.Schema.GUID] = c.Schema, c.Schema
		s.nextID = max(s.nextID, c.Schema.ID+1)
	case c.Version != nil:
		v := c.Version
		vs := slices.DeleteFunc(s.subjects[v.Subject], func(o version) bool { return o.number == v.Version })
		vs = append(vs, version{number: v.Version, id: v.ID})
		slices.SortFunc(vs, func(a, b version) int { return a.number - b.number })
		s.subjects[v.Subject] = vs
		s.highest[v.Subject] = max(s.highest[v.Subject], v.Version)
	case c.Delete != nil:
		d := c.Delete
		vs := s.subjects[d.Subject]
		i := slices.IndexFunc(vs, func(o version) bool { return o.number == d.Version })
		if i < 0 {
			return
		}
		if d.Permanent {
			vs = slices.Delete(vs, i, i+1)
		} else {
			vs[i].deleted = true
		}
		s.subjects[d.Subject] = vs
		if len(vs) == 0 {
			delete(s.subjects, d.Subject)
		}
	case c.Config != nil:
		if c.Config.Level == "" {
			delete(s.levels, c.Config.Subject)
		} else {
			s.levels[c.Config.Subject] = c.Config.Level
		}
	}
}

// live returns the versions of a subject that are not deleted.
func (s *store) live(subject string) (out []version) {
	for _, v := range s.subjects[subject] {
		if !v.deleted {
			out = append(out, v)
		}
	}
	return out
}

// level is the compatibility that a subject is held to.
func (s *store) level(subject string) string {
	if l := s.levels[subject]; l != "" {
		return l
	}
	return s.levels[""]
}

// formats maps the registry's names of formats to ours.
var formats = map[string]string{"AVRO": codec.FormatAvro, "JSON": codec.FormatJSONSchema, "PROTOBUF": codec.FormatProtobuf}

// normal is the text by which schemas are compared: white space does not count in JSON.
func normal(kind, text string) string {
	if kind == "PROTOBUF" {
		return strings.TrimSpace(text)
	}
	var b bytes.Buffer
	if json.Compact(&b, []byte(text)) != nil {
		return text
	}
	return b.String()
}

// guidOf names a schema by its content: the same schema has the same GUID in every registry of this kind.
func guidOf(kind, text string, refs []reference) string {
	h := sha256.New()
	part := func(s string) { fmt.Fprintf(h, "%d:%s", len(s), s) }
	part(kind)
	part(normal(kind, text))
	for _, r := range refs {
		part(fmt.Sprintf("%s/%s/%d", r.Name, r.Subject, r.Version))
	}
	b := h.Sum(nil)[:16]
	b[6], b[8] = b[6]&0x0f|0x80, b[8]&0x3f|0x80 // version 8: made by our own rule
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// parse compiles a schema with what it refers to.
func (s *store) parse(kind, text string, refs []reference) (*codec.Schema, error) {
	var all []codec.Reference
	seen := map[string]bool{}
	if err := s.collect(refs, &all, seen, 0); err != nil {
		return nil, err
	}
	c, f := codec.ParseSchema(pipeline.SchemaRef{Format: formats[kind]}, text, all...)
	if f != nil {
		if f.Cause != nil {
			return nil, f.Cause
		}
		return nil, fmt.Errorf("%s", f.Reason())
	}
	return c, nil
}

// collect adds references in an order in which each needs only those before it.
func (s *store) collect(refs []reference, all *[]codec.Reference, seen map[string]bool, depth int) error {
	if depth > 32 {
		return fmt.Errorf("references go deeper than 32")
	}
	for _, r := range refs {
		key := fmt.Sprintf("%s/%d", r.Subject, r.Version)
		if seen[key] {
			continue
		}
		seen[key] = true
		i := slices.IndexFunc(s.subjects[r.Subject], func(v version) bool { return v.number == r.Version })
		if i < 0 {
			return fmt.Errorf("no schema reference found for subject %q and version %d", r.Subject, r.Version)
		}
		row := s.schemas[s.subjects[r.Subject][i].id]
		if err := s.collect(row.References, all, seen, depth+1); err != nil {
			return err
		}
		*all = append(*all, codec.Reference{Name: r.Name, Subject: r.Subject, Version: r.Version, Text: row.Text, Format: formats[row.Type]})
	}
	return nil
}

// judge says what of the subject's earlier versions a new schema does not go with; empty: it may be taken.
func (s *store) judge(subject, level, kind, text string, refs []reference, against []version) ([]string, error) {
	if level == "NONE" || len(against) == 0 {
		return nil, nil
	}
	if !strings.HasSuffix(level, "_TRANSITIVE") {
		against = against[len(against)-1:]
	}
	next, err := s.parse(kind, text, refs)
	if err != nil {
		return nil, err
	}
	var bad []string
	for _, v := range slices.Backward(against) {
		row := s.schemas[v.id]
		if row.Type != kind {
			bad = append(bad, fmt.Sprintf("version %d is of type %s, not %s", v.number, row.Type, kind))
			continue
		}
		if kind != "AVRO" {
			continue
		}
		old, err := s.parse(row.Type, row.Text, row.References)
		if err != nil {
			return nil, err
		}
		way := strings.TrimSuffix(level, "_TRANSITIVE")
		if way == "BACKWARD" || way == "FULL" {
			if err := codec.Compatible(next, old); err != nil {
				bad = append(bad, fmt.Sprintf("the new schema cannot read data of version %d: %v", v.number, err))
			}
		}
		if way == "FORWARD" || way == "FULL" {
			if err := codec.Compatible(old, next); err != nil {
				bad = append(bad, fmt.Sprintf("version %d cannot read data of the new schema: %v", v.number, err))
			}
		}
	}
	return bad, nil
}

// referrers lists the ids of schemas that refer to a version.
func (s *store) referrers(subject string, number int) (ids []int32) {
	for id, row := range s.schemas {
		for _, r := range row.References {
			if r.Subject == subject && r.Version == number && s.used(id) {
				ids = append(ids, id)
				break
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// kept tells whether a subject has the schema in any version, also one that was deleted softly: after the last one was deleted for good,
// nobody finds it by its id.
func (s *store) kept(id int32) bool {
	for _, vs := range s.subjects {
		for _, v := range vs {
			if v.id == id {
				return true
			}
		}
	}
	return false
}

// used tells whether a subject has the schema in a version that is not deleted.
func (s *store) used(id int32) bool {
	for _, vs := range s.subjects {
		for _, v := range vs {
			if v.id == id && !v.deleted {
				return true
			}
		}
	}
	return false
}
