-- One file for both stores. BYTES is BLOB or BYTEA. A line that starts with "--sqlite " or "--postgres " counts only there.
-- Times are int64 milliseconds. Text is valid UTF-8 without NUL: the driver layer sees to it; source bytes stand in BYTES.

-- Numbers stand first: a text between them would cost padding in every row.
CREATE TABLE items (
  rev BIGINT NOT NULL,
  source_offset BIGINT NOT NULL,
  original_ms BIGINT NOT NULL,
  at_offset BIGINT NOT NULL,
  letter_offset BIGINT NOT NULL,
  generation BIGINT NOT NULL,
  quarantined_ms BIGINT NOT NULL,
  taken_ms BIGINT NOT NULL,
  last_seen_ms BIGINT NOT NULL,
  changed_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  partition INTEGER NOT NULL,
  at_partition INTEGER NOT NULL,
  letter_partition INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  payload_week INTEGER NOT NULL,
  flags INTEGER NOT NULL,
  confirmed INTEGER NOT NULL,
  sightings INTEGER NOT NULL,
  redrive_try INTEGER NOT NULL,
  id TEXT NOT NULL PRIMARY KEY,
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
  exception TEXT NOT NULL,
  stack TEXT NOT NULL,
  digest_faithful TEXT NOT NULL,
  digest_redacted BYTES,
  faithful TEXT NOT NULL,
  enc TEXT NOT NULL,
  payload_digest BYTES NOT NULL,
  owner TEXT NOT NULL,
  ticket TEXT NOT NULL,
  held_from TEXT NOT NULL,
  sent_from TEXT NOT NULL,
  redrive TEXT NOT NULL,
  repair TEXT NOT NULL,
  resolution TEXT NOT NULL,
  legal_hold TEXT NOT NULL
);
CREATE INDEX items_source ON items (topic, partition, source_offset);
CREATE INDEX items_at ON items (at_topic, at_partition, at_offset) WHERE at_topic <> '';
CREATE INDEX items_entity ON items (tenant, entity) WHERE entity <> '';
CREATE INDEX items_event ON items (event_id) WHERE event_id <> '';
CREATE INDEX items_group ON items (fingerprint, state, quarantined_ms);
CREATE INDEX items_owner ON items (owner, state, quarantined_ms) WHERE owner <> '';
CREATE INDEX items_time ON items (quarantined_ms);
CREATE INDEX items_waiting ON items (consumer, confirmed) WHERE confirmed IN (0, 3);
CREATE INDEX items_redrive ON items (redrive) WHERE redrive <> '';

CREATE TABLE payloads (
  item TEXT NOT NULL,
  week INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  record_key BYTES,
  value BYTES,
  headers BYTES NOT NULL,
  PRIMARY KEY (item, week)
)
--postgres PARTITION BY RANGE (week)
;
--postgres CREATE TABLE payloads_rest PARTITION OF payloads DEFAULT;

-- Who (by_system: our own parts) and what; persons and their words stand apart in custody_ledger_private. hash is over the hash of
-- the row before, these columns and the salted commitment to the private ones.
CREATE TABLE dlq_message_custody_ledger (
  seq BIGINT NOT NULL PRIMARY KEY,
  at_ms BIGINT NOT NULL,
  tenant TEXT NOT NULL,
  item TEXT NOT NULL,
  event TEXT NOT NULL,
  to_state TEXT NOT NULL,
  by_system TEXT NOT NULL,
  evidence BYTES,
  hash BYTES NOT NULL
);
CREATE INDEX custody_ledger_item ON dlq_message_custody_ledger (item, seq);

CREATE TABLE custody_ledger_private (
  seq BIGINT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  salt BYTES NOT NULL,
  actor TEXT NOT NULL,
  detail TEXT NOT NULL
);

CREATE TABLE erased_commitments (
  seq BIGINT NOT NULL PRIMARY KEY,
  commitment BYTES NOT NULL
);

