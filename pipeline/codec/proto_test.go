package codec

import (
	"encoding/hex"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/dynamicpb"

	"reprieve.dev/pipeline"
)

const orderProto = `syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
import "confluent/meta.proto";
import "party.proto";
message First { string x = 1; }
message Order {
  message Line { string sku = 1; int32 qty = 2; repeated sint64 deltas = 3; }
  string id = 1;
  shop.Party party = 2;
  repeated Line lines = 3;
  map<string, string> labels = 4;
  int64 amount = 5;
  uint64 big = 6;
  optional string note = 7;
  enum State { OPEN = 0; PAID = 1; }
  State state = 8;
  google.protobuf.Timestamp at = 9;
  string card = 10 [(confluent.field_meta).tags = "PCI"];
  repeated string names = 11;
  double rate = 12;
  bytes raw = 13;
  Order next = 14;
}
`

const partyProto = `syntax = "proto3";
package shop;
message Party { string email = 1; string country = 2; }
`

const orderText = `{"id":"o1","party":{"email":"a@example.com","country":"DE"},"lines":[{"sku":"s1","qty":2,"deltas":["-1","5"]},{"sku":"s2"}],` +
	`"labels":{"region":"eu"},"amount":"9007199254740993","big":"18446744073709551615","state":"PAID","at":"2026-09-15T10:00:00.123Z",` +
	`"card":"4111111111111111","names":["n1","n2"],"rate":1.5,"raw":"//4="}`

func protoRegistry(t testing.TB) *Cache {
	server := newFakeRegistry(t)
	server.answer("/subjects/party/versions/1", reply(200, schemaBody(partyProto, "PROTOBUF")))
	server.answer("/schemas/ids/4", reply(200, schemaBody(orderProto, "PROTOBUF", []byte(`{"name":"party.proto","subject":"party","version":1}`))))
	return server.cache(t)
}

