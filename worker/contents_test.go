package worker_test

import (
	"os"
	"path/filepath"
	"testing"

	"reprieve.dev/config"
	"reprieve.dev/worker"
)

// Whatever file a plan was made of, a change of it is a change of the plan: a reload that takes it for nothing would be one by half.
func TestEveryChangedFileChangesThePlan(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{
		"reprieve.yaml": `clusters: {main: {bootstrap.servers: "127.0.0.1:9092", ssl.ca.location: "` + filepath.Join(dir, "ca.pem") + `"}}
registries: {main: {url: "http://127.0.0.1:1", token: "${file:token}"}}
keys: {hmac: [{id: k1, secret: "0123456789abcdef0123456789abcdef"}], identity: {id: i1, secret: "0123456789abcdef0123456789abcdef"}}
`,
		"orders.yaml": `apiVersion: reprieve/v1
pipeline: orders
owner: shop
source: {topics: [orders], group: orders, tenant: {from: fixed, value: acme}, identity: {event_id: /id, idempotency_token: /id}}
stages:
  - decode:   {format: avro, framing: none, schema: order.avsc, reader: reader.avsc}
  - classify: {policy: policy.yaml}
  - redact:   {detectors: [pan]}
  - enrich:   {table: {file: tiers.csv, key: id, by: /id, take: {tier: tier}}}
  - route:    {default: {http: {url: "https://pay/{/id}", tls: {ca: pay.pem}}}}
retry: {topic: orders.retry}
quarantine: {topic: orders.dlq}
breaker: {off: true}
reconcile: here
`,
		"policy.yaml":  "apiVersion: reprieve/v1\npolicy: shop\n",
		"order.avsc":   `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`,
		"reader.avsc":  `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"}]}`,
		"tiers.csv":    "id,tier\n1,gold\n",
		"token":        "first",
		"ca.pem":       "a certificate",
		"pay.pem":      "another one",
		"plugins.lock": "apiVersion: reprieve/v1\n",
	}
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	load := func() string {
		t.Helper()
		plan, ps := worker.Load(worker.Files{Worker: filepath.Join(dir, "reprieve.yaml"), Pipelines: []string{filepath.Join(dir, "orders.yaml")}}, worker.Kinds(),
			config.Options{Env: func(string) (string, bool) { return "", false }, ReadFile: func(path string) ([]byte, error) {
				if !filepath.IsAbs(path) {
					path = filepath.Join(dir, path)
				}
				return os.ReadFile(path)
			}})
		if len(ps) > 0 {
			t.Fatal(ps)
		}
		return plan.Contents()
	}
	for name, text := range files {
		write(name, text)
	}
	before := load()
	if again := load(); again != before {
		t.Fatal("two plans of the same files differ")
	}
	for name, text := range files {
		switch name {
		case "tiers.csv":
			write(name, "id,tier\n1,silver\n")
		case "plugins.lock", "reprieve.yaml", "orders.yaml", "policy.yaml":
			write(name, text+"# another version\n")
		case "token", "ca.pem", "pay.pem":
			write(name, text+" anew")
		default:
			write(name, text+" ")
		}
		if load() == before {
			t.Errorf("%s changed, and nothing was noticed", name)
		}
		write(name, text)
	}
	if load() != before {
		t.Error("what is as it was is taken for a change")
	}
}
