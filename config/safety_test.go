package config

import (
	"strings"
	"testing"
)

func TestRedactionKeepsOffIdentity(t *testing.T) {
	text := func(fields string) string {
		return `
apiVersion: reprieve/v1
pipeline: p
source:
  topics: [a]
  group: g
  tenant: {from: payload, path: /meta/tenant}
  identity: {event_id: /event_id, entity: /customer/account-id, token: header:token, version: /lines/0/seq}
stages: [{redact: {fields: [` + fields + `]}}]
quarantine: {topic: a.dlq}
`
	}
	for fields, refused := range map[string]bool{
		"{path: /event_id}": true, "{path: /customer}": true, "{path: /customer/account-id}": true, "{path: /customer/*}": true, "{path: /*}": true,
		"{path: ''}": true, "{path: /**/seq}": true, "{path: /**}": true, "{path: /lines/*/seq}": true, "{path: /meta/tenant}": true,
		"{name: eventId}": true, "{name: ACCOUNT_ID}": true, "{name: customer}": true, "{name: tenant}": true,
		"{path: /customer/email}": false, "{path: /event}": false, "{path: /event_id2}": false, "{path: /**/email}": false, "{path: /lines/*/text}": false, "{path: /*/email}": false,
		"{name: email}": false, "{name: token}": false, "{name: event}": false, "{path: /token}": false,
	} {
		good := strings.Replace(text(fields), "token: header", "idempotency_token: header", 1)
		_, _, ps := LoadPipeline("p.yaml", []byte(good), Options{})
		if refused && (len(ps) != 1 || ps[0].Code != CodeUnsafe) || !refused && len(ps) != 0 {
			t.Errorf("%s: %v", fields, ps)
		}
	}
}

func TestOneFileCannotExpandVariablesWithoutEnd(t *testing.T) {
	big := strings.Repeat("x", 1<<20)
	opt := Options{ReadFile: func(string) ([]byte, error) { return []byte(big), nil }}
	for name, text := range map[string]string{
		"in one value":    "a: \"" + strings.Repeat("${file:x}", 10000) + "\"",
		"in many values":  "a: [" + strings.Repeat("\"${file:x}\",", 10000) + "]",
		"through aliases": "a: &a \"${file:x}\"\nb: [" + strings.Repeat("*a,", 5000) + "]",
	} {
		t.Run(name, func(t *testing.T) {
			bounded(t, func() {
				_, ps := Parse("f.yaml", []byte(text), opt)
				if len(ps) != 1 || ps[0].Code != CodeVariable || ps[0].Line == 0 {
					t.Error(ps)
				}
			})
		})
	}
}

// Two names of one cluster do not make two topics of one name.
func TestTwoNamesOfOneClusterAreOneCluster(t *testing.T) {
	for changed, path := range map[string]string{
		"billing.invoices.v1.dlq, cluster: dlq => billing.invoices.v1, cluster: dlq":       "quarantine.topic",
		"billing.invoices.v1.dlq, cluster: dlq => billing.invoices.v1.retry, cluster: dlq": "quarantine.topic",
		"default: {topic: billing.ledger.v1} => default: {topic: billing.invoices.v1.dlq}": "stages[5].route.default.topic",
	} {
		from, to, _ := strings.Cut(changed, " => ")
		text := strings.Replace(string(read(t, "pipeline.good.yaml")), from, to, 1)
		p, doc, ps := LoadPipeline("p.yaml", []byte(text), Options{})
		if len(ps) != 0 {
			t.Fatalf("%s: another cluster may have a topic of that name: %v", changed, ps)
		}
		for brokers, refuses := range map[[2]string]bool{{"a:1, b:1", "b:1,c:1"}: true, {"a:1", "b:1"}: false} {
			w, _, ps := LoadWorker("w.yaml", []byte("clusters: {main: {bootstrap.servers: '"+brokers[0]+"'}, dlq: {bootstrap.servers: '"+brokers[1]+"'}}\n"+
				"registries: {main: {url: 'http://r'}}\nledgers: {main: 'sqlite:x.db'}\nkeys: {keeper: {file: keys/keeper}}\n"), Options{})
			if len(ps) != 0 {
				t.Fatal(ps)
			}
			got := CheckTogether(p, doc, w, TogetherOptions{Demo: true})
			if refuses && (len(got) == 0 || got[0].Code != CodeUnsafe || got[0].Path != path) || !refuses && len(got) != 0 {
				t.Errorf("%s over %v: %v", changed, brokers, got)
			}
		}
	}
}

func TestDestinationsHaveNamesThatKafkaAllows(t *testing.T) {
	for _, name := range []string{"a b", "a/b", "é", "..", "^billing.*", strings.Repeat("a", 250)} {
		for _, place := range []string{"billing.large.v1", "billing.ledger.v1"} {
			text := strings.Replace(string(read(t, "pipeline.good.yaml")), "topic: "+place, "topic: '"+name+"'", 1)
			_, _, ps := LoadPipeline("p.yaml", []byte(text), Options{})
			if len(ps) != 1 || ps[0].Code != CodeValue || ps[0].Line == 0 {
				t.Errorf("%s instead of %s: %v", name, place, ps)
			}
		}
	}
}
