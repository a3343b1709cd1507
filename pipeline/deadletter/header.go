package deadletter

import (
	"strings"

	"reprieve.dev/pipeline"
)

// The eight headers of the profile "death". They stand on every letter.
const (
	HeaderReason       = "X-Death-Reason"         // at most 512 characters
	HeaderException    = "X-Exception-Class"      // reprieve.<class>.<code>, or the foreign class
	HeaderStack        = "X-Exception-Stack"      // at most 10 frames and 2,048 characters
	HeaderTopic        = "X-Original-Topic"       //
	HeaderPartition    = "X-Original-Partition"   //
	HeaderOffset       = "X-Original-Offset"      //
	HeaderQuarantined  = "X-Quarantine-Timestamp" // RFC 3339, UTC, milliseconds
	HeaderAttemptCount = "X-Attempt-Count"        // failed retries
)

// Prefix starts the names that are ours alone. ForeignPrefix is where such names of a source record go.
const (
	Prefix        = "reprieve-"
	ForeignPrefix = "reprieve-foreign-"
)

// Headers of our own family (CONTRACTS 4).
const (
	headerV           = "reprieve-v"
	headerKind        = "reprieve-kind"
	headerItem        = "reprieve-quarantine-id"
	headerEventID     = "reprieve-event-id"
	headerTenant      = "reprieve-tenant"
	headerEntity      = "reprieve-entity"
	headerVersion     = "reprieve-entity-version"
	headerBusinessID  = "reprieve-business-id"
	headerToken       = "reprieve-idempotency-token"
	headerPipeline    = "reprieve-pipeline"
	headerData        = "reprieve-data"
	headerConsumer    = "reprieve-consumer"
	headerRelease     = "reprieve-release"
	headerPolicy      = "reprieve-policy"
	headerClass       = "reprieve-class"
	headerCode        = "reprieve-code"
	headerFingerprint = "reprieve-fingerprint"
	headerStage       = "reprieve-stage"
	headerSchema      = "reprieve-schema"
	headerDigest      = "reprieve-digest"
	headerRedacted    = "reprieve-digest-redacted"
	headerFaithful    = "reprieve-faithful"
	headerAttempts    = "reprieve-attempts"
	headerTime        = "reprieve-original-timestamp"
	headerTimeType    = "reprieve-original-timestamp-type"
	headerCluster     = "reprieve-original-cluster"
	headerGeneration  = "reprieve-generation"
	headerRedrive     = "reprieve-redrive-id"
	headerTry         = "reprieve-redrive-try"
	headerBehind      = "reprieve-behind"
	headerAt          = "reprieve-at"
	headerNotBefore   = "reprieve-not-before"
	headerEnc         = "reprieve-enc"
	headerProfile     = "reprieve-profile"
	headerSig         = "reprieve-sig"
)

// HeaderProbe marks a message that only asks whether a topic takes messages. Its key, where it has one, is the same text.
const HeaderProbe = "reprieve-probe"

// IsProbe tells whether r is a probe, which custodians skip. A message that has anything else to say is not one, whatever
// it calls itself: a probe has no value, no key of its own and no other header.
func IsProbe(r *pipeline.Record) bool {
	return len(r.Headers) == 1 && r.Headers[0].Name == HeaderProbe && len(r.Value) == 0 && (len(r.Key) == 0 || string(r.Key) == HeaderProbe)
}

// isDeath tells whether name is one of the eight X- headers.
func isDeath(name string) bool {
	if len(name) < len(HeaderStack)-3 || name[0] != 'X' {
		return false
	}
	switch name {
	case HeaderReason, HeaderException, HeaderStack, HeaderTopic, HeaderPartition, HeaderOffset, HeaderQuarantined, HeaderAttemptCount:
		return true
	}
	return false
}

// isOurs tells whether name is in the family that only we write.
func isOurs(name string) bool {
	return strings.HasPrefix(name, Prefix) && !strings.HasPrefix(name, ForeignPrefix)
}

// Passes tells whether every header may leave as it is: none of them is in a family that we write. It allocates nothing.
func Passes(src []pipeline.Header) bool {
	for i := range src {
		if n := src[i].Name; isOurs(n) || isDeath(n) {
			return false
		}
	}
	return true
}

// PassHeaders appends the headers of src that a message of ours carries on, in order, repeats and nulls included
// (INV-ORDER). The eight X- headers are left out: each message writes its own. Of the family reprieve-*, signed says whose
// they are: true (the record has a verified trail) leaves them out, false (anybody may have written them) renames them to
// reprieve-foreign-*. Values stay borrowed from src.
func PassHeaders(dst, src []pipeline.Header, signed bool) []pipeline.Header {
	for _, h := range src {
		switch {
		case isDeath(h.Name):
			continue
		case !isOurs(h.Name):
		case signed:
			continue
		default:
			h.Name = ForeignPrefix + h.Name[len(Prefix):]
		}
		dst = append(dst, h)
	}
	return dst
}

// find returns the value of the last header of that name.
func find(hs []pipeline.Header, name string) ([]byte, bool) {
	for i := len(hs) - 1; i >= 0; i-- {
		if hs[i].Name == name {
			return hs[i].Value, true
		}
	}
	return nil, false
}

// ItemOf is the item that a message of ours speaks of, as it says itself; "" if it does not say.
func ItemOf(m *pipeline.Message) pipeline.ID {
	for _, h := range m.Headers {
		if h.Name == headerItem {
			return pipeline.ID(h.Value)
		}
	}
	return ""
}

// IsPlace tells whether a header of ours says where a record stood.
func IsPlace(name string) bool {
	switch name {
	case HeaderTopic, HeaderPartition, HeaderOffset, headerAt:
		return true
	}
	return false
}
