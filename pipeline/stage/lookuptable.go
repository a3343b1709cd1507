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

// TableLookup is the section table of an enrich stage: a file of rows that is read once, when the pipeline starts, or a compacted topic
// that is followed.
type TableLookup struct {
	File     string            `yaml:"file" doc:"CSV with a header row, or JSON lines; from the folder of the pipeline file. Read when the pipeline starts."`
	Topic    string            `yaml:"topic" doc:"Compacted topic instead of a file: the newest record of each key is its row, and a delete marker takes it away. It is read to its end before the pipeline starts, and then about each second."`
	Cluster  string            `yaml:"cluster" doc:"Cluster of the topic; that of the source if not said."`
	Format   string            `yaml:"format" enum:"csv,jsonl,json,avro" doc:"What the file is (csv, jsonl), by its name if not said; what values of the topic are (json, avro), json if not said."`
	Registry string            `yaml:"registry" doc:"Name of the schema registry of a topic's avro values."`
	Key      string            `yaml:"key" doc:"Column (csv) or JSON pointer (jsonl) that tells rows of a file apart: each value stands once. Rows of a topic are told apart by the record's key, as text."`
	By       string            `yaml:"by" required:"true" doc:"What is looked up: a JSON pointer into the record, header:NAME, or key. It is compared as text."`
	Take     map[string]string `yaml:"take" doc:"Header name to column (csv) or JSON pointer."`
	Into     string            `yaml:"into" doc:"Member of the value that takes the whole row, when route.encode writes the value anew; not of csv, whose columns have no types. A row is not redacted."`
	Missing  `yaml:",inline"`
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
	if t.Topic != "" {
		return codec.FormatJSON
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
	bad := func(path, code, text, suggestion string) { ps = append(ps, n.Problem(path, code, text, suggestion)) }
	format := t.format()
	switch {
	case t.File == "" && t.Topic == "":
		bad("file", config.CodeMissing, "it is required, or topic", "for example file: accounts.csv")
	case t.File != "" && t.Topic != "":
		bad("topic", config.CodeValue, "a table is a file or a topic, not both", "use another enrich stage for the other one")
	case t.Topic != "":
		t.checkTopic(bad)
	default:
		switch {
		case format == "":
			bad("format", config.CodeMissing, "the file's name does not say what it is", "add format: csv or format: jsonl")
		case format != "csv" && format != "jsonl":
			bad("format", config.CodeValue, "a file is csv or jsonl", "write csv or jsonl")
		case format == "csv" && t.Into != "":
			bad("into", config.CodeValue, "columns of csv have no types", "use take, or a file of JSON lines")
		}
		if t.Key == "" {
			bad("key", config.CodeMissing, "it is required beside file", "name the column, or the JSON pointer, that tells rows apart")
		} else if format == "jsonl" && t.Key[0] != '/' {
			bad("key", config.CodeValue, "a path starts with '/'", "write /"+t.Key)
		}
		for path, text := range map[string]string{"cluster": t.Cluster, "registry": t.Registry} {
			if text != "" {
				bad(path, config.CodeValue, "it is only read beside topic", "leave it out")
			}
		}
	}
	if t.By != "" && t.By != "key" && t.By[0] != '/' && (!strings.HasPrefix(t.By, "header:") || t.By == "header:") {
		bad("by", config.CodeValue, "it is neither a path, a header nor the key", "write /"+t.By+" for a field, header:"+t.By+" for a header, or key")
	}
	return append(append(ps, checkTake(n, t.Take, t.Into, format != "csv")...), t.check(n, t.Take)...)
}

func (t *TableLookup) checkTopic(bad func(path, code, text, suggestion string)) {
	switch format := t.format(); {
	case format != codec.FormatJSON && format != codec.FormatAvro:
		bad("format", config.CodeValue, "values of a topic are json or avro", "write json or avro")
	case format == codec.FormatAvro && t.Registry == "":
		bad("registry", config.CodeMissing, "avro needs a schema registry", "write registry: main")
	case format == codec.FormatJSON && t.Registry != "":
		bad("registry", config.CodeValue, "json has no schema", "leave it out, or write format: avro")
	}
	if t.Key != "" {
		bad("key", config.CodeValue, "rows of a topic are told apart by the record's key", "leave it out")
	}
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
	r := tableReader{file: t.File, key: t.Key, columns: newOutcome("", t.Take, t.Into, t.Missing), out: &Table{rows: map[string]answer{}}, lines: map[string]int{}}
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
	columns outcome
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
	columns := make([]int, len(r.columns.take))
	for k := range columns {
		if columns[k], err = at(r.columns.take[k].from); err != nil {
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
	paths, err := r.columns.paths()
	if err != nil {
		return err
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
		if err := r.add(line, string(textAt(v, key)), r.columns.of(v, paths)); err != nil {
			return err
		}
	}
	return nil
}

// tableLookup finds each record's row.
type tableLookup struct {
	outcome
	by    place
	table *Table    // of a file
	topic *topicRow // else
}

func buildTableLookup(t *TableLookup, env pipeline.Env) (*tableLookup, pipeline.Close, error) {
	l := &tableLookup{outcome: newOutcome(env.Name, t.Take, t.Into, t.Missing)}
	var err error
	if l.by, err = newPlace(t.By); err != nil {
		return nil, nil, err
	}
	if t.Topic != "" {
		var shut pipeline.Close
		l.topic, shut, err = followTopic(t, l.outcome, env)
		return l, shut, err
	}
	data, err := resource[[]byte](env, ResourceFile, t.File)
	if err != nil {
		return nil, nil, err
	}
	l.table, err = t.ReadTable(data)
	return l, nil, err
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
		var a answer
		var ok bool
		if l.topic != nil {
			a, ok = l.topic.row(key)
		} else {
			a, ok = l.table.rows[string(key)]
		}
		if ok {
			l.set(b, i, a)
		} else {
			l.none(b, i, "no entry")
		}
	}
}
