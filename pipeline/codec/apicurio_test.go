package codec_test

import (
	"crypto/rand"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
	"reprieve.dev/tests/services"
)

func unique() string {
	b := make([]byte, 4)
	_, _ = rand.Read(b) // never fails
	return "t" + hex.EncodeToString(b)
}

func path(t *testing.T, text string) *pipeline.Path {
	t.Helper()
	p, err := pipeline.NewPath(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func text(t *testing.T, v pipeline.View, at string) string {
	t.Helper()
	got, ok := v.Get(path(t, at))
	if !ok {
		t.Errorf("there is no %s", at)
	}
	return string(got.AppendText(nil))
}

// The client against a registry that others wrote: schemas of all formats with references, by id, by subject, unknown ones.
func TestTheClientAgainstARealRegistry(t *testing.T) {
	c, err := codec.NewRegistry(codec.RegistryConfig{Name: "real", URL: services.Registry(t)}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	run := unique()
	register := func(subject, text, format string, refs ...codec.Reference) int32 {
		t.Helper()
		id, err := c.Register(t.Context(), run+"."+subject, text, format, refs...)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	decode := func(format string, id int32, body []byte) pipeline.View {
		t.Helper()
		d, err := codec.NewDecoder(codec.DecodeConfig{Format: format}, c)
		if err != nil {
			t.Fatal(err)
		}
		v, f := d.Decode(t.Context(), codec.NewScratch(), codec.Frame(id, body), nil)
		if f != nil {
			t.Fatalf("%s: %s: %v", format, f.Reason(), f.Cause)
		}
		if s := v.Schema(); s.ID != id || s.Format != format {
			t.Errorf("schema %s", s)
		}
		return v
	}

	register("party", `{"type":"record","name":"Party","namespace":"`+run+`","fields":[{"name":"email","type":"string"}]}`, codec.FormatAvro)
	order := `{"type":"record","name":"Order","namespace":"` + run + `","fields":[{"name":"id","type":"string"},{"name":"party","type":"` + run + `.Party"}]}`
	avro := register("order", order, codec.FormatAvro, codec.Reference{Name: run + ".Party", Subject: run + ".party", Version: 1})
	v := decode(codec.FormatAvro, avro, []byte("\x04o1\x02a"))
	if text(t, v, "/id") != "o1" || text(t, v, "/party/email") != "a" {
		t.Error("an Avro record with a reference")
	}
	if s, f := c.Latest(t.Context(), run+".order"); f != nil || s.Ref().ID != avro || len(s.References()) != 1 {
		t.Errorf("the latest of the subject: %v", f)
	}

	register("party-json", `{"$id":"`+run+`/party.json","type":"object","properties":{"email":{"type":"string"}},"required":["email"]}`, codec.FormatJSONSchema)
	json := register("order-json", `{"type":"object","properties":{"party":{"$ref":"`+run+`/party.json"}}}`, codec.FormatJSONSchema,
		codec.Reference{Name: run + "/party.json", Subject: run + ".party-json", Version: 1})
	if v := decode(codec.FormatJSONSchema, json, []byte(`{"party":{"email":"a"}}`)); text(t, v, "/party/email") != "a" {
		t.Error("a JSON document with a reference")
	}

	register("party-proto", "syntax = \"proto3\";\npackage "+run+";\nmessage Party { string email = 1; }\n", codec.FormatProtobuf)
	proto := register("order-proto", "syntax = \"proto3\";\npackage "+run+";\nimport \"party.proto\";\nmessage Order { string id = 1; Party party = 2; }\n", codec.FormatProtobuf,
		codec.Reference{Name: "party.proto", Subject: run + ".party-proto", Version: 1})
	if v := decode(codec.FormatProtobuf, proto, []byte("\x00\x0a\x02o1\x12\x03\x0a\x01a")); text(t, v, "/id") != "o1" || text(t, v, "/party/email") != "a" {
		t.Error("a Protobuf message with a reference")
	}

	if _, f := c.ByID(t.Context(), 1<<30); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Errorf("an unknown id: %+v", f)
	}
	if _, f := c.Latest(t.Context(), run+".nobody"); f == nil || f.Code != pipeline.CodeSchemaUnknown {
		t.Errorf("an unknown subject: %+v", f)
	}
	if _, err := c.Register(t.Context(), run+".order", `{"type":"record","name":"Order","namespace":"`+run+`","fields":[{"name":"other","type":"int"}]}`, codec.FormatAvro); pipeline.CodeOf(err) != pipeline.CodeSchemaInvalid {
		t.Errorf("an incompatible change: %v: %v", err, errors.Unwrap(err))
	}
	if !c.Healthy() {
		t.Error("its refusals count as trouble")
	}
}

// A registry with passwords, and one that goes away: what is known goes on.
func TestARealRegistryWithPasswordsThatGoesAway(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a registry of its own")
	}
	r, err := services.StartRegistry(services.RegistryOptions{User: "ann", Password: "secret"})
	if err != nil {
		t.Skipf("no registry: %v", err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	}
	defer stop()
	open := func(user, password string) *codec.Cache {
		c, err := codec.NewRegistry(codec.RegistryConfig{URL: r.URL, User: user, Password: password, Timeout: 2 * time.Second}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := open("ann", "secret")
	id, err := c.Register(t.Context(), "known", `"string"`, codec.FormatAvro)
	if err != nil {
		t.Fatal(err)
	}
	other, err := c.Register(t.Context(), "not-asked-for", `"long"`, codec.FormatAvro)
	if err != nil {
		t.Fatal(err)
	}
	if _, f := c.ByID(t.Context(), id); f != nil {
		t.Fatal(f.Reason())
	}
	for _, wrong := range []*codec.Cache{open("ann", "guess"), open("", "")} {
		if _, f := wrong.ByID(t.Context(), id); f == nil || f.Code != pipeline.CodeRegistryDenied {
			t.Errorf("with a wrong password: %+v", f)
		}
	}
	stop()
	if _, f := c.ByID(t.Context(), other); f == nil || f.Code != pipeline.CodeRegistryUnavailable {
		t.Errorf("an id that was never seen: %+v", f)
	}
	d, err := codec.NewDecoder(codec.DecodeConfig{Format: codec.FormatAvro}, c)
	if err != nil {
		t.Fatal(err)
	}
	if v, f := d.Decode(t.Context(), codec.NewScratch(), codec.Frame(id, []byte("\x02a")), nil); f != nil || text(t, v, "") != "a" {
		t.Errorf("a known id while it is down: %+v", f)
	}
}
