-- Items take less room: what is the same as in another column, or zero, is NULL, and a keyed digest is bytes (0 and its text, or 2,
-- the length of the key's name, the name, 32 bytes). group_key is the group that a person put an item into, when it is not the one of
-- its fingerprint.

CREATE TABLE items_2 (
  source_offset BIGINT NOT NULL,
  original_ms BIGINT NOT NULL,
  letter_offset BIGINT NOT NULL,
  quarantined_ms BIGINT NOT NULL,
  taken_ms BIGINT NOT NULL,
  at_offset BIGINT,
  generation BIGINT,
  last_seen_ms BIGINT,
  changed_ms BIGINT,
  expires_ms BIGINT,
  rev INTEGER NOT NULL,
  partition INTEGER NOT NULL,
  letter_partition INTEGER NOT NULL,
  sightings INTEGER NOT NULL,
  at_partition INTEGER,
  attempts SMALLINT NOT NULL,
  payload_week SMALLINT NOT NULL,
  flags SMALLINT NOT NULL,
  confirmed SMALLINT NOT NULL,
  redrive_try SMALLINT NOT NULL,
  id TEXT NOT NULL PRIMARY KEY,
  group_key TEXT,
  tenant TEXT NOT NULL,
  state TEXT NOT NULL,
  kind TEXT NOT NULL,
  dialect TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  consumer TEXT NOT NULL,
  release TEXT NOT NULL,
  event_id TEXT NOT NULL,
  entity TEXT NOT NULL,
  business_id TEXT NOT NULL,
  token TEXT NOT NULL,
  version TEXT NOT NULL,
  cluster TEXT NOT NULL,
  topic TEXT NOT NULL,
  time_type TEXT NOT NULL,
  at_topic TEXT NOT NULL,
  letter_topic TEXT NOT NULL,
  class TEXT NOT NULL,
  code TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  stage TEXT NOT NULL,
  schema_ref TEXT NOT NULL,
  policy BYTES,
  reason TEXT NOT NULL,
  reason_raw BYTES,
  exception TEXT,
  stack TEXT,
  digest_faithful BYTES,
  digest_redacted BYTES,
  faithful TEXT NOT NULL,
  enc TEXT NOT NULL,
  payload_digest BYTES NOT NULL,
  owner TEXT NOT NULL,
  ticket TEXT NOT NULL,
  held_from TEXT,
  sent_from TEXT,
  redrive TEXT NOT NULL,
  repair TEXT NOT NULL,
  resolution TEXT NOT NULL,
  legal_hold TEXT NOT NULL
);
-- Digests that are there keep the form of their text.
--sqlite INSERT INTO items_2 (source_offset, original_ms, letter_offset, quarantined_ms, taken_ms, at_offset, generation, last_seen_ms, changed_ms, expires_ms, rev, partition, letter_partition, sightings, at_partition, attempts, payload_week, flags, confirmed, redrive_try, id, group_key, tenant, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version, cluster, topic, time_type, at_topic, letter_topic, class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, exception, stack, digest_faithful, digest_redacted, faithful, enc, payload_digest, owner, ticket, held_from, sent_from, redrive, repair, resolution, legal_hold) SELECT source_offset, original_ms, letter_offset, quarantined_ms, taken_ms, CASE WHEN at_topic = '' THEN NULL ELSE at_offset END, NULLIF(generation, 0), NULLIF(last_seen_ms, quarantined_ms), NULLIF(changed_ms, taken_ms), NULLIF(expires_ms, 0), rev, partition, letter_partition, sightings, CASE WHEN at_topic = '' THEN NULL ELSE at_partition END, attempts, payload_week, flags, confirmed, redrive_try, id, NULL, tenant, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version, cluster, topic, time_type, at_topic, letter_topic, class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, NULLIF(exception, ''), NULLIF(stack, ''), CAST(x'00' || digest_faithful AS BLOB), digest_redacted, faithful, enc, payload_digest, owner, ticket, NULLIF(held_from, ''), NULLIF(sent_from, ''), redrive, repair, resolution, legal_hold FROM items;
--postgres INSERT INTO items_2 (source_offset, original_ms, letter_offset, quarantined_ms, taken_ms, at_offset, generation, last_seen_ms, changed_ms, expires_ms, rev, partition, letter_partition, sightings, at_partition, attempts, payload_week, flags, confirmed, redrive_try, id, group_key, tenant, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version, cluster, topic, time_type, at_topic, letter_topic, class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, exception, stack, digest_faithful, digest_redacted, faithful, enc, payload_digest, owner, ticket, held_from, sent_from, redrive, repair, resolution, legal_hold) SELECT source_offset, original_ms, letter_offset, quarantined_ms, taken_ms, CASE WHEN at_topic = '' THEN NULL ELSE at_offset END, NULLIF(generation, 0), NULLIF(last_seen_ms, quarantined_ms), NULLIF(changed_ms, taken_ms), NULLIF(expires_ms, 0), rev, partition, letter_partition, sightings, CASE WHEN at_topic = '' THEN NULL ELSE at_partition END, attempts, payload_week, flags, confirmed, redrive_try, id, NULL, tenant, state, kind, dialect, pipeline, consumer, release, event_id, entity, business_id, token, version, cluster, topic, time_type, at_topic, letter_topic, class, code, fingerprint, stage, schema_ref, policy, reason, reason_raw, NULLIF(exception, ''), NULLIF(stack, ''), '\x00'::bytea || convert_to(digest_faithful, 'UTF8'), digest_redacted, faithful, enc, payload_digest, owner, ticket, NULLIF(held_from, ''), NULLIF(sent_from, ''), redrive, repair, resolution, legal_hold FROM items;
DROP TABLE items;
ALTER TABLE items_2 RENAME TO items;
--postgres ALTER INDEX items_2_pkey RENAME TO items_pkey;
CREATE INDEX items_source ON items (topic, partition, source_offset);
CREATE INDEX items_at ON items (at_topic, at_partition, at_offset) WHERE at_topic <> '';
CREATE INDEX items_entity ON items (tenant, entity) WHERE entity <> '';
CREATE INDEX items_event ON items (event_id) WHERE event_id <> '';
CREATE INDEX items_group ON items (fingerprint, state, quarantined_ms);
CREATE INDEX items_regrouped ON items (group_key) WHERE group_key IS NOT NULL;
CREATE INDEX items_owner ON items (owner, state, quarantined_ms) WHERE owner <> '';
CREATE INDEX items_time ON items (quarantined_ms);
CREATE INDEX items_waiting ON items (consumer, confirmed) WHERE confirmed IN (0, 3);
CREATE INDEX items_redrive ON items (redrive) WHERE redrive <> '';

-- A regrouping puts items of one fingerprint, all of them or those that a selection has, into another group: old ones when it was
-- made, new ones when they come. The one with the lowest n that fits counts.
CREATE TABLE regroupings (
  tenant TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  n BIGINT NOT NULL,
  group_key TEXT NOT NULL,
  selection TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (tenant, fingerprint, n)
);
