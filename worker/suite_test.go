package worker_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"reprieve.dev/config"
	"reprieve.dev/worker"
)

const suiteWorker = `
clusters: {main: {bootstrap.servers: "${BOOTSTRAP:?where Kafka is}"}}
keys: {hmac: [{id: h1, secret: "${file:keys/hmac}"}], identity: {id: i1, secret: "${file:keys/identity}"}}
`

const suitePipeline = `
apiVersion: reprieve/v1
pipeline: orders
source:
  topics: [orders.v1]
  group: orders
  tenant: {from: payload, path: /tenant}
  identity: {event_id: /id}
stages:
  - decode: {format: json}
  - redact: {detectors: [pan]}
  - name: accounts
    enrich: {http: {url: "https://accounts/{/account}", take: {tier: /tier}}, table: {file: countries.csv, key: code, by: /country, take: {zone: zone}, missing: default, default: {zone: world}}}
  - route: {rules: [{when: 'headers["tier"] == "gold"', topic: orders.gold.v1}], default: {topic: orders.all.v1}}
quarantine: {topic: orders.v1.dlq}
`

// suite runs a suite over the pipeline above; text begins after pipeline.
func suite(t *testing.T, text string) (worker.SuiteResult, config.Problems) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"reprieve.yaml": suiteWorker, "pipelines/orders.yaml": suitePipeline, "pipelines/countries.csv": "code,zone\nDE,eu\n",
		"tests/orders_test.yaml": "apiVersion: reprieve/v1\npipeline: ../pipelines/orders.yaml\nworker: ../reprieve.yaml\nenv: {BOOTSTRAP: 'kafka:9092'}\n" + text,
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	opt := config.Options{ReadFile: os.ReadFile, Env: func(string) (string, bool) { t.Error("the environment was read"); return "", false }}
	s, ps := worker.LoadSuite(filepath.Join(dir, "tests", "orders_test.yaml"), opt)
	if len(ps) > 0 {
		return worker.SuiteResult{}, ps
	}
	return worker.RunSuite(t.Context(), s, worker.SuiteOptions{Files: opt, Kinds: worker.Kinds(), Meter: worker.NewMeter(prometheus.NewRegistry()), Clock: time.Now})
}

const suiteRecords = `
lookups: {accounts: [{url: "https://accounts/A-1", json: {tier: gold}}, {url: "https://accounts/A-2", json: {tier: tin}}, {url: "https://accounts/A-3", status: 404}]}
records:
  order: {key: k, value: {json: {id: e1, tenant: acme, account: A-1, country: DE, amount: 1.10, card: "4111111111111111"}}}
tests:
`

func TestEveryExpectationThatIsWrongIsTold(t *testing.T) {
	right := []string{
		"action: deliver", "code: none", "class: none", "topic: orders.gold.v1", "messages: 1", "key: k", "headers: {tier: gold, zone: eu}", "without_headers: [other]",
		"view: {/amount: 1.1}", "view: {/id: e1, /none: null, '': {id: e1, tenant: acme, account: A-1, country: DE, amount: 1.10, card: '****************'}}",
		"must_not_contain: ['4111111111111111', orders]", "attempt: 0",
	}
	wrong := map[string]string{
		"action: quarantine": "action", "code: ERR_DECODE_JSON": "code", "class: domain": "class", "stage: decode": "stage", "topic: orders.all.v1": "topic", "messages: 2": "messages",
		"key: other": "key", "value: {json: {}}": "value", "headers: {tier: tin}": "headers.tier", "headers: {none: x}": "headers.none", "headers: {tier: null}": "headers.tier",
		"without_headers: [tier]": "headers.tier", "view: {/amount: 1.11}": "view/amount", "view: {/id: null}": "view/id", "view: {/none: x}": "view/none", "view: {/amount: '1.10'}": "view/amount",
		"must_not_contain: [acme]": "must_not_contain", "must_not_contain: [gold]": "must_not_contain", "attempt: 1": "attempt", "delay: 100ms": "delay", "decided: ERR_RETRY_EXHAUSTED": "decided",
		"reason: early": "reason",
	}
	text := suiteRecords
	for i, e := range right {
		text += fmt.Sprintf("  - {name: right %d, record: {from: order}, expect: {%s}}\n", i, e)
	}
	for e := range wrong {
		text += fmt.Sprintf("  - {name: %q, record: {from: order}, expect: {%s}}\n", e, e)
	}
	r, ps := suite(t, text)
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	if len(r.Tests) != len(right)+len(wrong) || r.Failed != len(wrong) {
		t.Errorf("%d tests, %d failed", len(r.Tests), r.Failed)
	}
	for _, one := range r.Tests {
		what, isWrong := wrong[one.Name]
		switch {
		case one.Error != "":
			t.Errorf("%s: %s", one.Name, one.Error)
		case one.OK == isWrong:
			t.Errorf("%s: ok %v: %+v", one.Name, one.OK, one.Differences)
		case isWrong && one.Differences[0].What != what:
			t.Errorf("%s: %+v, want %s", one.Name, one.Differences, what)
		}
	}
}

