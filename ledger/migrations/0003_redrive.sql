-- ask: the effect is asked about before the item is sent. newer: the item of the same entity that supersedes it. effect: what the
-- answer about its effect measures.
ALTER TABLE manifest_items ADD COLUMN ask INTEGER NOT NULL DEFAULT 0;
ALTER TABLE manifest_items ADD COLUMN newer TEXT NOT NULL DEFAULT '';
ALTER TABLE manifest_items ADD COLUMN effect TEXT NOT NULL DEFAULT '';
