-- The replicas of a gateway, by name. `epoch` fences: each start of a replica takes a new one, and
-- what belongs to an epoch that has no row here is no longer its own. Times are the server's clock.

CREATE SEQUENCE replica_epochs;

CREATE TABLE replicas (
    name TEXT NOT NULL PRIMARY KEY, epoch BIGINT NOT NULL UNIQUE, boot_id TEXT NOT NULL UNIQUE,
    state_id TEXT NOT NULL, state TEXT NOT NULL, address TEXT NOT NULL, version TEXT NOT NULL,
    schema INTEGER NOT NULL, config_hash TEXT NOT NULL, started_at BIGINT NOT NULL,
    heartbeat_at BIGINT NOT NULL, expiry_us BIGINT NOT NULL, details TEXT DEFAULT '{{}}' NOT NULL
);
