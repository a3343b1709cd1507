package deadletter

import (
	"strings"

	"reprieve.dev/pipeline"
)

// family is one system's way to spell a dead letter. It is recognised by the names of its headers alone: values are never
// looked at to find out which it is, because text and binary numbers cannot be told apart.
type family struct {
	dialect  string
	has      func(name string) bool           // a header of the family
	needs    []string                         // any of these must be there: names that only this family has
	together []string                         // all of these must be there
	read     func(*Letter, []pipeline.Header) //
}

// families are all that are known. Their order does not matter: no header belongs to two.
func families() []family {
	return []family{
		{dialect: Connect, has: prefixed(connectPrefix), needs: []string{connectTopic, connectException, connectStage}, read: readConnect},
		{dialect: Streams, has: prefixed(streamsPrefix), needs: []string{streamsTopic, streamsException}, read: readStreams},
		{dialect: Share, has: prefixed(sharePrefix), needs: []string{shareTopic}, read: readShare},
		{dialect: Spring, has: isSpring, needs: []string{springDLT + "original-topic", springDLT + "exception-fqcn",
			springRetry + "original-topic", springRetry + "exception-fqcn"}, read: readSpring},
		{dialect: SpringCloud, has: isSpringCloud, needs: []string{"x-original-topic", "x-exception-fqcn", "x-exception-message"}, read: readSpringCloud},
		{dialect: SmallRye, has: isSmallRye, needs: []string{"dead-letter-topic", "dead-letter-reason"}, read: readSmallRye},
		{dialect: Karafka, has: isKarafka("source_"), together: []string{"source_topic", "source_partition", "source_offset"}, read: readKarafka("source_")},
		{dialect: Karafka, has: isKarafka("original_"), together: []string{"original_topic", "original_partition", "original_offset"}, read: readKarafka("original_")},
		{dialect: Wolverine, has: isWolverine, together: []string{"exception-type", "failed-at"}, read: readWolverine},
		{dialect: X, has: isDeath, needs: []string{HeaderTopic, HeaderException, HeaderReason}, read: readX},
	}
}

// Dialects are the names that Letter.Dialect may have.
func Dialects() []string {
	return []string{Reprieve, Connect, Streams, Share, Spring, SpringCloud, SmallRye, Karafka, Wolverine, X, Raw}
}

func prefixed(p string) func(string) bool {
	return func(name string) bool { return strings.HasPrefix(name, p) }
}

// in tells whether the family is there, and the place of its last header: who wrote last speaks.
func (f *family) in(hs []pipeline.Header) (last int, ok bool) {
	last = -1
	for i := range hs {
		if f.has(hs[i].Name) {
			last = i
		}
	}
	if last < 0 {
		return last, false
	}
	for _, n := range f.together {
		if _, there := find(hs, n); !there {
			return last, false
		}
	}
	for _, n := range f.needs {
		if _, there := find(hs, n); there {
			return last, true
		}
	}
	return last, len(f.needs) == 0
}

// parseForeign reads another system's letter: the family that was written last, because each system appends its headers to
// those that it found. Numbers that have not the family's form are unknown, not zero. Everything in it is a claim: no item,
// no tenant, no attempt is taken from it. dialect "" is any.
func parseForeign(dialect string, r *pipeline.Record) *Letter {
	l := &Letter{Kind: KindLetter, Dialect: Raw, Original: NoPosition, At: NoPosition, OriginalMS: -1,
		QuarantinedMS: r.TimeMS, Faithful: Inline, Key: r.Key, Value: r.Value}
	var found *family
	at := -1
	fs := families()
	for i := range fs {
		if dialect != "" && fs[i].dialect != dialect {
			continue
		}
		if last, ok := fs[i].in(r.Headers); ok && last > at {
			at, found = last, &fs[i]
		}
	}
	if found != nil {
		l.Dialect = found.dialect
		found.read(l, r.Headers)
	}
	switch l.Dialect { // these two write the record's own time; the others write now
	case Connect, Streams:
		if r.TimeType == pipeline.TimeCreate && r.TimeMS >= 0 {
			l.OriginalMS, l.TimeType = r.TimeMS, r.TimeType
		}
	}
	if l.Original.Topic == "" {
		l.Original = NoPosition
	}
	l.At = l.Original
	l.Failure.Code = pipeline.CodeForeignFailure
	l.Failure.Origin, l.Failure.Stack = l.Exception, l.Stack
	l.Class = pipeline.Lookup(l.Failure.Code).Class
	if l.Exception != "" {
		l.Failure.Params = append(l.Failure.Params, pipeline.Str("exception", cutChars(l.Exception, MaxReason)))
	}
	if l.Failure.Stage != "" {
		l.Failure.Params = append(l.Failure.Params, pipeline.Str("stage", l.Failure.Stage))
	}
	l.Decision = pipeline.Decision{Action: pipeline.ActQuarantine, Attempt: l.Decision.Attempt, Code: l.Failure.Code}
	for _, h := range r.Headers {
		if found != nil && found.has(h.Name) || isDeath(h.Name) {
			continue
		}
		if isOurs(h.Name) {
			h.Name = ForeignPrefix + h.Name[len(Prefix):]
		}
		l.Headers = append(l.Headers, h)
	}
	return l
}

// lastSet is the last complete run of a family's headers: a name that comes again begins a new set.
func lastSet(hs []pipeline.Header, prefix string) *fields {
	var set []pipeline.Header
	for _, h := range hs {
		if !strings.HasPrefix(h.Name, prefix) {
			continue
		}
		if _, again := find(set, h.Name); again {
			set = set[:0]
		}
		set = append(set, h)
	}
	return &fields{hs: set}
}

// first is the value of the first header of that name.
func first(hs []pipeline.Header, name string) ([]byte, bool) {
	for i := range hs {
		if hs[i].Name == name {
			return hs[i].Value, true
		}
	}
	return nil, false
}

// foreignAttempts bounds what another system says it tried; it is for people and decides nothing.
func foreignAttempts(deliveries int64) uint8 {
	return uint8(max(0, min(deliveries-1, 255)))
}
