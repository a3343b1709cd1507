package control_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/seal"
	"reprieve.dev/tests/conformance/script"
)

func policyText(name string) (text []byte, version string) {
	text = []byte(`{"policy":"` + name + `"}`)
	return text, seal.SHA256(text)
}

// act is an activation that a person signed, read back.
func (f *fixture) act(t testing.TB, s *control.Snapshot, name string, share uint8, by *seal.Signer, seq int64) control.Entry {
	t.Helper()
	text, version := policyText(name)
	if name == control.FileVersion {
		text, version = nil, name
	}
	return f.entry(t, s.NewActivation("billing", by.Subject(), version, share, text, "before", "why"), seq, by)
}

func activates(t testing.TB) *fixture {
	f := newFixture(t)
	for i := range f.authority.Approvers {
		f.authority.Approvers[i].Activates = f.authority.Approvers[i].Subject != "bob"
	}
	return f
}

func all(*control.Activation) bool { return true }

func TestActivationForm(t *testing.T) {
	f := activates(t)
	text, version := policyText("a")
	e := (&control.Snapshot{}).NewActivation("billing", "ann", version, 50, text, control.FileVersion, "CHF is a currency")
	e.Seq, e.AtMS = 1, 1760000000123
	var m pipeline.Message
	if err := control.Encode(&m, topic, &e, f.ann); err != nil {
		t.Fatal(err)
	}
	if want := "policy/billing/" + version + "/ann"; string(m.Key) != want {
		t.Errorf("key %s, want %s", m.Key, want)
	}
	if want := `"state":{"order":"1","policy":{"policy":"a"},"previous":"file","reason":"CHF is a currency","share":"50"}`; !strings.Contains(string(m.Value), want) {
		t.Errorf("value %s", m.Value)
	}
}

func TestTheLatestActCounts(t *testing.T) {
	f := activates(t)
	a := f.act(t, &control.Snapshot{}, "a", 100, f.ann, 1)
	s, _ := control.Fold(nil, f.authority, a)
	b := f.act(t, s, "b", 100, f.console, 1)
	s, _ = control.Fold(s, f.authority, b)
	c := f.act(t, s, "c", 50, f.ann, 1)
	s, _ = control.Fold(s, f.authority, c)
	_, va := policyText("a")
	_, vb := policyText("b")
	_, vc := policyText("c")
	acts, damaged := s.Activations("billing")
	active, canary := control.InForce(acts, all)
	if len(damaged) > 0 || active == nil || canary == nil || active.Version != vb || canary.Version != vc || canary.Share != 50 || canary.Previous != "before" {
		t.Fatalf("active %+v, canary %+v, damaged %v", active, canary, damaged)
	}
	// rolled back: the same act for the version in force
	back := f.act(t, s, "b", 100, f.ann, 1)
	s2, _ := control.Fold(s, f.authority, back)
	acts, _ = s2.Activations("billing")
	if active, canary := control.InForce(acts, all); active.Version != vb || active.By != "ann" || canary != nil {
		t.Errorf("active %+v, canary %+v", active, canary)
	}
	// what cannot be used changes nothing
	acts, _ = s.Activations("billing")
	active, canary = control.InForce(acts, func(a *control.Activation) bool { return a.Version == va })
	if active.Version != va || canary != nil {
		t.Errorf("active %+v, canary %+v", active, canary)
	}
	if active, canary := control.InForce(acts, func(*control.Activation) bool { return false }); active != nil || canary != nil {
		t.Errorf("active %+v, canary %+v", active, canary)
	}
	if acts, damaged := s.Activations("other"); len(acts)+len(damaged) != 0 {
		t.Error("another pipeline has them too")
	}
	file := f.act(t, s, control.FileVersion, 100, f.ann, 1)
	s, _ = control.Fold(s, f.authority, file)
	acts, _ = s.Activations("billing")
	if active, _ := control.InForce(acts, all); active.Version != control.FileVersion || active.Text != nil {
		t.Errorf("active %+v", active)
	}
}

