package expr

import (
	"testing"

	"reprieve.dev/pipeline"
)

func TestValuesAreWrittenExactly(t *testing.T) {
	b := batchOf(invoice())
	b.Outs[0].Add = []pipeline.Header{{Name: "region", Value: []byte("row")}, {Name: "added", Value: []byte("by enrich")}}
	for _, c := range []struct {
		src, want string
		null      bool
	}{
		{src: `view.country_or_none`, want: "error"},
		{src: `view.customer.country == "DE" ? "eu" : "row"`, want: "eu"},
		{src: `view.amount_minor`, want: "1000001"},
		{src: `view.big`, want: "9007199254740993"},
		{src: `view.huge`, want: "18446744073709551615"},
		{src: `view.price`, want: "1.10"},
		{src: `view.enormous`, want: "1E400"},
		{src: `view.sum`, want: "2.55"},
		{src: `view.price + 1`, want: "2.1"},
		{src: `view.rate`, want: "0.5"},
		{src: `view.active`, want: "true"},
		{src: `view.status`, want: "PAID"},
		{src: `view.due`, want: "2026-09-21T14:13:20.000Z"},
		{src: `view.old`, want: "1969-12-31T23:59:58.500Z"},
		{src: `view.due + duration("1ms")`, want: "2026-09-21T14:13:20.001Z"},
		{src: `view.none`, null: true},
		{src: `null`, null: true},
		{src: `view.hash`, want: "\xff\x00"},
		{src: `view.customer`, want: "error"},
		{src: `view.lines`, want: "error"},
		{src: `view.lines.map(l, l.sku)`, want: "error"},
		{src: `view.lines[0].sku + "/" + string(view.lines[0].amount)`, want: "x/10.25"},
		{src: `headers.region`, want: "row"},
		{src: `headers.added + " " + string(size(headers)) + " " + string(size(header_list))`, want: "by enrich 5 7"},
		{src: `headers["null"]`, null: true},
		{src: `key`, want: "acct-7"},
		{src: `topic + "/" + string(partition) + "/" + string(offset)`, want: "billing.invoices.v1/3/42"},
		{src: `timestamp`, want: "2026-09-21T14:13:20.123Z"},
		{src: `has(view.customer.phone) ? view.customer.phone : null`, null: true},
		{src: `18446744073709551615u`, want: "18446744073709551615"},
		{src: `duration("90s")`, want: "1m30s"},
	} {
		t.Run(c.src, func(t *testing.T) {
			v, err := ValueOf(c.src)
			if err != nil {
				if c.want != "error" {
					t.Fatal(err)
				}
				return
			}
			got, ok, err := v.Append([]byte("> "), b, 0)
			switch {
			case c.want == "error":
				if err == nil || ok || string(got) != "> " {
					t.Errorf("got %q, %v, %v", got, ok, err)
				}
			case err != nil || ok == c.null || string(got) != "> "+c.want:
				t.Errorf("got %q, %v, %v", got, ok, err)
			}
		})
	}
}

// A bare path is written without CEL; what it writes is what CEL would write.
func TestBarePathsAreWrittenAsCELWritesThem(t *testing.T) {
	b := batchOf(invoice())
	for _, path := range []string{`view.invoice_id`, `view.amount_minor`, `view.big`, `view.huge`, `view.price`, `view.enormous`, `view.rate`, `view.active`,
		`view.status`, `view.due`, `view.old`, `view.sum`, `view.none`, `view.hash`, `view.customer`, `view.lines`, `view.missing`, `view.lines[0].amount`,
		`headers.region`, `headers["empty"]`, `headers["null"]`, `headers.missing`, `key`, `topic`, `partition`, `offset`, `timestamp`} {
		v, err := ValueOf(path)
		if err != nil {
			t.Fatal(err)
		}
		if !v.Native() {
			t.Errorf("%s is not bare", path)
			continue
		}
		got, gotOK, gotErr := v.Append(nil, b, 0)
		v.native = nil
		want, wantOK, wantErr := v.Append(nil, b, 0)
		if string(got) != string(want) || gotOK != wantOK || (gotErr != nil) != (wantErr != nil) {
			t.Errorf("%s: got %q, %v, %v; cel %q, %v, %v", path, got, gotOK, gotErr, want, wantOK, wantErr)
		}
	}
}

func TestConditionsOverFacts(t *testing.T) {
	f := pipeline.Facts{
		Code: pipeline.CodeHTTPTimeout, Class: pipeline.Transient, Stage: "route", Lane: pipeline.Retry, Attempt: 3, Rung: 1, NowMS: 3_600_000, FirstMS: 1,
		RetryAfter: 7000, Schema: "avro:7", Tenant: "acme", Topic: "t", Release: "r@1", Redriven: true, Unhealthy: true,
	}
	for src, want := range map[string]bool{
		`code == "ERR_HTTP_TIMEOUT" && class == "transient" && three_way == "transient" && retryable`:      true,
		`stage == "route" && lane == "retry" && attempt == 3 && rung == 1`:                                 true,
		`age > duration("59m") && age < duration("1h") && retry_after == duration("7s")`:                   true,
		`schema == "avro:7" && tenant in ["acme"] && topic == "t" && release.startsWith("r@") && redriven`: true,
		`healthy`:               false,
		`attempt + 1 > 4`:       false,
		`code.matches("^ERR_")`: true,
	} {
		c, err := FactsCondition(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Eval(f); err != nil || got != want {
			t.Errorf("%s: got %v, %v", src, got, err)
		}
		if c.native != nil {
			if got, err := c.prog.truth(&activation{f: &f}); err != nil || got != want {
				t.Errorf("%s: cel says %v, %v", src, got, err)
			}
		}
	}
	f.FirstMS = 0
	if c, _ := FactsCondition(`age == duration("0s")`); c != nil {
		if got, err := c.Eval(f); !got || err != nil {
			t.Errorf("an unknown age: got %v, %v", got, err)
		}
	}
	for _, src := range []string{`attempt == "3"`, `view.a == 1`, `cod == "x"`, `attempt`, `class > 1`} {
		if _, err := FactsCondition(src); err == nil {
			t.Errorf("%s compiles", src)
		}
	}
}

func TestConditionsOverAnAnswer(t *testing.T) {
	body := treeView{rec("state", str("SETTLED"), "amount", num("10.00"))}
	for src, want := range map[string]bool{
		`status == 200`: true, `status in [404, 410]`: false, `status == 200 && body.state == "SETTLED" && body.amount == 10`: true, `body == null`: false,
	} {
		c, err := AnswerCondition(src)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := c.Eval(200, body); err != nil || got != want {
			t.Errorf("%s: got %v, %v", src, got, err)
		}
	}
	c, err := AnswerCondition(`status == 404 && body == null`)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := c.Eval(404, nil); err != nil || !got {
		t.Errorf("without a body: got %v, %v", got, err)
	}
}

func TestConditionsThatReadTheViewSaySo(t *testing.T) {
	for src, want := range map[string]bool{`view.a == 1`: true, `headers.x == "y"`: false, `size(view) > 0`: true, `true`: false} {
		c, err := Condition(src)
		if err != nil {
			t.Fatal(err)
		}
		if c.ReadsView() != want {
			t.Errorf("%s: got %v", src, !want)
		}
	}
}
