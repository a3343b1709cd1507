package codec

import (
	"encoding/binary"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"reprieve.dev/pipeline"
)

func TestRedactionHoldsWhenMoreKeysComeThanCanBeLearnt(t *testing.T) {
	const n = 3 * maxPlanNodes
	schema := `{"type":"map","values":{"type":"record","name":"V","fields":[{"name":"pan","type":"string"},{"name":"x","type":"int"}]}}`
	avro := bare(t, schema, DecodeConfig{Limits: Limits{Depth: 10}})
	plain := jsonDecoder(t, Limits{})
	s, e := NewScratch(), &byName{}
	for round := range 4 {
		value := binary.AppendVarint(nil, n)
		var doc strings.Builder
		for i := range n {
			key := fmt.Sprintf("k%d-%d", round, i)
			value = append(binary.AppendVarint(value, int64(len(key))), key...)
			value = append(value, 8, '9', '9', '9', '9', 2)
			fmt.Fprintf(&doc, `,%q:{"pan":"9999","x":1}`, key)
		}
		value = append(value, 0)
		for d, in := range map[*Decoder][]byte{avro: value, plain: []byte("{" + doc.String()[1:] + "}")} {
			s.Reset()
			v, f := d.Decode(t.Context(), s, in, nil)
			if f != nil {
				t.Fatal(f.Reason())
			}
			out, changed, err := v.Edit(nil, e)
			if err != nil || !changed || strings.Contains(string(out), "9999") {
				t.Fatalf("round %d: a card is left", round)
			}
			if got := strings.Count(string(out), "****"); got != n {
				t.Errorf("round %d: %d replaced, want %d", round, got, n)
			}
		}
	}
}

type byName struct{}

func (*byName) Plan(_, name string, _ pipeline.ValueKind, _ []string) pipeline.Rule {
	if name == "pan" {
		return 1
	}
	return 0
}

func (*byName) Edit(pipeline.Rule, pipeline.Leaf) pipeline.Edit {
	return pipeline.Edit{Kind: pipeline.Replace, Text: []byte("****")}
}

func TestReaderNamesReachIntoMaps(t *testing.T) {
	w := `{"type":"map","values":{"type":"record","name":"V","fields":[{"name":"old","type":"string"}]}}`
	r := `{"type":"map","values":{"type":"record","name":"V","fields":[{"name":"pan","type":"string","aliases":["old"]}]}}`
	v := mustView(t, bare(t, w, DecodeConfig{Reader: r}), []byte{2, 2, 'k', 2, 'x', 0})
	out, changed, _ := v.Edit(nil, &byName{})
	if !changed || !strings.Contains(string(out), "****") {
		t.Errorf("%q", out)
	}
}

func TestRegistryCredentialsDoNotFollowARedirect(t *testing.T) {
	leaked := ""
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked = r.Header.Get("Authorization")
		reply(200, schemaBody(`"string"`, ""))(w, r)
	}))
	defer other.Close()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other.URL+r.URL.Path, http.StatusFound)
	}))
	defer server.Close()
	c, err := NewRegistry(RegistryConfig{URL: server.URL, User: "ann", Password: "secret"}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	if _, f := c.ByID(t.Context(), 1); f != nil {
		t.Error(f.Reason())
	}
	if leaked != "" {
		t.Error("the other server got the credentials")
	}
}

func TestRecordsThatUnfoldIntoManyAreRefused(t *testing.T) {
	// Each level holds two of the next: 2^30 leaves of no bytes behind one int.
	schema := `{"type":"record","name":"L0","fields":[{"name":"n","type":"null"}]}`
	for i := 1; i <= 30; i++ {
		schema = fmt.Sprintf(`{"type":"record","name":"L%d","fields":[{"name":"a","type":%s},{"name":"b","type":"L%d"}]}`, i, schema, i-1)
	}
	schema = `{"type":"record","name":"Top","fields":[{"name":"i","type":"int"},{"name":"t","type":` + schema + `}]}`
	start := time.Now()
	parse(t, schema).Places()
	_, f := decode(t, bare(t, schema, DecodeConfig{}), []byte{2})
	if f == nil || f.Code != pipeline.CodeLimitExpansion {
		t.Errorf("%v", f)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}

func TestSchemaTextsThatNestAreRefused(t *testing.T) {
	start := time.Now()
	for _, text := range []string{strings.Repeat(`{"type":"array","items":`, 5000) + `"int"` + strings.Repeat("}", 5000), strings.Repeat("[", 200_000)} {
		if _, f := ParseSchema(pipeline.SchemaRef{Format: FormatAvro, ID: 1}, text); f == nil || f.Code != pipeline.CodeSchemaInvalid {
			t.Errorf("%v", f)
		}
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %s", took)
	}
}