// Everybody finds the same, in whatever order they read, also of two acts of the same order.
func TestActivationsDoNotDependOnTheOrderOfReading(t *testing.T) {
	f := activates(t)
	rapid.Check(t, func(rt *rapid.T) {
		var entries []control.Entry
		for i := range rapid.IntRange(1, 8).Draw(rt, "acts") {
			s, _ := control.Fold(nil, f.authority, entries[:rapid.IntRange(0, i).Draw(rt, "seen")]...)
			by := rapid.SampledFrom([]*seal.Signer{f.ann, f.console}).Draw(rt, "by")
			name := rapid.SampledFrom([]string{"a", "b", "c", control.FileVersion}).Draw(rt, "version")
			share := uint8(rapid.SampledFrom([]int{1, 50, 100}).Draw(rt, "share"))
			entries = append(entries, f.act(t, s, name, share, by, int64(i+1)))
		}
		mixed := rapid.Permutation(entries).Draw(rt, "order")
		find := func(entries []control.Entry) string {
			s, _ := control.Fold(nil, f.authority, entries...)
			acts, damaged := s.Activations("billing")
			if len(damaged) > 0 {
				rt.Fatalf("damaged: %v", damaged)
			}
			active, canary := control.InForce(acts, all)
			b, err := json.Marshal([]any{active, canary})
			if err != nil {
				rt.Fatal(err)
			}
			return string(b)
		}
		if one, two := find(entries), find(mixed); one != two {
			rt.Fatalf("%s\n%s", one, two)
		}
	})
}

func TestAnEntryThatIsNoActivationIsDamaged(t *testing.T) {
	f := activates(t)
	text, version := policyText("a")
	state := func(s string) control.Entry {
		return control.Entry{Key: control.Key{Kind: control.KindPolicy, Pipeline: "billing", Subject: version, Writer: "ann"}, By: "ann", State: json.RawMessage(s)}
	}
	for name, s := range map[string]string{
		"another text":   `{"order":"1","share":"100","policy":{"policy":"b"}}`,
		"no text":        `{"order":"1","share":"100"}`,
		"no share":       `{"order":"1","share":"0","policy":` + string(text) + `}`,
		"too much":       `{"order":"1","share":"101","policy":` + string(text) + `}`,
		"share of -1":    `{"order":"1","share":"-1","policy":` + string(text) + `}`,
		"no order":       `{"share":"100","policy":` + string(text) + `}`,
		"order of 0":     `{"order":"0","share":"100","policy":` + string(text) + `}`,
		"order for ever": `{"order":"9223372036854775807","share":"100","policy":` + string(text) + `}`,
		"other types":    `{"order":1,"share":100,"policy":` + string(text) + `}`,
		"empty":          `{}`,
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := control.Fold(nil, f.authority, f.entry(t, state(s), 1, f.ann))
			if acts, damaged := s.Activations("billing"); len(acts) != 0 || len(damaged) != 1 {
				t.Errorf("acts %v, damaged %v", acts, damaged)
			}
		})
	}
	file := state(`{"order":"1","share":"100","policy":` + string(text) + `}`)
	file.Subject = control.FileVersion
	s, _ := control.Fold(nil, f.authority, f.entry(t, file, 1, f.ann))
	if acts, damaged := s.Activations("billing"); len(acts) != 0 || len(damaged) != 1 {
		t.Errorf("file with a text: acts %v, damaged %v", acts, damaged)
	}
	everywhere := state(`{"order":"1","share":"100","policy":` + string(text) + `}`)
	everywhere.Pipeline = ""
	s, _ = control.Fold(nil, f.authority, f.entry(t, everywhere, 1, f.ann))
	if acts, damaged := s.Activations("billing"); len(acts) != 0 || len(damaged) != 1 {
		t.Errorf("for all pipelines: acts %v, damaged %v", acts, damaged)
	}
}

func TestOnlyWhoActivatesMaySignAPolicy(t *testing.T) {
	f := activates(t)
	text, version := policyText("a")
	try := func(by control.Signer, writer string) control.Refusal {
		e := (&control.Snapshot{}).NewActivation("billing", writer, version, 100, text, "", "why")
		e.Seq = 1
		var m pipeline.Message
		if err := control.Encode(&m, topic, &e, by); err != nil {
			t.Fatal(err)
		}
		_, why := control.Decode(topic, m.Key, m.Value, f.authority)
		return why
	}
	for _, c := range []struct {
		name   string
		by     control.Signer
		writer string
		want   control.Refusal
	}{
		{"a person who activates", f.ann, "ann", ""},
		{"the console for one", f.console, "carol", ""},
		{"a person who does not", f.bob, "bob", control.Forbidden},
		{"for somebody else", f.ann, "carol", control.Forbidden},
		{"a worker", f.worker, "worker-1", control.Forbidden},
		{"an unknown key", f.eve, "eve", control.Forged},
	} {
		if why := try(c.by, c.writer); why != c.want {
			t.Errorf("%s: %q, want %q", c.name, why, c.want)
		}
	}
}

