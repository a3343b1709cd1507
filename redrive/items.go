package redrive

import (
	"strconv"

	"reprieve.dev/custody"
	"reprieve.dev/ledger"
	"reprieve.dev/pipeline"
	"reprieve.dev/pipeline/deadletter"
)

// brief is what a plan has to know of an item. Payload bytes are not read.
type brief struct {
	id          pipeline.ID
	tenant      string
	pipeline    string
	state       custody.State
	class       string
	fingerprint string
	schema      string
	entity      string
	original    pipeline.Position
	originalMS  int64
	timeType    pipeline.TimeType
	takenMS     int64
	lastMS      int64 // when it was seen last
	flags       custody.Flag
	confirmed   custody.Confirmed
	faithful    deadletter.Faithful
	digest      pipeline.Digest // of the bytes that would be sent
	repair      string
	legalHold   string
	try         int64
	version     string
	newIdentity string // intent of a repair that makes a new logical id
	newer       pipeline.ID
	ask         bool
	bytes       int64 // of key, value and headers in the ledger; 0 when they stand in the source
	key         []byte
	hasPayload  bool
	absent      bool // somebody confirmed that the last try has no effect
}

const briefColumns = `SELECT i.id, i.tenant, i.pipeline, i.state, i.class, i.fingerprint, i.schema_ref, i.entity, i.topic, i.partition, i.source_offset,
	i.original_ms, i.time_type, i.taken_ms, coalesce(i.last_seen_ms, i.quarantined_ms), i.flags, i.confirmed, i.faithful, i.digest_faithful, i.repair, i.legal_hold, i.redrive_try,
	i.version, coalesce(r.new_identity, ''), coalesce(r.after_digest, ''),
	coalesce(length(rp.record_key), 0) + coalesce(length(rp.value), 0) + coalesce(length(rp.headers), 0),
	coalesce(length(p.record_key), 0) + coalesce(length(p.value), p.object_bytes, 0) + coalesce(length(p.headers), 0),
	coalesce(rp.record_key, p.record_key),
	CASE WHEN rp.repair IS NOT NULL OR p.item IS NOT NULL THEN 1 ELSE 0 END,
	(SELECT count(*) FROM outcomes o WHERE o.item = i.id AND o.tenant = i.tenant AND o.result = 'absent' AND o.redrive_try = i.redrive_try)
	FROM `

const briefJoins = `
	LEFT JOIN payloads p ON p.item = i.id AND p.week = i.payload_week
	LEFT JOIN repairs r ON r.id = i.repair AND i.repair <> ''
	LEFT JOIN repair_payloads rp ON rp.repair = i.repair AND i.repair <> ''`

func scanBrief(scan func(...any) error) (*brief, error) {
	b := &brief{}
	var timeType, after string
	var repaired, plain, has, absent int64
	err := scan(&b.id, &b.tenant, &b.pipeline, &b.state, &b.class, &b.fingerprint, &b.schema, &b.entity, &b.original.Topic, &b.original.Partition, &b.original.Offset,
		&b.originalMS, &timeType, &b.takenMS, &b.lastMS, &b.flags, &b.confirmed, &b.faithful, (*custody.StoredDigest)(&b.digest), &b.repair, &b.legalHold, &b.try,
		&b.version, &b.newIdentity, &after, &repaired, &plain, &b.key, &has, &absent)
	if err != nil {
		return nil, err
	}
	b.timeType, _ = pipeline.ParseTimeType(timeType)
	b.hasPayload, b.absent = has != 0, absent != 0
	b.bytes = plain
	if b.repair != "" {
		b.digest, b.bytes = pipeline.Digest(after), repaired
	}
	return b, nil
}

// exclusion says why an item of a selection is not sent: the word of the manifest's counts, and the code.
type exclusion struct {
	Reason string        `json:"reason"`
	Code   pipeline.Code `json:"code"`
}

