-- The state of an exchange that has not ended is `running`, no longer `open`. The partial indexes
-- name the state, so they are created again.

UPDATE requests SET state = 'running' WHERE state = 'open';
DROP INDEX requests_open;
CREATE INDEX requests_running ON requests (boot_id) WHERE state = 'running';
DROP INDEX requests_failed;
CREATE INDEX requests_failed
ON requests (id, state, status, error_code, upstream_status, token_id, channel)
WHERE state NOT IN ('ok', 'running');
