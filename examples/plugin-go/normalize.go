package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"reprieve.dev/plugins/sdk"
)

// known is what the plugin spells right by itself; the configuration adds to it.
var known = map[string]string{
	"eur": "EUR", "euro": "EUR", "euros": "EUR", "€": "EUR",
	"usd": "USD", "us dollar": "USD", "us$": "USD",
	"gbp": "GBP", "pound sterling": "GBP", "£": "GBP",
	"chf": "CHF", "sfr": "CHF", "swiss franc": "CHF",
}

// normalizer replaces one member of a JSON object and keeps every other byte.
type normalizer struct {
	field string
	names map[string]string // lower case -> ISO code
}

// Configure reads {"field": "currency", "names": {"franken": "CHF"}}; both may be left out.
func (n *normalizer) Configure(config []byte) error {
	c := struct {
		Field string            `json:"field"`
		Names map[string]string `json:"names"`
	}{Field: "currency"}
	dec := json.NewDecoder(bytes.NewReader(config))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&c); err != nil {
		return err
	}
	n.field, n.names = c.Field, map[string]string{}
	for name, code := range known {
		n.names[name] = code
	}
	for name, code := range c.Names {
		if len(code) != 3 || strings.ToUpper(code) != code {
			return fmt.Errorf("names: %q is not an ISO 4217 code", code)
		}
		n.names[spelling(name)] = code
	}
	return nil
}

// Repair implements sdk.Transformer.
func (n *normalizer) Repair(e *sdk.Envelope) sdk.Result {
	from, to, text, err := member(e.Value, n.field)
	switch {
	case err != nil:
		return sdk.Rejected("the value is not a JSON object")
	case from < 0:
		return sdk.Rejected("the record has no such field, or it is not a text")
	}
	code, ok := n.names[spelling(text)]
	switch {
	case !ok:
		return sdk.Rejected("the currency is not known")
	case code == text:
		return sdk.Unchanged()
	}
	out := append(append(append([]byte(nil), e.Value[:from]...), `"`+code+`"`...), e.Value[to:]...)
	return sdk.Repaired().SetValue(out).Changed("/" + n.field)
}

// Process implements sdk.Stager: view.currency_iso and the header currency say what the invoice's currency is.
func (n *normalizer) Process(r *sdk.Record) sdk.Mark {
	from, _, text, err := member(r.View, n.field)
	if err != nil || from < 0 {
		return sdk.Pass() // a delete marker, or another kind of record
	}
	code, ok := n.names[spelling(text)]
	switch {
	case ok:
	case len(text) == 3 && strings.ToUpper(text) == text:
		code = text
	default:
		return sdk.Reject("currency-unknown")
	}
	return sdk.Pass().Text("currency_iso", code).Header("currency", []byte(code))
}

func spelling(s string) string { return strings.ToLower(strings.TrimSpace(s)) }

// member finds the text member name of the object b: where its value stands and what it says. From is -1 if there is none.
func member(b []byte, name string) (from, to int, text string, err error) {
	if !json.Valid(b) {
		return 0, 0, "", io.ErrUnexpectedEOF
	}
	from = -1
	dec := json.NewDecoder(bytes.NewReader(b))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return 0, 0, "", io.ErrUnexpectedEOF
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return 0, 0, "", err
		}
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return 0, 0, "", err
		}
		if key == name && len(raw) > 0 && raw[0] == '"' {
			to = int(dec.InputOffset())
			from = to - len(raw)
			if err := json.Unmarshal(raw, &text); err != nil {
				return 0, 0, "", err
			}
		}
	}
	return from, to, text, nil
}
