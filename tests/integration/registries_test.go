package integration

import (
	"encoding/binary"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
	"time"

	"reprieve.dev/embedded"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/codec"
)

const registriesWorker = `
clusters: {main: {bootstrap.servers: "BOOTSTRAP"}}
registries:
  values: {url: "VALUES"}
  keys: {url: "KEYS", user: ann, password: only-for-keys}
  out: {url: "OUT", token: only-for-what-leaves}
keys: {hmac: [{id: k1, secret: "0123456789abcdef0123456789abcdef"}], identity: {id: i1, secret: "0123456789abcdef0123456789abcdef"}}
`

const registriesPipeline = `
apiVersion: reprieve/v1
pipeline: three
owner: finance
source:
  topics: [orders]
  group: three
  tenant: {from: fixed, value: acme}
  identity: {event_id: /id, idempotency_token: /id}
stages:
  - decode: {format: avro, registry: values, key: {format: avro, registry: keys}}
  - redact: {detectors: [pan]}
  - enrich: {headers: {account: key.account}}
  - route: {default: {topic: done}, encode: {avro: done-value, registry: out}}
retry: {topic: orders.retry}
quarantine: {topic: orders.dlq}
breaker: {off: true}
reconcile: here
`

// guardedRegistry is an embedded registry that answers only who says who it is, with schemas by subject; the id of the last one.
func guardedRegistry(t *testing.T, allowed func(*http.Request) bool, schemas ...[2]string) (at string, id int32) {
	t.Helper()
	r, err := embedded.StartRegistry(embedded.RegistryConfig{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	c, err := codec.NewRegistry(codec.RegistryConfig{URL: r.URL()}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range schemas {
		if id, err = c.Register(t.Context(), s[0], s[1], "avro"); err != nil {
			t.Fatal(err)
		}
	}
	target, err := url.Parse(r.URL())
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	guard := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(r) {
			t.Errorf("a registry was asked with the credentials of another one: %s %s", r.URL.Path, r.Header.Get("Authorization"))
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(guard.Close)
	return guard.URL, id
}

// A pipeline may use several registries: values, keys and what leaves each have their own, with credentials of their own, and the
// same id means another schema in each.
func TestAPipelineUsesSeveralRegistries(t *testing.T) {
	c := startCluster(t)
	c.create(t, 1, "orders", "orders.retry", "orders.dlq", "done")
	c.platform(t, "orders.dlq")
	values, valueID := guardedRegistry(t, func(r *http.Request) bool { return r.Header.Get("Authorization") == "" },
		[2]string{"orders-value", `{"type":"record","name":"Order","fields":[{"name":"id","type":"string"},{"name":"amount","type":"int"}]}`})
	keys, keyID := guardedRegistry(t, func(r *http.Request) bool {
		user, password, ok := r.BasicAuth()
		return ok && user == "ann" && password == "only-for-keys"
	}, [2]string{"orders-key", `{"type":"record","name":"Key","fields":[{"name":"account","type":"string"}]}`})
	out, outID := guardedRegistry(t, func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer only-for-what-leaves" },
		[2]string{"other", `"long"`}, [2]string{"done-value", `{"type":"record","name":"Done","fields":[{"name":"amount","type":"long"},{"name":"id","type":"string"},{"name":"note","type":["null","string"],"default":null}]}`})
	if valueID != keyID || outID == valueID {
		t.Fatalf("the ids %d and %d are to mean two schemas, %d another", valueID, keyID, outID)
	}
	c.write(t, []pipeline.Message{{Topic: "orders", Key: codec.Frame(keyID, []byte("\x06A-1")), Value: codec.Frame(valueID, binary.AppendVarint([]byte("\x04o1"), 7))}})
	stop := runWorker(t, loadFiles(t, strings.NewReplacer("BOOTSTRAP", c.Properties["bootstrap.servers"], "VALUES", values, "KEYS", keys, "OUT", out).Replace(registriesWorker), registriesPipeline))
	defer stop()
	for limit := time.Now().Add(time.Minute); !c.settled(t, "three", "orders"); {
		if time.Now().After(limit) {
			t.Fatal("the record was not settled")
		}
	}
	got := c.read(t, "done")
	if len(got) != 1 {
		t.Fatalf("%d records left, %d were quarantined", len(got), len(c.read(t, "orders.dlq")))
	}
	if account, _ := got[0].Header("account"); string(account) != "A-1" {
		t.Errorf("of the key came %q", account)
	}
	if want := codec.Frame(outID, []byte("\x0e\x04o1\x00")); string(got[0].Value) != string(want) {
		t.Errorf("it left as %q, want %q", got[0].Value, want)
	}
}
