package engine_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"reprieve.dev/pipeline"
)

// No message names the partition that its record came from: topics have counts of their own. A key goes where a Java producer puts
// it, on the output, the retry and the dead-letter topic alike.
func TestASourcePartitionIsNeverCopiedToAnotherTopic(t *testing.T) { // case C31's kind
	for _, exactly := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, 12)
			counts := map[string]int32{"out": 5, "in.retry": 3, "in.dlq": 2}
			for topic, n := range counts {
				b.c.DeleteTopic(topic)
				b.c.CreateTopic(topic, int(n), nil)
			}
			if exactly {
				b.exactlyOnce()
			}
			n := 0
			for p := range int32(12) {
				for _, word := range []string{"a", "poison", "flaky", "down"} {
					key := fmt.Appendf(nil, "key %d", n)
					if n%7 == 0 {
						key = nil
					}
					b.c.Append(pipeline.TP{Topic: "in", Partition: p}, pipeline.Record{Key: key, Value: fmt.Appendf(nil, "%s%d", word, n), TimeMS: time.Now().UnixMilli()})
					n++
				}
			}
			b.start()
			b.after(30 * time.Second)
			if err := b.stop(); err != nil {
				t.Fatal(err)
			}
			b.once(n)
			for topic, count := range counts {
				for p := range count {
					for _, r := range b.c.Records(pipeline.TP{Topic: topic, Partition: p}) {
						if want := pipeline.Partition(r.Key, count); r.Key != nil && string(r.Key) != "reprieve-probe" && want != p {
							t.Errorf("%s: %q is on partition %d, want %d", topic, r.Key, p, want)
						}
					}
				}
			}
			for _, l := range b.letters() {
				if l.Original.Topic != "in" || l.Decision.Code == pipeline.CodeSendTopicMissing {
					t.Errorf("letter of %s: %s", l.Original, l.Decision.Code)
				}
			}
		})
	}
}
