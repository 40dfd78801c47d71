-- compatible with: 16
-- Whether the replies of a key state their cost in their usage.

ALTER TABLE tokens ADD COLUMN cost_in_usage BOOLEAN DEFAULT {false} NOT NULL;
