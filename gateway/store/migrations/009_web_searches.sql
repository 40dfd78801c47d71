-- Web searches: how many a request made, and each one that the gateway ran.

ALTER TABLE requests ADD COLUMN web_searches BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE usage_hours ADD COLUMN web_searches BIGINT DEFAULT '0' NOT NULL;

CREATE TABLE searches (
    request_id TEXT NOT NULL REFERENCES requests (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    query TEXT NOT NULL, started_us BIGINT NOT NULL, total_us BIGINT NOT NULL,
    results BIGINT DEFAULT '0' NOT NULL, error TEXT,
    PRIMARY KEY (request_id, number)
) {without_rowid};
