package codec

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"reprieve.dev/pipeline"
)

// folder is a registry of files: what try --schemas reads.
type folder struct {
	ids    map[int32]answer
	guids  map[string]answer
	prints map[uint64]*Schema
	latest map[string]answer // by the name of the file, without its end
}

type answer struct {
	schema  *Schema
	failure *pipeline.Failure
}

// Folder reads a folder of schemas named by id or GUID: 7.avsc, 7.json (JSON Schema), 7.proto,
// 4f7a...-....avsc. Files with other names are what those may refer to: an Avro file by the full name in it, a JSON Schema or
// Protobuf file by its path in the folder. An Avro file named as a subject is its newest schema, under the id of the file with the
// same schema if there is one. A schema that cannot be used is an answer (ERR_SCHEMA_INVALID), not an error.
// Codes: ERR_INPUT_INVALID.
func Folder(dir string) (Registry, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return nil, pipeline.Errorf(pipeline.CodeInputInvalid, dir, "the folder of schemas cannot be read: %w", err)
	}
	f := &folder{ids: map[int32]answer{}, guids: map[string]answer{}, prints: map[uint64]*Schema{}, latest: map[string]answer{}}
	type named struct {
		ref  pipeline.SchemaRef
		text string
	}
	var found []named
	others := map[string][]Reference{}
	for _, e := range files {
		format := map[string]string{".avsc": FormatAvro, ".json": FormatJSONSchema, ".proto": FormatProtobuf}[filepath.Ext(e.Name())]
		if e.IsDir() || format == "" {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, pipeline.Errorf(pipeline.CodeInputInvalid, filepath.Join(dir, e.Name()), "the schema cannot be read: %w", err)
		}
		stem := strings.TrimSuffix(e.Name(), filepath.Ext(e.Name()))
		id, err := strconv.ParseInt(stem, 10, 32)
		guid, isGUID := parseGUID(stem)
		switch {
		case isGUID: // may be digits only
			found = append(found, named{pipeline.SchemaRef{Format: format, GUID: guidText(guid)}, string(text)})
		case err == nil && id >= 0:
			found = append(found, named{pipeline.SchemaRef{Format: format, ID: int32(id)}, string(text)})
		default:
			others[format] = append(others[format], Reference{Name: e.Name(), Text: string(text), Format: format})
		}
	}
	others[FormatAvro] = orderAvro(others[FormatAvro])
	for _, n := range found {
		var a answer
		a.schema, a.failure = ParseSchema(n.ref, n.text, others[n.ref.Format]...)
		if n.ref.GUID != "" {
			f.guids[n.ref.GUID] = a
		} else {
			f.ids[n.ref.ID] = a
		}
		if a.schema != nil && n.ref.Format == FormatAvro {
			f.prints[a.schema.Fingerprint()] = a.schema
		}
	}
	for _, o := range others[FormatAvro] {
		var a answer
		if a.schema, a.failure = ParseSchema(pipeline.SchemaRef{Format: FormatAvro}, o.Text, others[FormatAvro]...); a.schema != nil {
			if same := f.prints[a.schema.Fingerprint()]; same != nil {
				a.schema = same
			}
		}
		f.latest[strings.TrimSuffix(o.Name, ".avsc")] = a
	}
	return f, nil
}

// orderAvro puts files so that each only needs those before it; what never fits stays out.
func orderAvro(left []Reference) (done []Reference) {
	for {
		n := len(left)
		left = slices.DeleteFunc(left, func(r Reference) bool {
			s := &Schema{text: r.Text, refs: done}
			if s.parseAvro() != nil {
				return false
			}
			done = append(done, r)
			return true
		})
		if len(left) == n {
			return done
		}
	}
}

// ByID returns the schema of a file named by its id. Codes: ERR_SCHEMA_UNKNOWN, ERR_SCHEMA_INVALID.
func (f *folder) ByID(_ context.Context, id int32) (*Schema, *pipeline.Failure) {
	a, ok := f.ids[id]
	if !ok {
		return nil, &pipeline.Failure{Code: pipeline.CodeSchemaUnknown, Params: []pipeline.Param{pipeline.Str("schema", "id:"+strconv.Itoa(int(id)))}}
	}
	return a.schema, a.failure
}

// ByGUID returns the schema of a file named by its GUID. Codes as ByID.
func (f *folder) ByGUID(_ context.Context, guid string) (*Schema, *pipeline.Failure) {
	a, ok := f.guids[guid]
	if !ok {
		return nil, &pipeline.Failure{Code: pipeline.CodeSchemaUnknown, Params: []pipeline.Param{pipeline.Str("schema", "guid:"+guid)}}
	}
	return a.schema, a.failure
}

// Latest returns the schema of a file named as a subject. Codes as ByID.
func (f *folder) Latest(_ context.Context, subject string) (*Schema, *pipeline.Failure) {
	a, ok := f.latest[subject]
	if !ok {
		return nil, &pipeline.Failure{Code: pipeline.CodeSchemaUnknown, Params: []pipeline.Param{pipeline.Str("schema", "subject:"+subject)}}
	}
	return a.schema, a.failure
}

func (f *folder) byFingerprint(fp uint64) *Schema { return f.prints[fp] }
