-- The rows of a manifest change three times while it runs. None of these changes touches an index: on PostgreSQL they stay on their
-- page, which is filled by half at first. watched is what a run looks for among a million rows: 1 where the retry lane has settled an
-- item and its effect is asked about, 2 where it failed, else 0.
ALTER TABLE manifest_items ADD COLUMN watched INTEGER NOT NULL DEFAULT 0;
UPDATE manifest_items SET watched = CASE WHEN state = 'failed' THEN 2 ELSE 1 END WHERE state IN ('forwarded', 'failed');
DROP INDEX manifest_items_state;
CREATE INDEX manifest_items_watched ON manifest_items (manifest, watched, n) WHERE watched <> 0;
CREATE INDEX manifest_items_newer ON manifest_items (manifest, n) WHERE newer <> '';
--postgres ALTER TABLE manifest_items SET (fillfactor = 50);
-- Effects that were there already are counted once a second.
CREATE INDEX outcomes_twice ON outcomes (redrive) WHERE result = 'already_applied';
