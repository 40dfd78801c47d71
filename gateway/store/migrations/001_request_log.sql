-- The first tables and the group `default`, which allows every model.

CREATE TABLE groups (
    name TEXT NOT NULL PRIMARY KEY, patterns TEXT NOT NULL, created_at BIGINT NOT NULL
);

CREATE TABLE tokens (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL, digest {binary} NOT NULL UNIQUE,
    display TEXT NOT NULL, "group" TEXT NOT NULL REFERENCES groups (name),
    state TEXT NOT NULL, created_at BIGINT NOT NULL, revoked_at BIGINT,
    requests BIGINT DEFAULT '0' NOT NULL, input_tokens BIGINT DEFAULT '0' NOT NULL,
    output_tokens BIGINT DEFAULT '0' NOT NULL, last_used_at BIGINT
);

CREATE TABLE requests (
    id TEXT NOT NULL PRIMARY KEY, started_at BIGINT NOT NULL, token_id TEXT NOT NULL,
    group_name TEXT NOT NULL, endpoint TEXT NOT NULL, format TEXT NOT NULL, model TEXT,
    channel TEXT, account TEXT, upstream_model TEXT, lane TEXT, stream BOOLEAN NOT NULL,
    client_address TEXT, user_agent TEXT, client_request_id TEXT, bytes_in BIGINT NOT NULL,
    state TEXT NOT NULL, status INTEGER, stop_reason TEXT, end_reason TEXT,
    input_tokens BIGINT DEFAULT '0' NOT NULL, cache_read_tokens BIGINT DEFAULT '0' NOT NULL,
    cache_write_tokens BIGINT DEFAULT '0' NOT NULL, output_tokens BIGINT DEFAULT '0' NOT NULL,
    reasoning_tokens BIGINT DEFAULT '0' NOT NULL, usage_source TEXT DEFAULT 'none' NOT NULL,
    first_event_us BIGINT, total_us BIGINT, bytes_out BIGINT DEFAULT '0' NOT NULL,
    error_code TEXT, upstream_status INTEGER, upstream_error TEXT, dropped TEXT,
    boot_id TEXT NOT NULL
) {without_rowid};

CREATE INDEX requests_of_token ON requests (token_id, id);
CREATE INDEX requests_open ON requests (boot_id) WHERE state = 'open';

CREATE TABLE settings (name TEXT NOT NULL PRIMARY KEY, value TEXT NOT NULL);

INSERT INTO groups (name, patterns, created_at) VALUES ('default', '["*"]', {now});