CREATE TABLE history_head (
  id INTEGER NOT NULL PRIMARY KEY,
  seq BIGINT NOT NULL,
  hash BYTES NOT NULL,
  signed_seq BIGINT NOT NULL,
  signed_ms BIGINT NOT NULL
);
--sqlite INSERT INTO history_head VALUES (1, 0, zeroblob(32), 0, 0);
--postgres INSERT INTO history_head VALUES (1, 0, decode(repeat('00', 32), 'hex'), 0, 0);

CREATE TABLE signed_heads (
  seq BIGINT NOT NULL PRIMARY KEY,
  hash BYTES NOT NULL,
  at_ms BIGINT NOT NULL,
  kid TEXT NOT NULL,
  mac BYTES NOT NULL
);

CREATE TABLE sightings (
  item TEXT NOT NULL,
  tenant TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  letter_offset BIGINT NOT NULL,
  at_topic TEXT NOT NULL,
  at_partition INTEGER NOT NULL,
  at_offset BIGINT NOT NULL,
  at_ms BIGINT NOT NULL,
  code TEXT NOT NULL,
  release TEXT NOT NULL,
  redrive TEXT NOT NULL,
  redrive_try INTEGER NOT NULL,
  PRIMARY KEY (item, topic, partition, letter_offset)
);

CREATE TABLE attempts (
  item TEXT NOT NULL,
  tenant TEXT NOT NULL,
  redrive_try INTEGER NOT NULL,
  n INTEGER NOT NULL,
  at_ms BIGINT NOT NULL,
  code TEXT NOT NULL,
  PRIMARY KEY (item, redrive_try, n)
);

CREATE TABLE stacks (
  tenant TEXT NOT NULL,
  hash TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (tenant, hash)
);

CREATE TABLE groups (
  tenant TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  consumer TEXT NOT NULL,
  class TEXT NOT NULL,
  code TEXT NOT NULL,
  stage TEXT NOT NULL,
  reason TEXT NOT NULL,
  first_ms BIGINT NOT NULL,
  first_release TEXT NOT NULL,
  first_schema TEXT NOT NULL,
  first_item TEXT NOT NULL,
  last_ms BIGINT NOT NULL,
  last_release TEXT NOT NULL,
  last_schema TEXT NOT NULL,
  last_item TEXT NOT NULL,
  owner TEXT NOT NULL,
  ticket TEXT NOT NULL,
  note TEXT NOT NULL,
  muted_until_ms BIGINT NOT NULL,
  muted_by TEXT NOT NULL,
  rev BIGINT NOT NULL,
  PRIMARY KEY (tenant, fingerprint)
);
CREATE INDEX groups_last ON groups (last_ms);

CREATE TABLE group_rollup (
  tenant TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state TEXT NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (tenant, fingerprint, state)
);

CREATE TABLE age_rollup (
  tenant TEXT NOT NULL,
  owner TEXT NOT NULL,
  state TEXT NOT NULL,
  day INTEGER NOT NULL,
  n BIGINT NOT NULL,
  PRIMARY KEY (tenant, owner, state, day)
);

CREATE TABLE intake_offsets (
  cluster TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  next BIGINT NOT NULL,
  epoch BIGINT NOT NULL,
  PRIMARY KEY (cluster, topic, partition)
);

CREATE TABLE raw_messages (
  cluster TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  message_offset BIGINT NOT NULL,
  tenant TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  code TEXT NOT NULL,
  reason TEXT NOT NULL,
  record_key BYTES,
  value BYTES,
  headers BYTES NOT NULL,
  PRIMARY KEY (cluster, topic, partition, message_offset)
);

CREATE TABLE settlements (
  seq BIGINT NOT NULL PRIMARY KEY,
  pipeline TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  epoch BIGINT NOT NULL,
  from_offset BIGINT NOT NULL,
  to_offset BIGINT NOT NULL,
  policy TEXT NOT NULL,
  counts TEXT NOT NULL,
  custody BYTES,
  other BYTES,
  first_ms BIGINT NOT NULL,
  last_ms BIGINT NOT NULL
);
CREATE INDEX settlements_at ON settlements (topic, partition, to_offset);
CREATE INDEX settlements_last ON settlements (topic, partition, seq);

