package redrive

import (
	"testing"

	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// Items whose bytes stand in the source topic are read a partition at a time, and each is verified: one whose bytes are others, and
// one that is gone, fail alone.
func TestBytesOfTheSourceAreReadTogetherAndVerified(t *testing.T) {
	b := newBench(t, sqliteStore(t))
	ids := b.letters(0, 9, func(_ int64, l *deadletter.Letter) { l.Faithful = deadletter.Source })
	for p := range int32(3) {
		for n := range int64(8) { // offset 8 is not there
			r := pipeline.Record{TimeMS: 1, Value: []byte("filler")}
			if l := b.Letter(n); n != 4 && l.Original.Partition == p {
				r.Key, r.Value, r.Headers = l.Key, l.Value, l.Headers
			}
			b.kafka.Append(pipeline.TP{Topic: source, Partition: p}, r)
		}
	}
	b.commitLive()
	p := b.plan(func(r *PlanRequest) { r.Stop = &Stop{Failures: 5, Duplicates: -1} })
	b.approve(p)
	st := b.run(p)
	if st.Counts.Reconciled != 7 || st.Counts.Unsendable != 2 || b.sentCount() != 7 {
		t.Errorf("%s %q %+v", st.State, st.Detail, st.Counts)
	}
	if st.DryRun.WouldSend != 7 || st.DryRun.Missing["payload"] != 2 {
		t.Errorf("the dry run says %d, missing %v", st.DryRun.WouldSend, st.DryRun.Missing)
	}
	for id, want := range map[pipeline.ID]pipeline.Code{ids[4]: pipeline.CodePayloadUnfaithful, ids[8]: pipeline.CodePayloadMissing} {
		if got := codeOf(t, b, p, id); got != want {
			t.Errorf("%s: %s, want %s", id, got, want)
		}
	}
	for _, r := range b.kafka.All(retry) {
		if string(r.Value) == "filler" {
			t.Error("other bytes were sent")
		}
	}
}
