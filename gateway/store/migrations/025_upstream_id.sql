-- compatible with: 16
-- What the upstream calls its reply, as bills name it.

ALTER TABLE requests ADD COLUMN upstream_id TEXT;
