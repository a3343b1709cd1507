package deadletter

import (
	"strings"

	"reprieve.dev/pipeline"
)

// Headers of Kafka Streams (KIP-1034) and of share groups (KIP-1191). Numbers are decimal text.
const (
	streamsPrefix    = "__streams.errors."
	streamsTopic     = "__streams.errors.topic"
	streamsException = "__streams.errors.exception"
	sharePrefix      = "__dlq.errors."
	shareTopic       = "__dlq.errors.topic"
)

func readStreams(l *Letter, hs []pipeline.Header) {
	set := lastSet(hs, streamsPrefix)
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: set.text(streamsTopic), Partition: set.decimal32("__streams.errors.partition")},
		Offset: set.decimal("__streams.errors.offset")}
	l.Exception = set.text(streamsException)
	l.Reason = set.text("__streams.errors.message")
	l.Stack = set.text("__streams.errors.stacktrace")
}

// readShare reads a letter of a share group. The group copies no header of the source; without
// errors.deadletterqueue.copy.record.enable it copies no key and no value either, and then the bytes are in the source.
func readShare(l *Letter, hs []pipeline.Header) {
	set := lastSet(hs, sharePrefix)
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: set.text(shareTopic), Partition: set.decimal32("__dlq.errors.partition")},
		Offset: set.decimal("__dlq.errors.offset")}
	l.Identity.Consumer = set.text("__dlq.errors.group")
	l.Decision.Attempt = foreignAttempts(set.decimal("__dlq.errors.delivery.count"))
	l.Reason = set.text("__dlq.errors.message")
	if l.Key == nil && l.Value == nil {
		l.Faithful = Source
	}
}

func isSmallRye(name string) bool {
	switch name {
	case "dead-letter-reason", "dead-letter-cause", "dead-letter-exception-class-name", "dead-letter-cause-class-name",
		"dead-letter-topic", "dead-letter-partition", "dead-letter-offset":
		return true
	}
	return false
}

func readSmallRye(l *Letter, hs []pipeline.Header) {
	f := fields{hs: hs}
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: f.text("dead-letter-topic"), Partition: f.decimal32("dead-letter-partition")},
		Offset: f.decimal("dead-letter-offset")}
	l.Exception = f.text("dead-letter-cause-class-name")
	if l.Exception == "" {
		l.Exception = f.text("dead-letter-exception-class-name")
	}
	l.Reason = f.text("dead-letter-reason")
	if cause := f.text("dead-letter-cause"); cause != "" && cause != l.Reason {
		l.Reason += ": " + cause
	}
}

func isKarafka(prefix string) func(string) bool {
	return func(name string) bool {
		switch strings.TrimPrefix(name, prefix) {
		case "topic", "partition", "offset", "consumer_group", "attempts", "trace_id":
			return strings.HasPrefix(name, prefix)
		}
		return false
	}
}

func readKarafka(prefix string) func(*Letter, []pipeline.Header) {
	return func(l *Letter, hs []pipeline.Header) {
		f := fields{hs: hs}
		l.Original = pipeline.Position{TP: pipeline.TP{Topic: f.text(prefix + "topic"), Partition: f.decimal32(prefix + "partition")},
			Offset: f.decimal(prefix + "offset")}
		l.Identity.Consumer = f.text(prefix + "consumer_group")
		l.Decision.Attempt = foreignAttempts(f.decimal(prefix + "attempts"))
	}
}

func isWolverine(name string) bool {
	switch name {
	case "exception-type", "exception-message", "exception-stack", "failed-at", "original-destination", "original-partition", "original-offset":
		return true
	}
	return strings.HasPrefix(name, "wolverine.fault.")
}

func readWolverine(l *Letter, hs []pipeline.Header) {
	f := fields{hs: hs}
	topic := f.text("original-destination")
	if _, path, ok := strings.Cut(topic, "://"); ok { // an address like kafka://topic/orders
		topic = path[strings.LastIndexByte(path, '/')+1:]
	}
	l.Original = pipeline.Position{TP: pipeline.TP{Topic: topic, Partition: f.decimal32("original-partition")}, Offset: f.decimal("original-offset")}
	l.Exception = f.text("exception-type")
	l.Reason = f.text("exception-message")
	l.Stack = f.text("exception-stack")
	if ms := f.decimal("failed-at"); ms > 0 {
		l.QuarantinedMS = ms
	}
}

// readX reads the eight X- headers of somebody else. Their attempt count is a claim like the rest.
func readX(l *Letter, hs []pipeline.Header) {
	f := fields{hs: hs}
	l.Original = f.origin()
	l.Exception, l.Reason, l.Stack = f.text(HeaderException), f.text(HeaderReason), f.text(HeaderStack)
	l.QuarantinedMS = f.time(HeaderQuarantined, l.QuarantinedMS)
	l.Decision.Attempt = uint8(f.count(HeaderAttemptCount, 255))
}
