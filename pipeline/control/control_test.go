package control_test

import (
	"bytes"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/control"
	"reprieve.dev/seal"
)

const topic = "reprieve.control"

func ring(t testing.TB, id string) *seal.Ring {
	t.Helper()
	r, err := seal.NewRing([]seal.Key{{ID: id, Secret: bytes.Repeat([]byte(id), 20)}})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func person(t testing.TB, subject string, n byte) *seal.Signer {
	t.Helper()
	s, err := seal.NewSigner(subject, bytes.Repeat([]byte{n}, 32))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

type fixture struct {
	authority              *control.Authority
	worker                 control.Signer
	ann, bob, console, eve *seal.Signer
}

func newFixture(t testing.TB) *fixture {
	f := &fixture{ann: person(t, "ann", 1), bob: person(t, "bob", 2), console: person(t, "console", 3), eve: person(t, "eve", 4)}
	r := ring(t, "k1")
	f.worker = control.ByRing(r)
	f.authority = &control.Authority{Ring: r, Approvers: []control.Approver{{Subject: "ann", Key: f.ann.Verifier()},
		{Subject: "bob", Key: f.bob.Verifier()}, {Subject: "console", Key: f.console.Verifier(), Speaks: true}}}
	return f
}

// encode makes an entry with a seq and reads it back.
func (f *fixture) entry(t testing.TB, e control.Entry, seq int64, by control.Signer) control.Entry {
	t.Helper()
	e.Seq, e.AtMS = seq, 1760000000000+seq
	var m pipeline.Message
	if err := control.Encode(&m, topic, &e, by); err != nil {
		t.Fatal(err)
	}
	got, why := control.Decode(topic, m.Key, m.Value, f.authority)
	if why != "" {
		t.Fatalf("refused as %s", why)
	}
	return got
}

func TestKeyRoundTrip(t *testing.T) {
	part := rapid.SampledFrom([]string{"", "a", "a/b", "a%2Fb", "é", "*", "a b", "/"})
	rapid.Check(t, func(rt *rapid.T) {
		k := control.Key{Kind: control.Kind("k" + part.Draw(rt, "kind")), Pipeline: part.Draw(rt, "pipeline"), Subject: part.Draw(rt, "subject"), Writer: "w" + part.Draw(rt, "writer")}
		got, ok := control.ParseKey(k.String())
		if !ok || got != k {
			rt.Fatalf("%q: %+v %v", k.String(), got, ok)
		}
	})
	for _, s := range []string{"", "halt", "halt///", "///w", "halt//x/w/y", "halt//%zz/w", "halt//%61/w"} {
		if k, ok := control.ParseKey(s); ok {
			t.Errorf("%q was read as %+v", s, k)
		}
	}
}

func TestEntryForm(t *testing.T) {
	f := newFixture(t)
	e := control.NewHalt("billing", "worker-1", "too many <failures>")
	e.Seq, e.AtMS = 3, 1760000000123
	var m pipeline.Message
	if err := control.Encode(&m, topic, &e, f.worker); err != nil {
		t.Fatal(err)
	}
	if string(m.Key) != "halt/billing/redrive/worker-1" || m.Partition != 0 {
		t.Errorf("key %s, partition %d", m.Key, m.Partition)
	}
	want := `{"at":"1760000000123","by":"worker-1","kid":"k1","seq":"3","sig":"`
	if got := string(m.Value); !strings.HasPrefix(got, want) || !strings.HasSuffix(got, `","state":{"reason":"too many <failures>"},"v":1}`) {
		t.Errorf("value %s", got)
	}
}

func TestNotSignedIsNotBelieved(t *testing.T) {
	f := newFixture(t)
	message := func(e control.Entry, by control.Signer) pipeline.Message {
		e.Seq = 1
		var m pipeline.Message
		if err := control.Encode(&m, topic, &e, by); err != nil {
			t.Fatal(err)
		}
		return m
	}
	halt := control.NewHalt("", "worker-1", "r")
	lift := control.Entry{Key: control.Key{Kind: control.KindLift, Subject: control.SubjectRedrive, Writer: "ann"}, By: "ann"}
	good := message(halt, f.worker)
	replace := func(from, to string) []byte {
		b := bytes.Replace(good.Value, []byte(from), []byte(to), 1)
		if bytes.Equal(b, good.Value) {
			t.Fatalf("%s is not in it", from)
		}
		return b
	}
	forgedLift := message(lift, f.worker)
	byStranger := message(lift, f.eve)
	ofAnother := message(lift, f.bob)
	cases := map[string]struct {
		key, value []byte
		want       control.Refusal
	}{
		"as it was written":             {good.Key, good.Value, ""},
		"a tombstone":                   {good.Key, nil, control.Unsigned},
		"no signature":                  {good.Key, []byte(`{"v":1,"seq":"1","at":"1","by":"x","state":{},"kid":"k1"}`), control.Unsigned},
		"another seq":                   {good.Key, replace(`"seq":"1"`, `"seq":"2"`), control.Forged},
		"another state":                 {good.Key, replace(`"reason":"r"`, `"reason":"s"`), control.Forged},
		"another writer's key":          {[]byte("halt//redrive/worker-2"), good.Value, control.Forged},
		"another pipeline":              {[]byte("halt/x/redrive/worker-1"), good.Value, control.Forged},
		"an unknown kid":                {good.Key, replace(`"kid":"k1"`, `"kid":"k9"`), control.Forged},
		"a signature that is no base64": {good.Key, replace(`"sig":"`, `"sig":"!`), control.Forged},
		"no JSON":                       {good.Key, []byte("{"), control.Unreadable},
		"a key of another form":         {[]byte("halt"), good.Value, control.Unreadable},
		"a lift by a worker":            {forgedLift.Key, forgedLift.Value, control.Forbidden},
		"a lift by a stranger":          {byStranger.Key, byStranger.Value, control.Forged},
		"a person under another's name": {ofAnother.Key, ofAnother.Value, control.Forbidden},
		"bytes beyond the limit":        {good.Key, append(bytes.Clone(good.Value), bytes.Repeat([]byte{' '}, 1<<20)...), control.Unreadable},
		"a key beyond the limit":        {bytes.Repeat([]byte{'a'}, 5000), good.Value, control.Unreadable},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			e, why := control.Decode(topic, c.key, c.value, f.authority)
			if why != c.want {
				t.Errorf("refusal %q, want %q", why, c.want)
			}
			if why != "" && (e.Kind != "" || e.By != "") {
				t.Errorf("believed in part: %+v", e)
			}
		})
	}
	t.Run("on another topic", func(t *testing.T) {
		if _, why := control.Decode("other.control", good.Key, good.Value, f.authority); why != control.Forged {
			t.Errorf("refusal %q", why)
		}
	})
	t.Run("the console speaks for persons", func(t *testing.T) {
		m := message(lift, f.console)
		if e, why := control.Decode(topic, m.Key, m.Value, f.authority); why != "" || e.By != "ann" || e.Person != "console" {
			t.Errorf("%q %+v", why, e)
		}
	})
}

