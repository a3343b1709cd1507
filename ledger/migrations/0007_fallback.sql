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
