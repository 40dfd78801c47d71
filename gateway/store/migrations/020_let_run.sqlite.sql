-- compatible with: 16
-- Whether background responses of a key that was disabled or revoked may end by themselves.

ALTER TABLE tokens ADD COLUMN let_run BOOLEAN DEFAULT {false} NOT NULL;
