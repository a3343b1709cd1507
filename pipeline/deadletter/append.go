package deadletter

import (
	"slices"
	"strings"

	"reprieve.dev/pipeline"
	"reprieve.dev/seal"
)

// Append makes m the letter l: key, value and headers; m.Topic is set before, because the signature covers it, and so is
// m.Partition. Headers are written after those that are carried on, in this order: l.Headers, the eight X- headers, the
// reprieve-* family, the connect profile, the signature. What stands in l.Headers under a name that we write is left out or
// renamed (PassHeaders with signed false), so headers of a verified retry record must have gone through PassHeaders before.
//
// Bytes of l are borrowed, not copied; m.Headers is reused. With s nil nothing is signed (try). Codes:
// ERR_RECORD_TOO_LARGE (m is then not to be sent: identity and value alone exceed p.MessageBytes). Cost: three allocations
// and one HMAC over the headers.
func Append(m *pipeline.Message, l *Letter, p Profiles, s *seal.Ring) error {
	m.Key, m.Value = l.Key, l.Value
	w := writer{hs: m.Headers[:0], buf: make([]byte, 0, 2048)}
	if Passes(l.Headers) {
		w.hs = append(w.hs, l.Headers...)
	} else {
		w.hs = PassHeaders(w.hs, l.Headers, false)
	}
	if p.Connect {
		w.hs = slices.DeleteFunc(w.hs, func(h pipeline.Header) bool { return strings.HasPrefix(h.Name, connectPrefix) })
	}
	carried := len(w.hs)

	x := explain(l)
	w.death(l, &x)
	w.letter(l)
	if p.Connect {
		w.text(headerProfile, Connect)
	}
	fixed := sizeOf(w.hs[carried:]) + sigSize
	room := p.HeaderBytes
	if room == 0 {
		room = DefaultHeaderBytes
	}
	room -= fixed
	if p.MessageBytes > 0 {
		rest := p.MessageBytes - messageOverhead - len(m.Key) - len(m.Value) - sizeOf(w.hs[:carried]) - fixed
		room = min(room, rest)
		if rest < 0 {
			m.Headers = w.hs
			return pipeline.Errorf(pipeline.CodeTooLarge, l.At.String(), "the letter needs %d bytes more than the %d that %s takes",
				-rest, p.MessageBytes, m.Topic)
		}
	}
	withConnect := shrink(&x, room, p.Connect, connectSize(l, &x))
	w.fill(carried, &x)
	if p.Connect {
		if withConnect {
			w.connect(l, &x)
		} else {
			w.hs = slices.DeleteFunc(w.hs, func(h pipeline.Header) bool { return h.Name == headerProfile })
		}
	}
	m.Headers = w.hs
	sign(m, s)
	return nil
}

// explanation is what gives way when a letter does not fit.
type explanation struct{ exception, reason, stack string }

func explain(l *Letter) explanation {
	f := &l.Failure
	x := explanation{exception: l.Exception, reason: l.Reason, stack: l.Stack}
	if x.exception == "" {
		x.exception = f.Origin
	}
	if x.exception == "" {
		x.exception = "reprieve." + l.class().String() + "." + string(f.Code)
	}
	if x.reason == "" && f.Code != "" {
		x.reason = f.Reason()
	}
	if x.stack == "" {
		x.stack = f.Stack
	}
	if x.stack == "" && f.Stage != "" {
		x.stack = "at stage " + f.Stage
		if l.Pipeline != "" {
			x.stack += " of pipeline " + l.Pipeline
		}
	}
	x.exception, x.reason, x.stack = cutChars(cleanText(x.exception), MaxReason), Reason(x.reason), Stack(x.stack)
	return x
}

func (l *Letter) class() pipeline.Class {
	if l.Class != pipeline.ClassNone {
		return l.Class
	}
	return pipeline.Lookup(l.Failure.Code).Class
}

// death writes the eight X- headers. Reason and stack are placeholders: how much of them fits is known when all else is
// written.
func (w *writer) death(l *Letter, x *explanation) {
	w.hs = append(w.hs, pipeline.Header{Name: HeaderReason})
	w.always(HeaderException, x.exception)
	w.hs = append(w.hs, pipeline.Header{Name: HeaderStack})
	w.always(HeaderTopic, l.Original.Topic)
	w.number(HeaderPartition, int64(l.Original.Partition))
	w.number(HeaderOffset, l.Original.Offset)
	w.time(HeaderQuarantined, l.QuarantinedMS)
	w.number(HeaderAttemptCount, int64(l.Decision.Attempt))
}

