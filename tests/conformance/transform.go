package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"reprieve.dev/pipeline"
	"reprieve.dev/plugins"
	"reprieve.dev/transforms"
)

// Repair is a transform under test. New makes it with its configuration; Envelopes are records that it repairs, leaves and rejects,
// at least two.
type Repair struct {
	New       func(t T) transforms.Transform
	Envelopes []transforms.Envelope
}

// RunTransform holds a transform to its contract: one result for each envelope, the same in any grouping, order and process, no
// write to what it was given, no null for an empty value or the other way, and safe for concurrent use.
func RunTransform(t T, r Repair) {
	if len(r.Envelopes) < 2 {
		t.Fatalf("two envelopes are the least that can be put in another order")
	}
	t.Run("it is named with an exact version and digests", func(t T) { r.named(t) })
	t.Run("one result for each envelope, in order, and none for none", func(t T) { r.one(t) })
	t.Run("any grouping and order gives the same", func(t T) { r.grouping(t) })
	t.Run("a second one gives the same", func(t T) { r.second(t) })
	t.Run("what it is given is not written to", func(t T) { r.untouched(t) })
	t.Run("what is rejected stays as it was", func(t T) { r.rejected(t) })
	t.Run("it may be used by many at once", func(t T) { r.concurrent(t) })
	t.Run("a caller that gives up gets an error or results, soon", func(t T) { r.cancelled(t) })
}

func (r *Repair) repair(t T, tr transforms.Transform, in []transforms.Envelope) []transforms.Result {
	t.Helper()
	out, err := tr.Repair(context.Background(), in)
	if err != nil {
		t.Fatalf("Repair: %v", err)
	}
	if len(out) != len(in) {
		t.Fatalf("%d results for %d envelopes", len(out), len(in))
	}
	return out
}

func (r *Repair) named(t T) {
	a, b := r.New(t).Info(), r.New(t).Info()
	if a != b || a.Name == "" || a.Version == "" || a.Version == "latest" || a.Artifact == "" || a.Config == "" || a.Level == "" {
		t.Errorf("Info is %+v, then %+v", a, b)
	}
}

func (r *Repair) one(t T) {
	tr := r.New(t)
	if out := r.repair(t, tr, nil); len(out) != 0 {
		t.Errorf("%d results for no envelope", len(out))
	}
	r.repair(t, tr, r.Envelopes)
}

// sameResult says how two results of one envelope differ. Causes are for people and may differ in words.
func sameResult(a, b *transforms.Result) string {
	null := func(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }
	switch {
	case !null(a.Key, b.Key):
		return "key"
	case !null(a.Value, b.Value):
		return "value"
	case a.Schema != b.Schema:
		return "schema"
	case !slices.Equal(a.Report.Changed, b.Report.Changed) || !slices.Equal(a.Report.Notes, b.Report.Notes):
		return "report"
	case (a.Failure == nil) != (b.Failure == nil) || a.Failure != nil && a.Failure.Reason() != b.Failure.Reason():
		return "failure"
	case len(a.Headers) != len(b.Headers):
		return "headers"
	}
	for i := range a.Headers {
		if a.Headers[i].Name != b.Headers[i].Name || !null(a.Headers[i].Value, b.Headers[i].Value) {
			return "headers"
		}
	}
	return ""
}

func (r *Repair) compare(t T, what string, want, got []transforms.Result) {
	t.Helper()
	for i := range want {
		if d := sameResult(&want[i], &got[i]); d != "" {
			t.Errorf("%s: the %s of envelope %d is another", what, d, i)
		}
	}
}

func (r *Repair) grouping(t T) {
	tr := r.New(t)
	want := r.repair(t, tr, r.Envelopes)
	for _, size := range []int{1, 2, 3} {
		var got []transforms.Result
		for batch := range slices.Chunk(r.Envelopes, size) {
			got = append(got, r.repair(t, tr, batch)...)
		}
		r.compare(t, fmt.Sprintf("batches of %d", size), want, got)
	}
	back := slices.Clone(r.Envelopes)
	slices.Reverse(back)
	got := r.repair(t, tr, back)
	slices.Reverse(got)
	r.compare(t, "the reverse order", want, got)
}

