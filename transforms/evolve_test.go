package transforms

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

func TestUpcastEvolvesAJSONSchemaRecord(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"3.json": `{"type":"object","required":["id"],"properties":{"id":{"type":"string"}}}`,
		"4.json": `{"type":"object","required":["id","region"],"properties":{"id":{"type":"string"},"region":{"type":"string","default":"eu"},
			"lines":{"type":"array","items":{"type":"object","properties":{"unit":{"type":"string","default":"pcs"}}}},
			"terms":{"type":"object","properties":{"days":{"type":"integer","default":30}}}}}`,
		"5.json": `{"type":"object","required":["owner"],"properties":{"owner":{"type":"string"}}}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	reg, err := codec.Folder(dir)
	if err != nil {
		t.Fatal(err)
	}
	dec, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatJSONSchema}, reg)
	if err != nil {
		t.Fatal(err)
	}
	lib := NewLibrary(Options{Decoder: dec, Registry: reg})
	frame := func(id uint32, text string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{0}, id), text...)
	}
	up := parse(t, lib, "upcast@1.0.0", `{"schema":"jsonschema:4"}`)
	r := repair(t, up, envelope(frame(3, ` {"id": "a",  "net": 1.50, "lines":[{"unit":"kg"},{}], "terms":{}} `)))
	if r.Failure != nil {
		t.Fatal(r.Failure.Reason(), r.Failure.Cause)
	}
	want := frame(4, ` {"id":"a","net":1.50,"lines":[{"unit":"kg"},{"unit":"pcs"}],"terms":{"days":30},"region":"eu"} `)
	if string(r.Value) != string(want) || r.Schema != "jsonschema:4" || !slices.Equal(r.Report.Changed, []string{"/region", "/lines/*/unit", "/terms/days", "schema"}) {
		t.Errorf("%q\n%q %s %v", r.Value, want, r.Schema, r.Report.Changed)
	}
	if r := repair(t, up, envelope(r.Value)); r.Failure != nil || len(r.Report.Changed) != 0 || string(r.Value) != string(want) {
		t.Errorf("a second one: %+v", r)
	}
	for name, config := range map[string]string{"no default for what it requires": `{"schema":5}`, "unknown": `{"schema":99}`} {
		r := repair(t, parse(t, lib, "upcast@1.0.0", config), envelope(frame(3, `{"id":"a"}`)))
		if r.Failure == nil || r.Failure.Code != pipeline.CodeTransformSchema || string(r.Value) != string(frame(3, `{"id":"a"}`)) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}
