package custody

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
	"reprieve.dev/seal"
)

// labelled is a failure of somebody else's consumer and the cause that a person would say it has.
type labelled struct {
	Group, Consumer, Stage, Exception, Message, Stack string
}

func corpus(t *testing.T) (out []labelled) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", "grouping.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := bufio.NewScanner(f)
	for s.Scan() {
		var l labelled
		if err := json.Unmarshal(s.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		out = append(out, l)
	}
	if err := s.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// The corpus holds failures of Java, Python, Go, .NET and Node over several releases, with ids, times, amounts, hosts and line numbers
// that change, and groups that are hard on purpose. Of the pairs that belong together, how many are apart (false split)? Of the pairs
// that are together, how many do not belong (false join)?
func TestFalseGroupingOnTheCorpusStaysWithinItsBounds(t *testing.T) {
	const mostSplit, mostJoined = 0.02, 0.02
	id, err := seal.NewIdentityKey("id1", []byte("0123456789abcdef0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	c := &Items{id: id}
	all := corpus(t)
	groups := map[string]bool{}
	prints := make([]pipeline.ID, len(all))
	for i, x := range all {
		groups[x.Group] = true
		l := &deadletter.Letter{Kind: deadletter.KindLetter, Dialect: deadletter.Connect, Original: pipeline.Position{TP: pipeline.TP{Topic: "in"}, Offset: int64(i)},
			Identity: pipeline.Identity{Consumer: x.Consumer}, Failure: pipeline.Failure{Stage: x.Stage, Code: pipeline.CodeForeignFailure},
			Class: pipeline.ConsumerDefect, Exception: x.Exception, Reason: x.Message, Stack: x.Stack}
		prints[i] = c.newItem("q1", &Arrival{Letter: l}, 1, 1).Fingerprint
	}
	if len(all) < 200 || len(groups) < 40 {
		t.Fatalf("%d failures in %d groups: too few to measure", len(all), len(groups))
	}
	var belong, together, split, joined int
	told := map[string]bool{}
	tell := func(what string, a, b int) {
		if key := what + all[a].Group + all[b].Group; !told[key] {
			told[key] = true
			t.Logf("%s: %s and %s: %q %q, %q %q", what, all[a].Group, all[b].Group, all[a].Exception, rest(all[a].Message), all[b].Exception, rest(all[b].Message))
		}
	}
	for i := range all {
		for j := range i {
			same, one := all[i].Group == all[j].Group, prints[i] == prints[j]
			if same {
				belong++
			}
			if one {
				together++
			}
			switch {
			case same && !one:
				split++
				tell("apart", j, i)
			case one && !same:
				joined++
				tell("together", j, i)
			}
		}
	}
	splits, joins := float64(split)/float64(belong), float64(joined)/float64(together)
	t.Logf("%d failures, %d groups: false split %.2f %% (%d of %d pairs), false join %.2f %% (%d of %d pairs)",
		len(all), len(groups), 100*splits, split, belong, 100*joins, joined, together)
	if splits > mostSplit || joins > mostJoined {
		t.Errorf("false split %.4f (at most %.4f), false join %.4f (at most %.4f)", splits, mostSplit, joins, mostJoined)
	}
}
