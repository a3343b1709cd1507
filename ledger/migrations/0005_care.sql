-- What somebody was told, and when: once for each subject.
CREATE TABLE notices (
  kind TEXT NOT NULL,
  tenant TEXT NOT NULL,
  owner TEXT NOT NULL,
  subject TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (kind, tenant, owner, subject)
);

-- Permissions that a person has taken for minutes, with a reason (break-glass).
CREATE TABLE grants (
  subject TEXT NOT NULL,
  permission TEXT NOT NULL,
  until_ms BIGINT NOT NULL,
  reason TEXT NOT NULL,
  at_ms BIGINT NOT NULL,
  PRIMARY KEY (subject, permission, at_ms)
);

-- Where the payload of an item was archived when its retention ended.
CREATE TABLE archives (
  item TEXT NOT NULL PRIMARY KEY,
  tenant TEXT NOT NULL,
  object TEXT NOT NULL,
  digest TEXT NOT NULL,
  at_ms BIGINT NOT NULL
);