func (r *Repair) second(t T) {
	r.compare(t, "a second one", r.repair(t, r.New(t), r.Envelopes), r.repair(t, r.New(t), r.Envelopes))
}

func (r *Repair) untouched(t T) {
	in := make([]transforms.Envelope, len(r.Envelopes))
	for i, e := range r.Envelopes {
		in[i] = e
		in[i].Record = e.Record.Clone()
	}
	r.repair(t, r.New(t), in)
	for i := range in {
		a, b := &in[i].Record, &r.Envelopes[i].Record
		if !bytes.Equal(a.Key, b.Key) || !bytes.Equal(a.Value, b.Value) || len(a.Headers) != len(b.Headers) {
			t.Errorf("envelope %d was changed", i)
		}
		for k := range a.Headers {
			if a.Headers[k].Name != b.Headers[k].Name || !bytes.Equal(a.Headers[k].Value, b.Headers[k].Value) {
				t.Errorf("a header of envelope %d was changed", i)
			}
		}
	}
}

func (r *Repair) rejected(t T) {
	for i, out := range r.repair(t, r.New(t), r.Envelopes) {
		e := &r.Envelopes[i].Record
		if out.Failure != nil && (!bytes.Equal(out.Value, e.Value) || !bytes.Equal(out.Key, e.Key)) {
			t.Errorf("envelope %d was rejected (%s) and changed", i, out.Failure.Code)
		}
		if out.Failure != nil && pipeline.Lookup(out.Failure.Code).Text == "" {
			t.Errorf("envelope %d was rejected by the unknown code %s", i, out.Failure.Code)
		}
	}
}

func (r *Repair) concurrent(t T) {
	tr := r.New(t)
	want := r.repair(t, tr, r.Envelopes)
	var wg sync.WaitGroup
	wrong := make(chan string, 8)
	for range 8 {
		wg.Go(func() {
			for range 5 {
				got, err := tr.Repair(context.Background(), r.Envelopes)
				if err != nil || len(got) != len(want) {
					wrong <- fmt.Sprintf("%d results, %v", len(got), err)
					return
				}
				for i := range want {
					if d := sameResult(&want[i], &got[i]); d != "" {
						wrong <- fmt.Sprintf("the %s of envelope %d is another", d, i)
						return
					}
				}
			}
		})
	}
	wg.Wait()
	close(wrong)
	for w := range wrong {
		t.Errorf("%s", w)
	}
}

func (r *Repair) cancelled(t T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	tr := r.New(t)
	out, err := tr.Repair(ctx, r.Envelopes)
	if err == nil && len(out) != len(r.Envelopes) {
		t.Errorf("%d results and no error", len(out))
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("the error is %v", err)
	}
	r.repair(t, tr, r.Envelopes) // and it goes on afterwards
}

// RunPlugin judges the plugin in a folder as reprieve conform does; each check is a test of its own. The program that runs it must
// be able to become the sandbox's shim: see sandbox.Main.
func RunPlugin(t T, o plugins.Options, dir string) {
	rep, err := plugins.Conform(context.Background(), o, dir)
	if pipeline.CodeOf(err) == pipeline.CodePluginSandbox {
		t.Skipf("no sandbox level can be had here: %v", err)
	}
	if err != nil {
		t.Fatalf("%v", err)
	}
	for _, c := range rep.Checks {
		t.Run(c.Name, func(t T) {
			switch c.Result {
			case "fail":
				t.Errorf("%s", c.Evidence)
			case "skip":
				t.Skipf("%s", c.Evidence)
			default:
				t.Logf("%s", c.Evidence)
			}
		})
	}
}
