-- Sealed records of vault topics: what redaction would have changed, or nobody could look into. Without the tenant's private key they
-- are noise.
CREATE TABLE vault (
  item TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  cluster TEXT NOT NULL,
  topic TEXT NOT NULL,
  partition INTEGER NOT NULL,
  message_offset BIGINT NOT NULL,
  digest TEXT NOT NULL,
  enc TEXT NOT NULL,
  sealed BYTES NOT NULL,
  at_ms BIGINT NOT NULL
);
