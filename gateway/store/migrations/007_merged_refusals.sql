-- A row can stand for several refused requests; the index of failures counts them.

ALTER TABLE requests ADD COLUMN requests BIGINT DEFAULT '1' NOT NULL;
DROP INDEX requests_failed;
CREATE INDEX requests_failed
ON requests (id, state, status, error_code, upstream_status, token_id, channel, requests)
WHERE state NOT IN ('ok', 'running');