CREATE TABLE committed_offsets (
  consumer TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  next BIGINT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (consumer, topic, partition)
);

CREATE TABLE outcomes (
  item TEXT NOT NULL,
  tenant TEXT NOT NULL,
  redrive TEXT NOT NULL,
  redrive_try INTEGER NOT NULL,
  result TEXT NOT NULL,
  writer TEXT NOT NULL,
  effect_ref TEXT NOT NULL,
  code TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  applied INTEGER NOT NULL,
  PRIMARY KEY (item, redrive, redrive_try, result, writer)
);

CREATE TABLE incidents (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  cohort TEXT NOT NULL,
  state TEXT NOT NULL,
  generation BIGINT NOT NULL,
  opened_ms BIGINT NOT NULL,
  closed_ms BIGINT NOT NULL,
  records BIGINT NOT NULL,
  detail TEXT NOT NULL,
  rev BIGINT NOT NULL
);

CREATE TABLE ranges (
  incident TEXT NOT NULL,
  tenant TEXT NOT NULL,
  generation BIGINT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  from_offset BIGINT NOT NULL,
  to_offset BIGINT NOT NULL,
  count BIGINT NOT NULL,
  bitmap BYTES NOT NULL,
  prev_digest TEXT NOT NULL,
  mac TEXT NOT NULL,
  state TEXT NOT NULL,
  PRIMARY KEY (incident, generation, topic, partition, from_offset)
);

CREATE TABLE repairs (
  id TEXT NOT NULL PRIMARY KEY,
  item TEXT NOT NULL,
  tenant TEXT NOT NULL,
  n INTEGER NOT NULL,
  transform TEXT NOT NULL,
  version TEXT NOT NULL,
  artifact TEXT NOT NULL,
  config_digest TEXT NOT NULL,
  config TEXT NOT NULL,
  before_digest TEXT NOT NULL,
  after_digest TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  actor TEXT NOT NULL,
  report TEXT NOT NULL,
  faithful INTEGER NOT NULL,
  new_identity TEXT NOT NULL
);
CREATE INDEX repairs_item ON repairs (item, n);

CREATE TABLE repair_payloads (
  repair TEXT NOT NULL PRIMARY KEY,
  item TEXT NOT NULL,
  tenant TEXT NOT NULL,
  record_key BYTES,
  value BYTES,
  headers BYTES NOT NULL,
  enc TEXT NOT NULL
);

CREATE TABLE manifests (
  digest TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  pipeline TEXT NOT NULL,
  requester TEXT NOT NULL,
  ticket TEXT NOT NULL,
  state TEXT NOT NULL,
  run TEXT NOT NULL,
  reconcile TEXT NOT NULL,
  destination TEXT NOT NULL,
  snapshot TEXT NOT NULL,
  items BIGINT NOT NULL,
  bytes BIGINT NOT NULL,
  created_ms BIGINT NOT NULL,
  changed_ms BIGINT NOT NULL,
  body BYTES NOT NULL,
  dry_run TEXT NOT NULL,
  dry_run_ms BIGINT NOT NULL,
  detail TEXT NOT NULL,
  rev BIGINT NOT NULL
);

CREATE TABLE manifest_items (
  manifest TEXT NOT NULL,
  n BIGINT NOT NULL,
  tenant TEXT NOT NULL,
  item TEXT NOT NULL,
  state TEXT NOT NULL,
  code TEXT NOT NULL,
  repair TEXT NOT NULL,
  digest TEXT NOT NULL,
  order_key TEXT NOT NULL,
  attempts INTEGER NOT NULL,
  measures TEXT NOT NULL,
  sent_topic TEXT NOT NULL,
  sent_partition INTEGER NOT NULL,
  sent_offset BIGINT NOT NULL,
  sent_ms BIGINT NOT NULL,
  PRIMARY KEY (manifest, n)
);
CREATE UNIQUE INDEX manifest_items_item ON manifest_items (manifest, item);
CREATE INDEX manifest_items_state ON manifest_items (manifest, state, n);