func TestHaltAndLift(t *testing.T) {
	f := newFixture(t)
	fold := func(s *control.Snapshot, es ...control.Entry) *control.Snapshot {
		next, _ := control.Fold(s, f.authority, es...)
		return next
	}
	halted := func(s *control.Snapshot, p string) bool { _, ok := s.Halted(p); return ok }
	a1 := f.entry(t, control.NewHalt("a", "worker-1", "r1"), 1, f.worker)
	a2 := f.entry(t, control.NewHalt("a", "worker-2", "r2"), 1, f.worker)
	all := f.entry(t, control.NewHalt("", "worker-1", "r3"), 1, f.worker)

	t.Run("a pipeline's own", func(t *testing.T) {
		s := fold(nil, a1)
		if !halted(s, "a") || halted(s, "b") || halted(s, "") {
			t.Error("it halts the wrong ones")
		}
		if err := s.Check("a"); pipeline.CodeOf(err) != pipeline.CodeRedriveHalted || s.Check("b") != nil {
			t.Errorf("Check: %v", err)
		}
	})
	t.Run("all pipelines", func(t *testing.T) {
		if s := fold(nil, all); !halted(s, "a") || !halted(s, "b") {
			t.Error("it does not halt all")
		}
	})
	t.Run("one lift ends every halt of the pipeline that it names", func(t *testing.T) {
		s := fold(nil, a1, a2)
		l, ok := s.NewLift("a", "ann", "mended")
		if !ok {
			t.Fatal("nothing to lift")
		}
		lift := f.entry(t, l, 1, f.ann)
		if s := fold(s, lift); halted(s, "a") {
			t.Error("still halted")
		}
		if s := fold(nil, lift, a2, a1); halted(s, "a") {
			t.Error("the order of reading matters")
		}
	})
	t.Run("a halt after the lift stands", func(t *testing.T) {
		s := fold(nil, a1)
		l, _ := s.NewLift("a", "ann", "mended")
		lift := f.entry(t, l, 1, f.ann)
		again := f.entry(t, control.NewHalt("a", "worker-1", "again"), 2, f.worker)
		if s := fold(s, lift, again); !halted(s, "a") {
			t.Error("an old lift ended a new halt")
		}
		other := fold(s, lift, a2)
		if !halted(other, "a") {
			t.Error("a lift ended a halt that it does not name")
		}
	})
	t.Run("a later lift keeps what the person lifted before", func(t *testing.T) {
		s := fold(nil, a1)
		l, _ := s.NewLift("a", "ann", "1")
		s = fold(s, f.entry(t, l, 1, f.ann), a2)
		l, _ = s.NewLift("a", "ann", "2")
		if s = fold(s, f.entry(t, l, 2, f.ann)); halted(s, "a") {
			t.Error("an earlier halt is in effect again")
		}
	})
	t.Run("who halted a pipeline does not lift it alone", func(t *testing.T) {
		s := fold(nil, f.entry(t, control.NewHalt("a", "ann", "r"), 1, f.ann))
		l, _ := s.NewLift("a", "ann", "changed my mind")
		s = fold(s, f.entry(t, l, 1, f.ann))
		if !halted(s, "a") {
			t.Error("one person halted and lifted")
		}
		l, _ = s.NewLift("a", "bob", "seen")
		if s = fold(s, f.entry(t, l, 1, f.bob)); halted(s, "a") {
			t.Error("another person did not lift it")
		}
	})
	t.Run("a halt of all is lifted by two", func(t *testing.T) {
		s := fold(nil, all)
		l, _ := s.NewLift("", "ann", "mended")
		s = fold(s, f.entry(t, l, 1, f.ann))
		h, ok := s.Halted("a")
		if !ok {
			t.Fatal("one person lifted it")
		}
		if by := s.Lifters(h); len(by) != 1 || by[0] != "ann" {
			t.Errorf("lifters %v", by)
		}
		l, _ = s.NewLift("", "ann", "mended")
		if s := fold(s, f.entry(t, l, 2, f.ann)); !halted(s, "a") {
			t.Error("one person counted twice")
		}
		l, _ = s.NewLift("", "bob", "seen")
		if s := fold(s, f.entry(t, l, 1, f.bob)); halted(s, "a") {
			t.Error("two persons did not lift it")
		}
	})
	t.Run("folding changes no snapshot", func(t *testing.T) {
		s := fold(nil, a1)
		fold(s, a2, all)
		if s.Len() != 1 || len(s.Halts()) != 1 {
			t.Error("the old snapshot changed")
		}
		if fold(s, a1) != s {
			t.Error("the same entry makes a new snapshot")
		}
	})
}