func orderBytes(t testing.TB, c *Cache) []byte {
	t.Helper()
	s, f := c.ByID(t.Context(), 4)
	if f != nil {
		t.Fatal(f.Reason(), f.Cause)
	}
	m := dynamicpb.NewMessage(s.messageAt([]int{1}))
	if err := protojson.Unmarshal([]byte(orderText), m); err != nil {
		t.Fatal(err)
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestProtobufViewReadsAndEdits(t *testing.T) {
	c := protoRegistry(t)
	body := orderBytes(t, c)
	body = protowire.AppendBytes(protowire.AppendTag(body, 999, protowire.BytesType), []byte("unknown field"))
	d, err := NewDecoder(DecodeConfig{Format: FormatProtobuf}, c)
	if err != nil {
		t.Fatal(err)
	}
	value := append(Frame(4, []byte{2, 2}), body...) // one index, zigzag 1
	v := mustView(t, d, value)
	want := strings.NewReplacer().Replace(orderText)
	if got := text(t, v); len(got) != len(want) || got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for p, want := range map[string]string{"/id": "o1", "/party/email": "a@example.com", "/lines/1/sku": "s2", "/lines/0/deltas/0": "-1", "/lines/1/qty": "0",
		"/labels/region": "eu", "/amount": "9007199254740993", "/big": "18446744073709551615", "/state": "PAID", "/note": "(none)", "/nothing": "(none)",
		"/names/1": "n2", "/next/id": "(none)", "/at": "1789466400123000000", "/lines/2/sku": "(none)"} {
		if got := get(t, v, p); got != want {
			t.Errorf("%s: %s, want %s", p, got, want)
		}
	}
	out, changed, err := v.Edit([]byte("x"), tagEditor{map[string][]string{}})
	if err != nil || !changed {
		t.Fatal(err)
	}
	out = out[1:]
	if got, want := text(t, mustView(t, d, out)), strings.ReplaceAll(want, "4111111111111111", "***"); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !strings.HasSuffix(string(out), "unknown field") {
		t.Error("an unknown field was lost")
	}
	e := &redactEditor{text: []byte("much longer than what was there before, to move lengths"), paths: map[string]bool{"/party/email": true, "/lines/*/sku": true, "/labels/region": true, "/names/*": true, "/lines/*/deltas/*": true}}
	out, _, _ = v.Edit(nil, e)
	long := text(t, mustView(t, d, out))
	for _, s := range []string{"a@example.com", "s1", "n2", `"eu"`, `"-1"`} {
		if strings.Contains(long, s) {
			t.Errorf("%s is left in %s", s, long)
		}
	}
	if err := v.Rebind(out); err != nil || text(t, v) != long {
		t.Errorf("Rebind: %v", err)
	}
	if _, changed, _ := v.Edit(nil, &redactEditor{}); changed {
		t.Error("nothing to edit changed something")
	}
}

func TestProtobufRefusesDamage(t *testing.T) {
	c := protoRegistry(t)
	body := orderBytes(t, c)
	d, err := NewDecoder(DecodeConfig{Format: FormatProtobuf}, c)
	if err != nil {
		t.Fatal(err)
	}
	rows := []struct {
		name, body string
		code       pipeline.Code
	}{
		{"cut", hex.EncodeToString(body[:len(body)-1]), pipeline.CodeDecodeTruncated},
		{"text where a number is", "2a0161", pipeline.CodeDecodeInvalid},
		{"text that is no UTF-8", "0a01e9", pipeline.CodeDecodeInvalid},
		{"field 0", "0000", pipeline.CodeDecodeInvalid},
		{"too deep", deepOrder(200), pipeline.CodeLimitDepth},
	}
	for _, row := range rows {
		_, f := decode(t, d, append(Frame(4, []byte{2, 2}), unhex(t, row.body)...))
		if f == nil || f.Code != row.code {
			t.Errorf("%s: %v, want %s", row.name, f, row.code)
		}
	}
	for name, indexes := range map[string][]byte{"none": {}, "no such message": {2, 40}, "negative": {2, 1}, "too many": {0xfe, 0xff, 0x03}} {
		if _, f := decode(t, d, Frame(4, indexes)); f == nil || f.Code != pipeline.CodeDecodeFraming {
			t.Errorf("indexes %s: %v", name, f)
		}
	}
}

func deepOrder(n int) string {
	var b []byte
	for range n {
		b = protowire.AppendBytes(protowire.AppendTag(nil, 14, protowire.BytesType), b)
	}
	return hex.EncodeToString(b)
}

func TestProtobufMessageIndexesInBothSpellings(t *testing.T) {
	c := protoRegistry(t)
	body := orderBytes(t, c)
	plain, err := NewDecoder(DecodeConfig{Format: FormatProtobuf, Indexes: "plain"}, c)
	if err != nil {
		t.Fatal(err)
	}
	if v := mustView(t, plain, append(Frame(4, []byte{1, 1}), body...)); get(t, v, "/id") != "o1" {
		t.Error("plain indexes")
	}
	if v := mustView(t, plain, append(Frame(4, []byte{2, 1, 0}), protowire.AppendString([]byte{0x0a}, "sku")...)); get(t, v, "/sku") != "sku" {
		t.Error("a message inside a message")
	}
	if v := mustView(t, plain, append(Frame(4, []byte{0}), protowire.AppendString([]byte{0x0a}, "first")...)); get(t, v, "/x") != "first" {
		t.Error("the first message")
	}
	zigzag, err := NewDecoder(DecodeConfig{Format: FormatProtobuf}, c)
	if err != nil {
		t.Fatal(err)
	}
	h := []pipeline.Header{{Name: HeaderValueSchema, Value: []byte{0, 0, 0, 0, 4, 2, 2}}}
	v, f := zigzag.Decode(t.Context(), NewScratch(), body, h)
	if f != nil || get(t, v, "/id") != "o1" {
		t.Errorf("indexes in the header: %v", f)
	}
}