// fill puts reason and stack into their places; what shrank to nothing loses its header.
func (w *writer) fill(from int, x *explanation) {
	w.hs = slices.DeleteFunc(w.hs, func(h pipeline.Header) bool {
		return h.Value == nil && (h.Name == HeaderReason && x.reason == dropped || h.Name == HeaderStack && x.stack == dropped)
	})
	for i := from; i < len(w.hs); i++ {
		h := &w.hs[i]
		if h.Value != nil {
			continue
		}
		start := len(w.buf)
		switch h.Name {
		case HeaderReason:
			w.buf = append(w.buf, x.reason...)
		case HeaderStack:
			w.buf = append(w.buf, x.stack...)
		default:
			continue
		}
		h.Value = w.buf[start:len(w.buf):len(w.buf)]
	}
}

// letter writes the reprieve-* family but the signature.
func (w *writer) letter(l *Letter) {
	w.always(headerV, "1")
	kind := l.Kind
	if kind == "" {
		kind = KindLetter
	}
	w.always(headerKind, string(kind))
	w.text(headerItem, string(l.Item))
	w.identity(&l.Identity)
	w.text(headerPipeline, l.Pipeline)
	w.text(headerData, l.Data)
	w.text(headerPolicy, string(l.Decision.Policy))
	if l.Failure.Code != "" {
		w.text(headerClass, l.class().String())
		w.text(headerCode, string(l.Failure.Code))
	}
	w.text(headerFingerprint, string(l.Fingerprint))
	w.text(headerStage, l.Failure.Stage)
	w.text(headerSchema, l.Schema)
	w.text(headerDigest, string(l.DigestFaithful))
	w.text(headerRedacted, string(l.DigestRedacted))
	w.text(headerFaithful, string(l.Faithful))
	w.attempts(l.Attempts)
	w.original(l.OriginalMS, l.TimeType)
	w.text(headerCluster, l.Cluster)
	if l.Generation > 0 {
		w.number(headerGeneration, int64(l.Generation))
	}
	w.text(headerRedrive, string(l.Redrive))
	if l.Try > 0 {
		w.number(headerTry, int64(l.Try))
	}
	w.text(headerBehind, string(l.Behind))
	w.position(headerAt, l.At)
	w.text(headerEnc, l.Enc)
}

// dropped is a reason or a stack that does not fit at all: unlike an empty one it has no header.
const dropped = "\x00"

// shrink makes the stack, then the reason, then the connect profile give way until what is left fits into room. It returns
// whether the profile is written. INV-IDENTITY: nothing else is ever shortened.
func shrink(x *explanation, room int, connect bool, connectFixed int) (withConnect bool) {
	copies := 1
	if connect {
		copies = 2 // the profile says reason and stack again
		room -= connectFixed
	}
	if over := copies*(len(x.stack)+len(x.reason)) - room; over > 0 {
		x.stack = keep(x.stack, len(x.stack)-(over+copies-1)/copies)
	}
	if over := copies*(textLen(x.stack)+len(x.reason)) - room; over > 0 {
		x.reason = keep(x.reason, len(x.reason)-(over+copies-1)/copies)
	}
	return connect && copies*(textLen(x.stack)+textLen(x.reason)) <= room
}

func keep(s string, n int) string {
	if s = cutBytes(s, n); s == "" {
		return dropped
	}
	return s
}

func textLen(s string) int {
	if s == dropped {
		return 0
	}
	return len(s)
}

// What a message costs beside its bytes, counted as the clients do: five bytes for each length, the record's own fields and
// its share of the batch's.
const (
	headerOverhead  = 10
	messageOverhead = 128
	sigSize         = headerOverhead + len(headerSig) + len(sigVersion) + 1 + 128 + 43 // a key id has at most 128 characters
)

func sizeOf(hs []pipeline.Header) (n int) {
	for i := range hs {
		n += headerOverhead + len(hs[i].Name) + len(hs[i].Value)
	}
	return n
}

// Size is an upper bound of the bytes that a message takes in a produce request, alone in its batch: what
// message.max.bytes and max.message.bytes are compared with.
func Size(m *pipeline.Message) int {
	return messageOverhead + len(m.Key) + len(m.Value) + sizeOf(m.Headers)
}
