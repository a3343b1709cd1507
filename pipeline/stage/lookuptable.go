package stage

import (
	"bytes"
	"context"
	"encoding/csv"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/config"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

// TableLookup is the section table of an enrich stage: a file of rows that is read once, when the pipeline starts.
type TableLookup struct {
	File    string            `yaml:"file" required:"true" doc:"CSV with a header row, or JSON lines; from the folder of the pipeline file. Read when the pipeline starts."`
	Format  string            `yaml:"format" enum:"csv,jsonl" doc:"What the file is; by its name if not said (.csv, .jsonl, .ndjson)."`
	Key     string            `yaml:"key" required:"true" doc:"Column (csv) or JSON pointer (jsonl) that tells rows apart: each value stands once."`
	By      string            `yaml:"by" required:"true" doc:"What is looked up: a JSON pointer into the record, header:NAME, or key. It is compared as text."`
	Take    map[string]string `yaml:"take" required:"true" doc:"Header name to column (csv) or JSON pointer (jsonl)."`
	Missing `yaml:",inline"`
}

// The most that a table may have: it is kept in memory.
const (
	maxTableBytes = 64 << 20
	maxTableRows  = 1_000_000
)

func (t *TableLookup) format() string {
	if t.Format != "" {
		return t.Format
	}
	switch strings.ToLower(filepath.Ext(t.File)) {
	case ".csv":
		return "csv"
	case ".jsonl", ".ndjson":
		return "jsonl"
	}
	return ""
}

// Validate checks the form.
func (t *TableLookup) Validate(n config.Node) (ps config.Problems) {
	if t.File != "" && t.format() == "" {
		ps = append(ps, n.Problem("format", config.CodeMissing, "the file's name does not say what it is", "add format: csv or format: jsonl"))
	}
	lines := t.format() == "jsonl"
	if t.Key != "" && lines && t.Key[0] != '/' {
		ps = append(ps, n.Problem("key", config.CodeValue, "a path starts with '/'", "write /"+t.Key))
	}
	if t.By != "" && t.By != "key" && t.By[0] != '/' && (!strings.HasPrefix(t.By, "header:") || t.By == "header:") {
		ps = append(ps, n.Problem("by", config.CodeValue, "it is neither a path, a header nor the key", "write /"+t.By+" for a field, header:"+t.By+" for a header, or key"))
	}
	return append(append(ps, checkTake(n, t.Take, lines)...), t.check(n, t.Take)...)
}

// Table is the content of a file: an answer for each key. It is immutable.
type Table struct{ rows map[string]answer }

// Len is the number of rows.
func (t *Table) Len() int { return len(t.rows) }

// ReadTable reads the rows of a table. Codes: ERR_INPUT_INVALID with file and line.
func (t *TableLookup) ReadTable(data []byte) (*Table, error) {
	if len(data) > maxTableBytes {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, t.File, "the table has %d bytes; at most %d are kept in memory", len(data), maxTableBytes)
	}
	r := tableReader{file: t.File, key: t.Key, columns: newOutcome("", t.Take, t.Missing).take, out: &Table{rows: map[string]answer{}}, lines: map[string]int{}}
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	var err error
	if t.format() == "jsonl" {
		err = r.jsonl(data)
	} else {
		err = r.csv(data)
	}
	if err != nil {
		return nil, err
	}
	return r.out, nil
}

type tableReader struct {
	file    string
	key     string
	columns []taken
	out     *Table
	lines   map[string]int // of each key, to name the first of two
}

func (r *tableReader) bad(line int, format string, args ...any) error {
	return pipeline.Errorf(pipeline.CodeInputInvalid, r.file+":"+strconv.Itoa(line), format, args...)
}

func (r *tableReader) add(line int, key string, a answer) error {
	if key == "" {
		return r.bad(line, "the row has no key")
	}
	if first, twice := r.lines[key]; twice {
		return r.bad(line, "the key stands in line %d already: which row counts?", first)
	}
	if len(r.out.rows) == maxTableRows {
		return r.bad(line, "the table has more than %d rows", maxTableRows)
	}
	r.lines[key], r.out.rows[key] = line, a
	return nil
}

