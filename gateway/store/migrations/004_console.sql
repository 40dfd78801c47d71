-- Console sessions, times summed by the hour, and an index of failed requests. Hours whose rows
-- were deleted have no times.

CREATE TABLE sessions (
    digest {binary} NOT NULL PRIMARY KEY, created_at BIGINT NOT NULL, seen_at BIGINT NOT NULL,
    address TEXT NOT NULL, agent TEXT NOT NULL
);

ALTER TABLE usage_hours ADD COLUMN first_events BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE usage_hours ADD COLUMN first_event_us BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE usage_hours ADD COLUMN total_us BIGINT DEFAULT '0' NOT NULL;

UPDATE usage_hours SET first_events = timed.events, first_event_us = timed.first_us,
    total_us = timed.whole_us
FROM (
    SELECT started_at / 3600000000 AS hour, token_id, group_name,
        COALESCE(catalog_model, '') AS model, COUNT(*) AS events,
        SUM(first_event_us) AS first_us, SUM(COALESCE(total_us, 0)) AS whole_us
    FROM requests WHERE state <> 'open' AND first_event_us IS NOT NULL GROUP BY 1, 2, 3, 4
) AS timed
WHERE usage_hours.hour = timed.hour AND usage_hours.token_id = timed.token_id
    AND usage_hours.group_name = timed.group_name AND usage_hours.model = timed.model;

CREATE INDEX requests_failed
ON requests (id, state, status, error_code, upstream_status, token_id, channel)
WHERE state NOT IN ('ok', 'open');
