package deadletter

import (
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"reprieve.dev/pipeline"
)

// claim is what a foreign letter says, in short.
type claim struct {
	Dialect            string
	Original           string
	OriginalMS         int64
	TimeType           pipeline.TimeType
	Consumer, Pipeline string
	Stage              string
	Exception, Reason  string
	StackStarts        string
	Attempt            uint8
	Faithful           Faithful
	KeyNull, ValueNull bool
	Headers            string
}

func claimOf(l *Letter) claim {
	var names []string
	for _, h := range l.Headers {
		n := h.Name
		if h.Value == nil {
			n += "=null"
		} else {
			n += "=" + string(h.Value)
		}
		names = append(names, n)
	}
	return claim{Dialect: l.Dialect, Original: l.Original.String(), OriginalMS: l.OriginalMS, TimeType: l.TimeType, Consumer: l.Identity.Consumer,
		Pipeline: l.Pipeline, Stage: l.Failure.Stage, Exception: l.Exception, Reason: l.Reason, StackStarts: cutChars(l.Stack, 30),
		Attempt: l.Decision.Attempt, Faithful: l.Faithful, KeyNull: l.Key == nil, ValueNull: l.Value == nil, Headers: strings.Join(names, " ")}
}

const sourceHeaders = "trace-id=abc nullh=null trace-id=second"

// The letters in testdata/dialects were written by the real systems.
func TestCapturedDialects(t *testing.T) {
	want := map[string][]claim{
		"connect": {
			{Dialect: Connect, Original: "connect-in/0/1", OriginalMS: 1796031640077, TimeType: pipeline.TimeCreate, Pipeline: "filesink", Stage: "VALUE_CONVERTER",
				Exception: "org.apache.kafka.connect.errors.DataException", Reason: "Converting byte[] to Kafka Connect data failed due to serialization error: ",
				StackStarts: "org.apache.kafka.connect.error", Faithful: Inline, Headers: sourceHeaders},
			{Dialect: Connect, Original: "connect-in/0/2", OriginalMS: 1796031640088, TimeType: pipeline.TimeCreate, Pipeline: "filesink", Stage: "TRANSFORMATION",
				Exception: "org.apache.kafka.connect.errors.DataException", Reason: "Value (not a number é) was out of range for requested data type",
				StackStarts: "org.apache.kafka.connect.error", Faithful: Inline, Headers: "trace-id=x"},
			{Dialect: Connect, Original: "connect-in/1/0", OriginalMS: 1796031640102, TimeType: pipeline.TimeCreate, Pipeline: "filesink", Stage: "KEY_CONVERTER",
				Exception: "org.apache.kafka.connect.errors.DataException", Reason: "Converting byte[] to Kafka Connect data failed due to serialization error: ",
				StackStarts: "org.apache.kafka.connect.error", Faithful: Inline},
			{Dialect: Connect, Original: "connect-in/0/3", OriginalMS: 1796031640114, TimeType: pipeline.TimeCreate, Pipeline: "filesink", Stage: "TRANSFORMATION",
				Exception: "org.apache.kafka.connect.errors.DataException", Reason: "Only Map objects supported in absence of schema for [mask fields], found: null",
				StackStarts: "org.apache.kafka.connect.error", Faithful: Inline, KeyNull: true, ValueNull: true},
		},
		"streams": {
			{Dialect: Streams, Original: "streams-in/0/2", OriginalMS: 1796031510824, TimeType: pipeline.TimeCreate,
				Exception: "org.apache.kafka.common.errors.SerializationException", Reason: "Size of data received by IntegerDeserializer is not 4",
				StackStarts: "org.apache.kafka.common.errors", Faithful: Inline, Headers: sourceHeaders},
			{Dialect: Streams, Original: "streams-in/0/1", OriginalMS: 1796031510812, TimeType: pipeline.TimeCreate,
				Exception: "java.lang.IllegalArgumentException", Reason: "seven is not allowed: é", StackStarts: "java.lang.IllegalArgumentExcep", Faithful: Inline, Headers: sourceHeaders},
			{Dialect: Streams, Original: "streams-in/0/3", OriginalMS: 1796031510837, TimeType: pipeline.TimeCreate, Exception: "java.lang.NullPointerException",
				Reason:      `Cannot invoke "java.lang.Integer.intValue()" because "<parameter1>" is null`,
				StackStarts: "java.lang.NullPointerException", Faithful: Inline, ValueNull: true, Headers: sourceHeaders},
		},
		"share": {
			{Dialect: Share, Original: "share-in/1/4", OriginalMS: -1, Consumer: "share-g", Reason: "Offset rejected by client.", Faithful: Inline},
			{Dialect: Share, Original: "share-in/1/6", OriginalMS: -1, Consumer: "share-g", Reason: "Offset rejected by client.", Faithful: Inline, KeyNull: true},
			{Dialect: Share, Original: "share-in/1/5", OriginalMS: -1, Consumer: "share-g", Reason: "Offset delivery count exceeded the threshold.", Attempt: 1, Faithful: Inline},
			{Dialect: Share, Original: "share-in/0/1", OriginalMS: -1, Consumer: "share-g", Reason: "Offset rejected by client.", Faithful: Source, KeyNull: true, ValueNull: true},
		},
		"spring": {
			{Dialect: Spring, Original: "spring-in/0/1", OriginalMS: 1796031511832, TimeType: pipeline.TimeCreate, Consumer: "spring-g", Exception: "java.lang.IllegalStateException",
				Reason: "Listener failed; seven is not allowed: é", StackStarts: "org.springframework.kafka.list", Faithful: Inline, Headers: sourceHeaders},
			{Dialect: Spring, Original: "spring-in/0/2", OriginalMS: 1796031511845, TimeType: pipeline.TimeCreate, Consumer: "spring-g",
				Exception: "org.springframework.kafka.support.serializer.DeserializationException",
				Reason:    "failed to deserialize", StackStarts: "org.springframework.kafka.supp", Faithful: Inline, Headers: sourceHeaders},
			{Dialect: Spring, Original: "spring-in/0/3", OriginalMS: 1796031511855, TimeType: pipeline.TimeCreate, Consumer: "spring-g", Exception: "java.lang.NullPointerException",
				Reason:      `Listener failed; Cannot invoke "java.lang.Integer.intValue()" because the return value of "org.apache.kafka.clients.consumer.ConsumerRecord.value()" is null`,
				StackStarts: "org.springframework.kafka.list", Faithful: Inline, ValueNull: true, Headers: sourceHeaders},
		},
	}
	for name, claims := range want {
		t.Run(name, func(t *testing.T) {
			topics, recs := dialectFile(t, name)
			if len(recs) != len(claims) {
				t.Fatalf("%d letters in the file", len(recs))
			}
			for i, r := range recs {
				l, err := Parse(topics[i], r, newRing(t, "k1"))
				if err != nil {
					t.Fatal(err)
				}
				if d := cmp.Diff(claims[i], claimOf(l)); d != "" {
					t.Errorf("letter %d: %s", i, d)
				}
				if l.Failure.Code != pipeline.CodeForeignFailure || l.Item != "" || l.Identity.Tenant != "" || l.Forged {
					t.Errorf("letter %d: %+v", i, l)
				}
			}
		})
	}
}

