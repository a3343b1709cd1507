-- A later or earlier end of items, proposed by one person; another approves it.
CREATE TABLE extensions (
  id TEXT NOT NULL PRIMARY KEY,
  snapshot TEXT NOT NULL,
  tenants TEXT NOT NULL,
  items BIGINT NOT NULL,
  digest TEXT NOT NULL,
  until_ms BIGINT NOT NULL,
  reason TEXT NOT NULL,
  state TEXT NOT NULL,
  author TEXT NOT NULL,
  approver TEXT NOT NULL,
  created_ms BIGINT NOT NULL
);

-- Letters that a dead-letter topic did not take, until it does.
CREATE TABLE fallback (
  id TEXT NOT NULL PRIMARY KEY,
  pipeline TEXT NOT NULL,
  item TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  message BYTES NOT NULL
);
CREATE INDEX fallback_order ON fallback (pipeline, at_ms, id);
CREATE INDEX fallback_item ON fallback (item);

-- What the pipeline of an item said of its data when it was admitted, and how long it stays for that.
ALTER TABLE items ADD COLUMN data_class TEXT;
ALTER TABLE items ADD COLUMN keep_ms BIGINT;

-- Values that are too large for the ledger stand in a bucket: the name of the object, and how long it is. What is to be deleted there.
ALTER TABLE payloads ADD COLUMN object TEXT;
ALTER TABLE payloads ADD COLUMN object_bytes BIGINT;
CREATE TABLE dropped_objects (
  object TEXT NOT NULL PRIMARY KEY,
  at_ms BIGINT NOT NULL
);