// Compaction keeps the last message of a key. A tombstone, an unsigned or a forged one behind the real entry would take it
// away from every worker that starts later: the ones that know it write it again.
func TestWhatIsWrittenOverAnEntryIsHealed(t *testing.T) {
	for name, over := range map[string]func(real pipeline.Record) []byte{
		"a tombstone": func(pipeline.Record) []byte { return nil },
		"no form":     func(pipeline.Record) []byte { return []byte("gone") },
		"a forged entry": func(r pipeline.Record) []byte {
			return []byte(strings.Replace(string(r.Value), `"share":"100"`, `"share":"1"`, 1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			scene(t, true, func(t *testing.T, b *bench) {
				b.authority.Approvers[0].Activates = true
				one, _, stop1 := b.board()
				_, _, stop2 := b.board()
				b.ready(one)
				text, version := policyText("a")
				if err := one.Publish(t.Context(), b.ann, b.snapshot(one).NewActivation("billing", "ann", version, 100, text, "", "why")); err != nil {
					t.Fatal(err)
				}
				real := b.c.All(topic)[0]
				b.c.Append(pipeline.TP{Topic: topic}, pipeline.Record{Key: real.Key, Value: over(real)})
				time.Sleep(5 * time.Second)
				recs := b.c.All(topic)
				if last := recs[len(recs)-1]; !slices.Equal(last.Value, real.Value) {
					t.Errorf("compaction would keep %q", last.Value)
				}
				if len(recs) > 4 {
					t.Errorf("%d messages: the boards heal each other for ever", len(recs))
				}
				if n := one.Ignored(); n[control.Unsigned]+n[control.Unreadable]+n[control.Forged] != 1 {
					t.Errorf("ignored %v", n)
				}
				// and one that was not there when it happened
				stop1()
				stop2()
				b.c.Append(pipeline.TP{Topic: topic}, pipeline.Record{Key: real.Key, Value: over(real)})
				cold, _, _ := b.board()
				b.ready(cold)
				acts, _ := b.snapshot(cold).Activations("billing")
				if active, _ := control.InForce(acts, all); active == nil || active.Version != version {
					t.Errorf("a cold board finds %+v", active)
				}
				time.Sleep(5 * time.Second)
				recs = b.c.All(topic)
				if last := recs[len(recs)-1]; !slices.Equal(last.Value, real.Value) {
					t.Errorf("compaction would keep %q after a cold start", last.Value)
				}
			})
		})
	}
}

// An older entry of a person, written again by somebody without a key, brings no version back.
func TestAnOlderActivationIsIgnored(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		b.authority.Approvers[0].Activates = true
		board, _, _ := b.board()
		b.ready(board)
		act := func(name string, share uint8) string {
			text, version := policyText(name)
			if err := board.Publish(t.Context(), b.ann, b.snapshot(board).NewActivation("billing", "ann", version, share, text, "", "why")); err != nil {
				t.Fatal(err)
			}
			return version
		}
		act("a", 100)
		act("b", 100)
		va := act("a", 50) // seq 2 of its key
		_, vb := policyText("b")
		older := b.c.All(topic)[0]
		b.c.Append(pipeline.TP{Topic: topic}, pipeline.Record{Key: older.Key, Value: older.Value})
		time.Sleep(5 * time.Second)
		acts, _ := b.snapshot(board).Activations("billing")
		active, canary := control.InForce(acts, all)
		if active == nil || active.Version != vb || canary == nil || canary.Version != va {
			t.Errorf("active %+v, canary %+v", active, canary)
		}
		if n := board.Ignored(); n[control.Replayed] != 1 {
			t.Errorf("ignored %v", n)
		}
	})
}

func TestCoversAsksForALookAtOnce(t *testing.T) {
	scene(t, true, func(t *testing.T, b *bench) {
		cold := control.NewBoard(control.Options{Topic: topic, Reader: b.c.Log(nil), Sink: b.c.Sink(script.SinkOptions{}), Authority: b.authority, Clock: time.Now})
		if cold.Covers(0) {
			t.Error("a board that has not looked covers something")
		}
		board, _, _ := b.board()
		b.ready(board)
		time.Sleep(250 * time.Millisecond) // between two looks
		now := time.Now()
		if board.Covers(now.UnixMilli() + 1) {
			t.Error("it covers what is to come")
		}
		for !board.Covers(now.UnixMilli()) {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(now); took > 100*time.Millisecond {
			t.Errorf("it took %v: the next look by the clock", took)
		}
	})
}