func (r *tableReader) csv(data []byte) error {
	c := csv.NewReader(bytes.NewReader(data))
	head, err := c.Read()
	if err != nil {
		return r.bad(1, "the table has no header row: %w", err)
	}
	at := func(column string) (int, error) {
		column = strings.TrimPrefix(column, "/")
		i := slices.Index(head, column)
		switch {
		case i < 0:
			return 0, pipeline.Errorf(pipeline.CodeInputInvalid, r.file+":1", "there is no column %q", column).With("the columns are " + strings.Join(head, ", "))
		case slices.Contains(head[i+1:], column):
			return 0, r.bad(1, "the column %q stands twice", column)
		}
		return i, nil
	}
	key, err := at(r.key)
	if err != nil {
		return err
	}
	columns := make([]int, len(r.columns))
	for k := range columns {
		if columns[k], err = at(r.columns[k].from); err != nil {
			return err
		}
	}
	for {
		row, err := c.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if p, ok := errors.AsType[*csv.ParseError](err); ok {
			return r.bad(p.Line, "%w", p.Err)
		}
		if err != nil {
			return r.bad(0, "%w", err)
		}
		a := make(answer, len(columns))
		for k, i := range columns {
			a[k] = append([]byte{}, row[i]...)
		}
		line, _ := c.FieldPos(0)
		if err := r.add(line, row[key], a); err != nil {
			return err
		}
	}
}

func (r *tableReader) jsonl(data []byte) error {
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: "json"}, nil)
	if err != nil {
		return err
	}
	key, err := pipeline.NewPath(r.key)
	if err != nil {
		return err
	}
	paths := make([]*pipeline.Path, len(r.columns))
	for k := range paths {
		if paths[k], err = pipeline.NewPath(r.columns[k].from); err != nil {
			return err
		}
	}
	s := codec.NewScratch()
	var none context.Context // JSON asks no registry
	line := 0
	for row := range bytes.SplitSeq(data, []byte("\n")) {
		line++
		if len(bytes.TrimSpace(row)) == 0 {
			continue
		}
		s.Reset()
		v, f := dec.Decode(none, s, row, nil)
		if f != nil {
			return r.bad(line, "%s", f.Reason())
		}
		a := make(answer, len(paths))
		for k, p := range paths {
			a[k] = textAt(v, p)
		}
		if err := r.add(line, string(textAt(v, key)), a); err != nil {
			return err
		}
	}
	return nil
}

// tableLookup finds each record's row.
type tableLookup struct {
	outcome
	by    place
	table *Table
}

func buildTableLookup(t *TableLookup, env pipeline.Env) (*tableLookup, error) {
	data, err := resource[[]byte](env, ResourceFile, t.File)
	if err != nil {
		return nil, err
	}
	l := &tableLookup{outcome: newOutcome(env.Name, t.Take, t.Missing)}
	if l.by, err = newPlace(t.By); err != nil {
		return nil, err
	}
	l.table, err = t.ReadTable(data)
	return l, err
}

func (l *tableLookup) process(b *pipeline.Batch) {
	for i := range b.Recs {
		if !b.Live(i) || b.Views[i] == nil && l.by.path != nil {
			continue // a delete marker has no fields
		}
		var room [64]byte
		key := room[:0]
		switch r := &b.Recs[i]; {
		case l.by.path == nil:
			key = l.by.bytes(b.TP.Topic, r, nil)
		default:
			if v, ok := b.Views[i].Get(l.by.path); ok {
				key = v.AppendText(key)
			}
		}
		if len(key) == 0 {
			l.none(b, i, "no key")
			continue
		}
		if a, ok := l.table.rows[string(key)]; ok {
			l.set(b, i, a)
		} else {
			l.none(b, i, "no entry")
		}
	}
}
