package config

import (
	"fmt"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"
)

// TestINVConfigSecretNoProblemShowsAVariable puts a variable in the place of each value of each file in turn, with values
// that are wrong in many ways: whatever is said about the file, the value is not.
func TestINVConfigSecretNoProblemShowsAVariable(t *testing.T) {
	scalars := func(root *yaml.Node) []*yaml.Node {
		var out []*yaml.Node
		var walk func(n *yaml.Node, key bool)
		walk = func(n *yaml.Node, key bool) {
			if n.Kind == yaml.ScalarNode && !key {
				out = append(out, n)
			}
			for i, c := range n.Content {
				walk(c, n.Kind == yaml.MappingNode && i%2 == 0)
			}
		}
		walk(root, false)
		return out
	}
	for _, name := range []string{"pipeline.good.yaml", "variables.good.yaml", "unsafe.broken.yaml", "same-topic.broken.yaml", "choices.bad.yaml", "units.bad.yaml",
		"misspelt.bad.yaml", "connect-names.bad.yaml", "worker.good.yaml", "worker-unsafe.broken.yaml", "worker-mistakes.bad.yaml"} {
		var root yaml.Node
		if err := yaml.Unmarshal(read(t, name), &root); err != nil {
			t.Fatal(err)
		}
		nodes := scalars(&root)
		for _, value := range []string{canary, canary + " /x", "^" + canary, "$." + canary, "http://u:" + canary + "@h", "header:" + canary, "5" + canary} {
			if raceEnabled && value != canary {
				continue // the same code on other texts
			}
			opt := Options{Env: func(n string) (string, bool) { return value, n == "CANARY" }}
			for from := range nodes {
				for to := from; to < min(from+2, len(nodes)); to++ { // one value, and two neighbours that hold the same
					kept := []yaml.Node{*nodes[from], *nodes[to]}
					*nodes[from] = yaml.Node{Kind: yaml.ScalarNode, Style: yaml.DoubleQuotedStyle, Value: "${CANARY}"}
					*nodes[to] = *nodes[from]
					text, err := yaml.Marshal(&root)
					*nodes[from], *nodes[to] = kept[0], kept[1]
					if from == to {
						*nodes[from] = kept[0]
					}
					if err != nil {
						continue // an anchor lost its value
					}
					var shown string
					if strings.HasPrefix(name, "worker") {
						_, doc, ps := LoadWorker(name, text, opt)
						shown = ps.Error() + digestAndDump(doc)
					} else {
						p, doc, ps := LoadPipeline(name, text, opt)
						if p != nil {
							w := &Worker{Clusters: map[string]Properties{canary[:9] + "x": nil}}
							ps = append(ps, CheckTogether(p, doc, w, TogetherOptions{})...)
						}
						shown = ps.Error()
					}
					if strings.Contains(shown, canary) {
						t.Errorf("%s, %d and %d as a variable:\n%s", name, from, to, lineWith(shown, canary))
					}
				}
			}
		}
	}
}

// digestAndDump reads a document in every way that shows something; dumps may hold values that are no secrets.
func digestAndDump(doc *Doc) string {
	if doc == nil {
		return ""
	}
	return doc.Digest() + fmt.Sprint(len(doc.Dump()))
}

func lineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return line
		}
	}
	return ""
}