func headers(pairs ...string) (hs []pipeline.Header) {
	for i := 0; i < len(pairs); i += 2 {
		hs = append(hs, pipeline.Header{Name: pairs[i], Value: []byte(pairs[i+1])})
	}
	return hs
}

func be32(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
func be64(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }

func TestDialectsByHeaderFamily(t *testing.T) {
	cases := map[string]struct {
		hs   []pipeline.Header
		want claim
	}{
		"connect that failed twice: the last set wins, even where it says less": {
			headers(connectTopic, "a", connectPartition, "1", connectOffset, "5", connectName, "one", connectStage, "TASK_PUT", connectException, "E1", connectMessage, "old",
				connectTopic, "b", connectPartition, "2", connectOffset, "6", connectName, "two", connectStage, "TRANSFORMATION", connectException, "E2"),
			claim{Dialect: Connect, Original: "b/2/6", OriginalMS: 1000, TimeType: pipeline.TimeCreate, Pipeline: "two", Stage: "TRANSFORMATION", Exception: "E2", Faithful: Inline}},
		"connect with binary numbers: unknown, not guessed": {
			headers(connectTopic, "a", connectPartition, be32(1), connectOffset, be64(5)),
			claim{Dialect: Connect, Original: "a/-1/-1", OriginalMS: 1000, TimeType: pipeline.TimeCreate, Faithful: Inline}},
		"spring with text numbers: unknown, not guessed": {
			headers("kafka_dlt-original-topic", "a", "kafka_dlt-original-partition", "3", "kafka_dlt-original-offset", "12", "kafka_dlt-exception-fqcn", "E"),
			claim{Dialect: Spring, Original: "a/-1/-1", OriginalMS: -1, Exception: "E", Faithful: Inline}},
		"spring whose bytes are digits: still binary": {
			headers("kafka_dlt-original-topic", "a", "kafka_dlt-original-partition", "0000", "kafka_dlt-original-offset", "00000000", "kafka_dlt-exception-fqcn", "E"),
			claim{Dialect: Spring, Original: "a/808464432/3472328296227680304", OriginalMS: -1, Exception: "E", Faithful: Inline}},
		"spring that repeats: the first is the origin, the last the newest failure": {
			headers("kafka_dlt-original-topic", "first", "kafka_dlt-original-partition", be32(1), "kafka_dlt-original-offset", be64(10), "kafka_dlt-exception-fqcn", "Old",
				"kafka_dlt-original-topic", "second", "kafka_dlt-original-partition", be32(2), "kafka_dlt-original-offset", be64(20), "kafka_dlt-exception-fqcn", "New",
				"kafka_dlt-exception-cause-fqcn", "Cause", "kafka_dlt-exception-message", "m1", "kafka_dlt-exception-message", "m2"),
			claim{Dialect: Spring, Original: "first/1/10", OriginalMS: -1, Exception: "Cause", Reason: "m2", Faithful: Inline}},
		"spring retry topic: the family without dlt": {
			headers("retry_topic-attempts", be32(4), "kafka_original-topic", "t", "kafka_original-partition", be32(0), "kafka_original-offset", be64(9),
				"kafka_original-timestamp", be64(1760000000000), "kafka_original-timestamp-type", "LogAppendTime", "kafka_exception-fqcn", "W", "kafka_exception-message", "m"),
			claim{Dialect: Spring, Original: "t/0/9", OriginalMS: 1760000000000, TimeType: pipeline.TimeLogAppend, Exception: "W", Reason: "m", Attempt: 3, Faithful: Inline}},
		"spring key that could not be read": {
			headers("kafka_dlt-original-topic", "t", "kafka_dlt-key-exception-fqcn", "K", "kafka_dlt-key-exception-message", "km"),
			claim{Dialect: Spring, Original: "t/-1/-1", OriginalMS: -1, Exception: "K", Reason: "km", Faithful: Inline}},
		"spring negative numbers: unknown": {
			headers("kafka_dlt-original-topic", "t", "kafka_dlt-original-partition", be32(0xfffffff0), "kafka_dlt-original-offset", be64(1<<63)),
			claim{Dialect: Spring, Original: "t/-1/-1", OriginalMS: -1, Faithful: Inline}},
		"spring cloud": {
			headers("x-original-topic", "t", "x-original-partition", be32(2), "x-original-offset", be64(7), "x-original-timestamp", be64(1760000000000),
				"x-original-timestamp-type", "CreateTime", "x-exception-fqcn", "E", "x-exception-message", "m", "x-exception-stacktrace", "s", "x-original-host", "kept"),
			claim{Dialect: SpringCloud, Original: "t/2/7", OriginalMS: 1760000000000, TimeType: pipeline.TimeCreate, Exception: "E", Reason: "m", StackStarts: "s", Faithful: Inline, Headers: "x-original-host=kept"}},
		"smallrye": {
			headers("dead-letter-reason", "r", "dead-letter-cause", "c", "dead-letter-exception-class-name", "W", "dead-letter-cause-class-name", "E",
				"dead-letter-topic", "movies", "dead-letter-partition", "0", "dead-letter-offset", "3"),
			claim{Dialect: SmallRye, Original: "movies/0/3", OriginalMS: -1, Exception: "E", Reason: "r: c", Faithful: Inline}},
		"karafka": {
			headers("source_topic", "t", "source_partition", "1", "source_offset", "2", "source_consumer_group", "g", "source_attempts", "4", "source_trace_id", "x", "source_app", "kept"),
			claim{Dialect: Karafka, Original: "t/1/2", OriginalMS: -1, Consumer: "g", Attempt: 3, Faithful: Inline, Headers: "source_app=kept"}},
		"karafka before 2.5": {
			headers("original_topic", "t", "original_partition", "1", "original_offset", "2", "original_consumer_group", "g"),
			claim{Dialect: Karafka, Original: "t/1/2", OriginalMS: -1, Consumer: "g", Faithful: Inline}},
		"wolverine": {
			headers("exception-type", "System.X", "exception-message", "m", "exception-stack", "   at A", "failed-at", "1760000000000", "original-destination", "kafka://topic/orders",
				"original-partition", "1", "original-offset", "2"),
			claim{Dialect: Wolverine, Original: "orders/1/2", OriginalMS: -1, Exception: "System.X", Reason: "m", StackStarts: "   at A", Faithful: Inline}},
		"the eight X- headers of somebody else": {
			headers(HeaderReason, "r", HeaderException, "E", HeaderStack, "s", HeaderTopic, "t", HeaderPartition, "3", HeaderOffset, "9007199254740993",
				HeaderQuarantined, "2026-01-02T03:04:05.678Z", HeaderAttemptCount, "5", "a", "1"),
			claim{Dialect: X, Original: "t/3/9007199254740993", OriginalMS: -1, Exception: "E", Reason: "r", StackStarts: "s", Attempt: 5, Faithful: Inline, Headers: "a=1"}},
		"two families: who wrote last speaks": {
			headers(connectTopic, "a", connectPartition, "1", connectOffset, "5", "kafka_dlt-original-topic", "b", "kafka_dlt-original-partition", be32(2), "kafka_dlt-original-offset", be64(6), "kafka_dlt-exception-fqcn", "E"),
			claim{Dialect: Spring, Original: "b/2/6", OriginalMS: -1, Exception: "E", Faithful: Inline, Headers: connectTopic + "=a " + connectPartition + "=1 " + connectOffset + "=5"}},
		"names that only look like a family: raw": {
			headers("source_topic", "t", "x-original-host", "h", "exception-type", "E", "kafka_timestamp", "1", "__connect.errors", "no"),
			claim{Dialect: Raw, Original: "/-1/-1", OriginalMS: -1, Faithful: Inline,
				Headers: "source_topic=t x-original-host=h exception-type=E kafka_timestamp=1 __connect.errors=no"}},
		"nothing: raw": {nil, claim{Dialect: Raw, Original: "/-1/-1", OriginalMS: -1, Faithful: Inline}},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			r := &pipeline.Record{TimeMS: 1000, TimeType: pipeline.TimeCreate, Key: []byte("k"), Value: []byte("v"), Headers: c.hs}
			l, err := Parse("some.dlq", r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(c.want, claimOf(l)); d != "" {
				t.Error(d)
			}
		})
	}
}

