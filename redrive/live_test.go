package redrive

import (
	"reprieve.dev/pipeline"
	"reprieve.dev/tests/conformance/script"
)

// live writes records of the live lane to the source topic.
func (b *bench) live(from, to int64) {
	for n := from; n < to; n++ {
		b.kafka.Append(pipeline.TP{Topic: source, Partition: int32(n % 3)}, pipeline.Record{TimeMS: b.Clock().UnixMilli(), Value: []byte("{}")})
	}
}

// commitLive has the pipeline's group commit everything of the source topic.
func (b *bench) commitLive() {
	b.t.Helper()
	src := b.kafka.Source(script.SourceOptions{Group: b.target.Group, Topics: []string{source}})
	defer src.Close()
	for range 3 {
		if _, err := src.Poll(0); err != nil {
			b.t.Fatal(err)
		}
	}
	all := map[pipeline.TP]pipeline.Checkpoint{}
	for p := range int32(3) {
		tp := pipeline.TP{Topic: source, Partition: p}
		all[tp] = pipeline.Checkpoint{Next: int64(len(b.kafka.Records(tp))), InFlight: -1}
	}
	if err := src.Commit(all); err != nil {
		b.t.Fatal(err)
	}
}