// Whatever order entries are read in, and however often, the state is the same: the highest seq of each key.
func TestFoldModel(t *testing.T) {
	f := newFixture(t)
	var pool []control.Entry
	want := map[control.Key]int64{}
	for _, p := range []string{"", "a"} {
		for _, w := range []string{"worker-1", "worker-2"} {
			for seq := int64(1); seq <= 4; seq++ {
				e := f.entry(t, control.NewHalt(p, w, "r"), seq, f.worker)
				pool = append(pool, e)
				want[e.Key] = seq
			}
		}
	}
	rapid.Check(t, func(rt *rapid.T) {
		var s *control.Snapshot
		for _, e := range rapid.Permutation(pool).Draw(rt, "order") {
			s, _ = control.Fold(s, f.authority, e)
			if rapid.Bool().Draw(rt, "again") {
				s, _ = control.Fold(s, f.authority, e, e)
			}
		}
		for k, seq := range want {
			if e, ok := s.Get(k); !ok || e.Seq != seq {
				rt.Fatalf("%s: seq %d, want %d", k, e.Seq, seq)
			}
		}
		if len(s.Halts()) != 4 {
			rt.Fatalf("%d halts", len(s.Halts()))
		}
	})
}

func TestLease(t *testing.T) {
	f := newFixture(t)
	worker := f.entry(t, control.Entry{Key: control.Key{Kind: control.KindBreaker, Writer: "worker-1"}, By: "worker-1"}, 1, f.worker)
	if !worker.Leased(worker.AtMS+30000) || worker.Leased(worker.AtMS+30001) {
		t.Error("a worker's lease is not 30 s")
	}
	if h := f.entry(t, control.NewHalt("", "worker-1", "r"), 1, f.worker); !h.Leased(1 << 60) {
		t.Error("a halt expires")
	}
	p := f.entry(t, control.Entry{Key: control.Key{Kind: control.KindRate, Writer: "ann"}, By: "ann"}, 1, f.ann)
	if !p.Leased(1 << 60) {
		t.Error("what a person said expires")
	}
}

func FuzzDecode(f *testing.F) {
	fx := newFixture(f)
	e := control.NewHalt("a", "worker-1", "r")
	e.Seq = 1
	var m pipeline.Message
	if err := control.Encode(&m, topic, &e, fx.worker); err != nil {
		f.Fatal(err)
	}
	f.Add(m.Key, m.Value)
	f.Add([]byte("halt//redrive/w"), []byte(nil))
	stranger := &control.Authority{Ring: ring(f, "k2")}
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if e, why := control.Decode(topic, key, value, stranger); why == "" {
			t.Fatalf("believed: %+v", e)
		}
		control.Decode(topic, key, value, fx.authority)
	})
}
