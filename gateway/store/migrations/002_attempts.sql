-- A row for every attempt, and how each exchange was routed. The attempts of older rows were not
-- recorded.

ALTER TABLE requests ADD COLUMN upstream_format TEXT;
ALTER TABLE requests ADD COLUMN affinity TEXT;
ALTER TABLE requests ADD COLUMN affinity_kept TEXT;
ALTER TABLE requests ADD COLUMN config_hash TEXT;
ALTER TABLE requests ADD COLUMN attempts INTEGER DEFAULT 0 NOT NULL;

CREATE TABLE attempts (
    request_id TEXT NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
    number INTEGER NOT NULL, channel TEXT NOT NULL, account TEXT NOT NULL,
    upstream_model TEXT NOT NULL, format TEXT NOT NULL, lane TEXT NOT NULL,
    reason TEXT NOT NULL, started_us BIGINT NOT NULL, first_event_us BIGINT,
    total_us BIGINT NOT NULL, status INTEGER, verdict TEXT NOT NULL, blame TEXT, effect TEXT,
    next TEXT, error TEXT, PRIMARY KEY (request_id, number)
) {without_rowid};
