package deadletter

import (
	"encoding/binary"
	"strings"

	"reprieve.dev/pipeline"
)

// Prefixes of Spring Kafka: its dead-letter topics, and its retry topics, whose last step is a dead-letter topic too.
// Partitions are 4 bytes, offsets and timestamps 8 bytes, big-endian; the rest is text.
const (
	springDLT   = "kafka_dlt-"
	springRetry = "kafka_"
)

func isSpring(name string) bool {
	rest, ok := strings.CutPrefix(name, springDLT)
	if !ok {
		if strings.HasPrefix(name, "retry_topic-") {
			return true
		}
		if rest, ok = strings.CutPrefix(name, springRetry); !ok {
			return false
		}
	}
	return strings.HasPrefix(rest, "original-") || strings.HasPrefix(rest, "exception-") || strings.HasPrefix(rest, "key-exception-")
}

// readSpring reads both prefixes. Spring appends: of headers that repeat the last is the newest failure and the first the
// true origin. The class is a wrapper of the listener; the real one is the cause.
func readSpring(l *Letter, hs []pipeline.Header) {
	failure, origin := springRetry, ""
	for _, h := range hs {
		rest, dlt := strings.CutPrefix(h.Name, springDLT)
		prefix := springDLT
		if !dlt {
			if rest, dlt = strings.CutPrefix(h.Name, springRetry); !dlt {
				continue
			}
			prefix = springRetry
		}
		switch {
		case strings.HasPrefix(rest, "original-"):
			if origin == "" { // the retry topics come before the dead-letter topic
				origin = prefix
			}
		case prefix == springDLT && (strings.HasPrefix(rest, "exception-") || strings.HasPrefix(rest, "key-exception-")):
			failure = springDLT
		}
	}
	readSpringOrigin(l, hs, origin)
	f := fields{hs: hs}
	if group := f.text(springDLT + "original-consumer-group"); group != "" {
		l.Identity.Consumer = group
	} else {
		l.Identity.Consumer = f.text(springRetry + "original-consumer-group")
	}
	key := ""
	if f.text(failure+"exception-fqcn") == "" && f.text(failure+"key-exception-fqcn") != "" {
		key = "key-" // only the key could not be read
	}
	l.Exception = f.text(failure + key + "exception-cause-fqcn")
	if l.Exception == "" {
		l.Exception = f.text(failure + key + "exception-fqcn")
	}
	l.Reason = f.text(failure + key + "exception-message")
	l.Stack = f.text(failure + key + "exception-stacktrace")
	if b, ok := find(hs, "retry_topic-attempts"); ok {
		if n := bigEndian(b, 4); n > 0 {
			l.Decision.Attempt = foreignAttempts(n)
		}
	}
}

// readSpringOrigin reads the first of each: where the record first stood.
func readSpringOrigin(l *Letter, hs []pipeline.Header, prefix string) {
	at := func(name string) []byte { b, _ := first(hs, prefix+name); return b }
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: cleanText(string(at("original-topic"))), Partition: int32(bigEndian(at("original-partition"), 4))},
		Offset: bigEndian(at("original-offset"), 8)}
	if b := at("original-timestamp"); len(b) == 8 {
		if t := springTimeType(string(at("original-timestamp-type"))); t != pipeline.TimeNone {
			l.OriginalMS, l.TimeType = int64(binary.BigEndian.Uint64(b)), t
		}
	}
}

// springTimeType reads Kafka's names of timestamp types as Java prints them.
func springTimeType(s string) pipeline.TimeType {
	switch s {
	case "CreateTime":
		return pipeline.TimeCreate
	case "LogAppendTime":
		return pipeline.TimeLogAppend
	}
	return pipeline.TimeNone
}

// bigEndian reads a number of exactly n bytes. Another width, or a negative number where none can be, is -1: unknown.
func bigEndian(b []byte, n int) int64 {
	switch {
	case len(b) != n:
		return -1
	case n == 4:
		return max(-1, int64(int32(binary.BigEndian.Uint32(b))))
	}
	return max(-1, int64(binary.BigEndian.Uint64(b)))
}

// Spring Cloud Stream's Kafka binder: the same numbers under other names.
func isSpringCloud(name string) bool {
	switch name {
	case "x-original-topic", "x-original-partition", "x-original-offset", "x-original-timestamp", "x-original-timestamp-type",
		"x-exception-fqcn", "x-exception-message", "x-exception-stacktrace":
		return true
	}
	return false
}

func readSpringCloud(l *Letter, hs []pipeline.Header) {
	readSpringOrigin(l, hs, "x-")
	f := fields{hs: hs}
	l.Exception = f.text("x-exception-fqcn")
	l.Reason = f.text("x-exception-message")
	l.Stack = f.text("x-exception-stacktrace")
}
