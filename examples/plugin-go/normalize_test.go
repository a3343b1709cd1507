package main

import (
	"context"
	"testing"

	"reprieve.dev/plugins/sdk"
	"reprieve.dev/plugins/wire"
)

func repair(t *testing.T, config, value string) *wire.Result {
	t.Helper()
	s := sdk.NewServer(sdk.About{Name: "acme/normalize-currency", Version: "1.4.2"}, &normalizer{})
	if r, err := s.Configure(context.Background(), &wire.ConfigureRequest{Config: []byte(config)}); err != nil || r.Problem != "" {
		t.Fatal(r, err)
	}
	out, err := s.Repair(context.Background(), &wire.RepairRequest{Batch: 1, Envelopes: []*wire.Envelope{{Item: "q1", Value: &wire.Nullable{Value: []byte(value)}}}})
	if err != nil {
		t.Fatal(err)
	}
	return out.Results[0]
}

func TestCurrencyIsSpelledAsISOAndAllElseStays(t *testing.T) {
	for name, c := range map[string]struct{ config, in, want string }{
		"lower case": {`{}`, `{"a": 1.50,  "currency" : "eur", "b":[1]}`, `{"a": 1.50,  "currency" : "EUR", "b":[1]}`},
		"symbol":     {`{}`, `{"currency":"€"}`, `{"currency":"EUR"}`},
		"escapes":    {`{}`, `{"currency":" \u0065uro "}`, `{"currency":"EUR"}`},
		"configured": {`{"field":"cur","names":{"Franken":"CHF"}}`, `{"currency":"eur","cur":"franken"}`, `{"currency":"eur","cur":"CHF"}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := repair(t, c.config, c.in)
			if got := string(r.GetValue().GetValue()); r.Outcome != wire.Outcome_REPAIRED || got != c.want {
				t.Fatalf("%v %s, want %s", r.Outcome, got, c.want)
			}
		})
	}
}

func TestWhatCannotBeRepairedIsRejectedOrLeft(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want wire.Outcome
	}{
		"right already": {`{"currency":"EUR"}`, wire.Outcome_UNCHANGED},
		"unknown":       {`{"currency":"doubloon"}`, wire.Outcome_REJECTED},
		"absent":        {`{}`, wire.Outcome_REJECTED},
		"number":        {`{"currency":978}`, wire.Outcome_REJECTED},
		"truncated":     {`{"currency":"eu`, wire.Outcome_REJECTED},
		"null":          {``, wire.Outcome_REJECTED},
	} {
		t.Run(name, func(t *testing.T) {
			if r := repair(t, `{}`, c.in); r.Outcome != c.want {
				t.Fatal(r)
			}
		})
	}
}

func TestWrongConfigurationIsRefused(t *testing.T) {
	for _, config := range []string{`{"fields":"x"}`, `{"names":{"x":"euro"}}`, `[]`} {
		if (&normalizer{}).Configure([]byte(config)) == nil {
			t.Errorf("%s was accepted", config)
		}
	}
}

func TestAsAStageItTellsTheCurrencyAndKeepsOutWhatNobodyKnows(t *testing.T) {
	n := &normalizer{}
	if err := n.Configure([]byte("{}")); err != nil {
		t.Fatal(err)
	}
	m := n.Process(&sdk.Record{View: []byte(`{"currency":"euro"}`)}).Wire()
	if m.Reject != "" || len(m.Fields) != 1 || m.Fields[0].GetText() != "EUR" || string(m.Headers[0].Value) != "EUR" {
		t.Fatal(m)
	}
	if m := n.Process(&sdk.Record{View: []byte(`{"currency":"doubloon"}`)}).Wire(); m.Reject != "currency-unknown" {
		t.Fatal(m)
	}
	if m := n.Process(&sdk.Record{}).Wire(); m.Reject != "" || len(m.Fields) != 0 {
		t.Fatal(m)
	}
}