// exclude says why a plan leaves an item out, or nil. nowMS decides about the horizon.
func (b *brief) exclude(t *Target, req *PlanRequest, nowMS int64) *exclusion {
	switch {
	case b.pipeline != t.Pipeline:
		return &exclusion{"other_pipeline", pipeline.CodeInputInvalid}
	case b.state == custody.PolicyHold || b.legalHold != "":
		return &exclusion{"held", pipeline.CodeItemHeld}
	case b.state != custody.Triaged && b.state != custody.Repaired:
		return &exclusion{"state_" + string(b.state), pipeline.CodeStateInvalid}
	case b.flags&custody.FlagErased != 0:
		return &exclusion{"erased", pipeline.CodeErased}
	case b.flags&custody.FlagSameEvent != 0:
		return &exclusion{"same_event", pipeline.CodeItemHeld}
	case b.flags&custody.FlagRebuilt != 0:
		return &exclusion{"rebuilt", pipeline.CodeItemHeld}
	case b.flags&custody.FlagConflict != 0:
		return &exclusion{"conflict", pipeline.CodeItemHeld}
	case b.confirmed == custody.SourceUnknown && req.Unconfirmed == accepted:
	case b.confirmed != custody.IsConfirmed:
		return &exclusion{"unconfirmed", pipeline.CodeItemUnconfirmed}
	}
	switch {
	case b.repair != "" && b.digest == "":
		return &exclusion{"payload_missing", pipeline.CodePayloadMissing}
	case b.repair == "" && b.faithful == "nowhere":
		return &exclusion{"payload_missing", pipeline.CodePayloadMissing}
	case b.repair == "" && b.faithful == "inline" && !b.hasPayload:
		return &exclusion{"payload_missing", pipeline.CodePayloadMissing}
	case b.newIdentity != "" && req.Identity != identityNew:
		return &exclusion{"identity", pipeline.CodeRedriveIdentity}
	case b.try >= maxTries && !(req.Loop == accepted && req.alone): // a person, alone: never a bulk redrive
		return &exclusion{"loop", pipeline.CodeLoop}
	}
	// Whether the effect exists already is unknown: it is asked about first, by the pipeline's question or by a person.
	ambiguous, past := b.class == pipeline.Ambiguous.String(), t.Horizon.past(b, nowMS)
	b.ask = false
	switch {
	case b.absent:
	case ambiguous && t.Ask == nil:
		return &exclusion{"ambiguous", pipeline.CodeReconcileFirst}
	case past && t.Ask == nil && req.Horizon != accepted:
		return &exclusion{"horizon", pipeline.CodeRedriveHorizon}
	case t.Ask != nil:
		b.ask = ambiguous || past || t.State
	}
	return nil
}

// past tells whether the effect's deduplication may have forgotten an item, or nobody has said how long it remembers.
func (h Horizon) past(b *brief, nowMS int64) bool {
	from := b.firstMS()
	if h.Last {
		from = b.lastMS
	}
	return !h.Known || h.For > 0 && nowMS-from > h.For.Milliseconds()
}

// firstMS is when the effect may first have happened.
func (b *brief) firstMS() int64 {
	if b.originalMS > 0 && b.timeType != pipeline.TimeNone {
		return b.originalMS
	}
	return b.takenMS
}

// identityNew is the identity policy of a manifest whose repairs make new logical ids.
const identityNew = "new"

// maxTries is how many redrives an item may fail before only a person may send it, alone.
const maxTries = 5

// eachOfSnapshot calls f with the items of a snapshot in sending order: that of their source, so items of one key stay in theirs. An
// item that is gone is missing. Texts are compared by their bytes, whatever the server's locale.
func eachOfSnapshot(tx *ledger.Tx, snapshot string, f func(*brief) error) error {
	bytes := ""
	if tx.Dialect() == ledger.Postgres {
		bytes = ` COLLATE "C"`
	}
	return tx.Each(briefColumns+"snapshot_items s JOIN items i ON i.id = s.item AND i.tenant = s.tenant"+briefJoins+
		" WHERE s.snapshot = ? ORDER BY i.topic"+bytes+", i.partition, i.source_offset, i.id"+bytes, []any{snapshot}, func(scan func(...any) error) error {
		b, err := scanBrief(scan)
		if err != nil {
			return err
		}
		return f(b)
	})
}

// earlierOpen finds entities that have an open item before one of ours which the plan does not send: sending ours would
// overtake it. It returns, for each entity, the lowest such position of each partition.
func earlierOpen(tx *ledger.Tx, tenant string, entities []string, ours map[pipeline.ID]bool) (map[string]map[pipeline.TP]int64, error) {
	out := map[string]map[pipeline.TP]int64{}
	for from := 0; from < len(entities); from += 1000 {
		in, arg := tx.In("entity", entities[from:min(from+1000, len(entities))])
		err := tx.Each("SELECT id, entity, topic, partition, source_offset FROM items WHERE tenant = ? AND "+in+
			" AND state IN ('DEAD_LETTERED', 'TRIAGED', 'REPAIRED', 'REDRIVING', 'REDRIVE_FAILED', 'POLICY_HOLD')", []any{tenant, arg}, func(scan func(...any) error) error {
			var id pipeline.ID
			var entity string
			var p pipeline.Position
			if err := scan(&id, &entity, &p.Topic, &p.Partition, &p.Offset); err != nil {
				return err
			}
			if ours[id] {
				return nil
			}
			m := out[entity]
			if m == nil {
				m = map[pipeline.TP]int64{}
				out[entity] = m
			}
			if old, ok := m[p.TP]; !ok || p.Offset < old {
				m[p.TP] = p.Offset
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