func TestNullAndOddNumbersAreUnknown(t *testing.T) {
	for _, text := range []string{"", "+1", " 1", "1 ", "1.0", "0x1", "1e3", "99999999999999999999", "-", "１"} {
		l, err := Parse("d", &pipeline.Record{Headers: headers(connectTopic, "t", connectOffset, text, connectPartition, text)}, nil)
		if err != nil || l.Original != position("t", -1, -1) {
			t.Errorf("%q: %v %v", text, l.Original, err)
		}
	}
	l, _ := Parse("d", &pipeline.Record{Headers: []pipeline.Header{{Name: connectTopic}, {Name: connectOffset}}}, nil)
	if l.Dialect != Connect || l.Original != NoPosition {
		t.Errorf("null headers: %+v", l)
	}
}

func TestASaidDialectIsTheOnlyOneLookedFor(t *testing.T) {
	hs := headers(connectTopic, "a", connectPartition, "1", connectOffset, "5", "kafka_dlt-original-topic", "b", "kafka_dlt-original-partition", be32(2),
		"kafka_dlt-original-offset", be64(6), "kafka_dlt-exception-fqcn", "E")
	for dialect, want := range map[string]string{"": "b/2/6", Spring: "b/2/6", Connect: "a/1/5", Streams: "/-1/-1", Raw: "/-1/-1", "no such": "/-1/-1"} {
		l, err := ParseAs(dialect, "d", &pipeline.Record{Headers: hs}, nil)
		if err != nil || l.Original.String() != want {
			t.Errorf("%s: %v, %v", dialect, l.Original, err)
		}
		if want == "/-1/-1" && l.Dialect != Raw {
			t.Errorf("%s: read as %s", dialect, l.Dialect)
		}
	}
	ring := newRing(t, "k1")
	if l, err := ParseAs(Connect, dlq, arrived(appendLetter(t, exampleLetter(), Profiles{Connect: true}, ring)), ring); err != nil || l.Dialect != Reprieve {
		t.Errorf("our own letter: %v, %v", l, err)
	}
}

// No header name belongs to two families: else which one is read would depend on their order.
func TestFamiliesDoNotOverlap(t *testing.T) {
	fs := families()
	names := map[string]bool{}
	for _, f := range fs {
		for _, n := range append(append([]string(nil), f.needs...), f.together...) {
			names[n] = true
		}
	}
	for n := range names {
		owners := 0
		for _, f := range fs {
			if f.has(n) {
				owners++
			}
		}
		if owners != 1 {
			t.Errorf("%s belongs to %d families", n, owners)
		}
	}
}