func TestServicesAreStoodForByAnswers(t *testing.T) {
	r, ps := suite(t, suiteRecords+`
  - {name: an answer, record: {from: order, set: {/account: A-2}}, expect: {topic: orders.all.v1, headers: {tier: tin}}}
  - {name: no entry, record: {from: order, set: {/account: A-3}}, expect: {action: quarantine, class: domain, code: ERR_ENRICH_MISSING, stage: accounts}}
  - {name: a row by default, record: {from: order, set: {/country: CH}}, expect: {headers: {zone: world}}}
  - name: busy
    lookups: {accounts: [{status: 503, retry_after: 7s}]}
    record: {from: order}
    expect: {action: retry, code: ERR_HTTP_UNAVAILABLE, class: transient, topic: orders.v1.retry}
  - name: a failure
    attempt: 5
    lookups: {accounts: [{fail: ERR_HTTP_TIMEOUT}]}
    record: {from: order}
    expect: {action: quarantine, code: ERR_HTTP_TIMEOUT, decided: ERR_RETRY_EXHAUSTED}
  - name: not an answer
    lookups: {accounts: [{text: "<html>"}]}
    record: {from: order}
    expect: {action: retry, code: ERR_HTTP_ANSWER}
`)
	if len(ps) > 0 {
		t.Fatal(ps)
	}
	for _, one := range r.Tests {
		if !one.OK {
			t.Errorf("%s: %s %+v", one.Name, one.Error, one.Differences)
		}
	}
	r, ps = suite(t, suiteRecords+`  - {name: nobody answers, record: {from: order, set: {/account: A-9}}, expect: {action: retry}}`)
	if len(ps) > 0 || r.Failed != 1 || !strings.Contains(fmt.Sprint(r.Tests[0].Differences), "https://accounts/A-9") {
		t.Errorf("%v %+v", ps, r)
	}
}

func TestSuiteThatCannotRunSaysWhy(t *testing.T) {
	for text, want := range map[string]string{
		"tests: []":                      "no test",
		"tests: [{name: a, expect: {}}]": "exactly one of record, records and file",
		"tests: [{name: a, record: {}, file: x, expect: {}}]":                           "exactly one of record, records and file",
		"tests: [{name: a, records: [{}, {}], expect: [{}]}]":                           "as many expectations",
		"tests: [{name: a, record: {}, expect: {acton: x}}]":                            "action",
		"tests: [{name: a, record: {}, expect: {action: drop}}]":                        "action",
		"tests: [{name: a, record: {}, expect: {}}, {name: a, record: {}, expect: {}}]": "two tests",
		"tests: [{name: a, record: {value: {text: a, hex: '00'}}, expect: {}}]":         "exactly one of text",
		"tests: [{name: a, record: {value: {hex: zz}}, expect: {}}]":                    "invalid byte",
		"lookups: {x: [{status: 9}]}\ntests: [{name: a, record: {}, expect: {}}]":       "not an HTTP status",
		"lookups: {x: [{fail: ERR_NO}]}\ntests: [{name: a, record: {}, expect: {}}]":    "no such code",
		"tests: [{name: a, record: {from: nobody}, expect: {}}]":                        `no record "nobody"`,
		"tests: [{name: a, file: none.jsonl, expect: {}}]":                              "none.jsonl",
		"now: soon\ntests: [{name: a, record: {}, expect: {}}]":                         "RFC 3339",
		"schemas: {7: none.avsc}\ntests: [{name: a, record: {}, expect: {}}]":           "none.avsc",
		"tests: [{name: a, record: {value: {json: {}, avro: 7}}, expect: {}}]":          "schema 7",
		"tests: [{name: a, record: {value: {json: {}}, set: {/a/b: 1}}, expect: {}}]":   "nothing stands before",
		"tests: [{name: a, record: {value: x, cut: 5}, expect: {}}]":                    "cannot be cut",
		"tests: [{name: a, record: {value: x, append: zz}, expect: {}}]":                "not hex",
		"tests: [{name: a, record: {value: x, headers: [[a]]}, expect: {}}]":            "[name, bytes]",
	} {
		r, ps := suite(t, text)
		all := ps.Error()
		for _, one := range r.Tests {
			if one.OK {
				t.Errorf("%s passed", text)
			}
			all += one.Error
		}
		if !strings.Contains(all, want) {
			t.Errorf("%s: %q, want %q", text, all, want)
		}
	}
}
