-- Limits of keys and groups, costs, and sums by the hour.

ALTER TABLE tokens ADD COLUMN cost_micro BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE tokens ADD COLUMN note TEXT;
ALTER TABLE tokens ADD COLUMN expires_at BIGINT;
ALTER TABLE tokens ADD COLUMN probe BOOLEAN DEFAULT {false} NOT NULL;
ALTER TABLE tokens ADD COLUMN models TEXT;
ALTER TABLE tokens ADD COLUMN addresses TEXT;
ALTER TABLE tokens ADD COLUMN user_agents TEXT;
ALTER TABLE tokens ADD COLUMN requests_per_minute BIGINT;
ALTER TABLE tokens ADD COLUMN tokens_per_minute BIGINT;
ALTER TABLE tokens ADD COLUMN concurrent BIGINT;
ALTER TABLE tokens ADD COLUMN budget BIGINT;
ALTER TABLE tokens ADD COLUMN budget_day BIGINT;
ALTER TABLE tokens ADD COLUMN budget_month BIGINT;
ALTER TABLE tokens ADD COLUMN old_digest {binary};
ALTER TABLE tokens ADD COLUMN old_display TEXT;
ALTER TABLE tokens ADD COLUMN old_expires_at BIGINT;
ALTER TABLE tokens ADD COLUMN first_used_at BIGINT;
ALTER TABLE tokens ADD COLUMN first_address TEXT;
ALTER TABLE tokens ADD COLUMN first_agent TEXT;
ALTER TABLE tokens ADD COLUMN changed_at BIGINT;
ALTER TABLE tokens ADD COLUMN changed TEXT;
CREATE UNIQUE INDEX tokens_old_digest ON tokens (old_digest);

ALTER TABLE groups ADD COLUMN multiplier TEXT DEFAULT '1' NOT NULL;
ALTER TABLE groups ADD COLUMN requests_per_minute BIGINT;
ALTER TABLE groups ADD COLUMN tokens_per_minute BIGINT;
ALTER TABLE groups ADD COLUMN concurrent BIGINT;
ALTER TABLE groups ADD COLUMN budget BIGINT;
ALTER TABLE groups ADD COLUMN budget_day BIGINT;
ALTER TABLE groups ADD COLUMN budget_month BIGINT;
ALTER TABLE groups ADD COLUMN user_agents TEXT;
ALTER TABLE groups ADD COLUMN user_agent_mode TEXT DEFAULT 'enforce' NOT NULL;

ALTER TABLE requests ADD COLUMN catalog_model TEXT;
ALTER TABLE requests ADD COLUMN expected_input_tokens BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE requests ADD COLUMN expected_micro BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE requests ADD COLUMN tariff TEXT;
ALTER TABLE requests ADD COLUMN notes TEXT;
ALTER TABLE requests ADD COLUMN cache_write_1h_tokens BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE requests ADD COLUMN cost_micro BIGINT DEFAULT '0' NOT NULL;

-- Older rows have no name of the catalog: those that reached a channel get the client's.
UPDATE requests SET catalog_model = model WHERE channel IS NOT NULL;

CREATE TABLE usage_hours (
    hour INTEGER NOT NULL, token_id TEXT NOT NULL, group_name TEXT NOT NULL, model TEXT NOT NULL,
    requests BIGINT DEFAULT '0' NOT NULL, errors BIGINT DEFAULT '0' NOT NULL,
    estimated BIGINT DEFAULT '0' NOT NULL, input_tokens BIGINT DEFAULT '0' NOT NULL,
    cache_read_tokens BIGINT DEFAULT '0' NOT NULL, cache_write_tokens BIGINT DEFAULT '0' NOT NULL,
    cache_write_1h_tokens BIGINT DEFAULT '0' NOT NULL, output_tokens BIGINT DEFAULT '0' NOT NULL,
    reasoning_tokens BIGINT DEFAULT '0' NOT NULL, cost_micro BIGINT DEFAULT '0' NOT NULL,
    PRIMARY KEY (hour, token_id, group_name, model)
) {without_rowid};

INSERT INTO usage_hours (hour, token_id, group_name, model, requests, errors, estimated,
    input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens)
SELECT started_at / 3600000000, token_id, group_name, COALESCE(catalog_model, ''), COUNT(*),
    SUM(CASE WHEN state = 'ok' THEN 0 ELSE 1 END), 0, SUM(input_tokens),
    SUM(cache_read_tokens), SUM(cache_write_tokens), SUM(output_tokens), SUM(reasoning_tokens)
FROM requests WHERE state <> 'open' GROUP BY 1, 2, 3, 4;
