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
