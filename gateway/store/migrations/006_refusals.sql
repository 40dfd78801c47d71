-- What the client was told. So far the reason of a refusal was in the place of the upstream's error.

ALTER TABLE requests ADD COLUMN error_message TEXT;
UPDATE requests SET error_message = upstream_error, upstream_error = NULL WHERE state = 'rejected';