CREATE TABLE approvals (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  digest TEXT NOT NULL,
  subject TEXT NOT NULL,
  role TEXT NOT NULL,
  rate TEXT NOT NULL,
  expires_ms BIGINT NOT NULL,
  kid TEXT NOT NULL,
  signature BYTES NOT NULL,
  at_ms BIGINT NOT NULL,
  denied INTEGER NOT NULL,
  reason TEXT NOT NULL,
  revoked_ms BIGINT NOT NULL,
  revoked_by TEXT NOT NULL
);
CREATE INDEX approvals_digest ON approvals (digest);

CREATE TABLE leases (
  name TEXT NOT NULL PRIMARY KEY,
  holder TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  until_ms BIGINT NOT NULL,
  detail TEXT NOT NULL
);

CREATE TABLE intents (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  manifest TEXT NOT NULL,
  run TEXT NOT NULL,
  lease TEXT NOT NULL,
  epoch BIGINT NOT NULL,
  from_n BIGINT NOT NULL,
  to_n BIGINT NOT NULL,
  items INTEGER NOT NULL,
  state TEXT NOT NULL,
  offsets TEXT NOT NULL,
  written_ms BIGINT NOT NULL,
  closed_ms BIGINT NOT NULL
);
CREATE INDEX intents_open ON intents (manifest, state);

CREATE TABLE pace (
  name TEXT NOT NULL PRIMARY KEY,
  rate BIGINT NOT NULL,
  next_us BIGINT NOT NULL,
  taken BIGINT NOT NULL,
  until_ms BIGINT NOT NULL,
  detail TEXT NOT NULL,
  rev BIGINT NOT NULL
);

CREATE TABLE snapshots (
  id TEXT NOT NULL PRIMARY KEY,
  tenants TEXT NOT NULL,
  actor TEXT NOT NULL,
  selection TEXT NOT NULL,
  count BIGINT NOT NULL,
  digest TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);

CREATE TABLE snapshot_items (
  snapshot TEXT NOT NULL,
  n BIGINT NOT NULL,
  tenant TEXT NOT NULL,
  item TEXT NOT NULL,
  PRIMARY KEY (snapshot, n)
);

CREATE UNIQUE INDEX snapshot_items_item ON snapshot_items (snapshot, item);

CREATE TABLE tenant_keys (
  id TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  version INTEGER NOT NULL,
  public_key BYTES NOT NULL,
  private_wrapped BYTES NOT NULL,
  keeper TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);
CREATE INDEX tenant_keys_tenant ON tenant_keys (tenant, version);

CREATE TABLE erasure_log (
  seq BIGINT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  actor TEXT NOT NULL,
  reason TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);

CREATE TABLE rules (
  id TEXT NOT NULL,
  version INTEGER NOT NULL,
  tenant TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  state TEXT NOT NULL,
  body TEXT NOT NULL,
  author TEXT NOT NULL,
  approver TEXT NOT NULL,
  created_ms BIGINT NOT NULL,
  expires_ms BIGINT NOT NULL,
  matched BIGINT NOT NULL,
  PRIMARY KEY (id, version)
);
CREATE INDEX rules_match ON rules (tenant, fingerprint, state);

CREATE TABLE outbox (
  seq BIGINT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  topic TEXT NOT NULL,
  record_key BYTES,
  value BYTES,
  headers BYTES NOT NULL,
  at_ms BIGINT NOT NULL,
  sent_ms BIGINT NOT NULL
);
CREATE INDEX outbox_open ON outbox (sent_ms, seq);

CREATE TABLE sequences (
  name TEXT NOT NULL PRIMARY KEY,
  next BIGINT NOT NULL
);
