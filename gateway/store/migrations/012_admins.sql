-- Admins by name, tokens of the admin API, and the audit log. The console's one password becomes that
-- of the admin "admin"; its sessions end.

CREATE TABLE admins (
    name TEXT NOT NULL PRIMARY KEY, role TEXT NOT NULL, password_digest TEXT NOT NULL,
    epoch TEXT NOT NULL, created_at BIGINT NOT NULL, password_at BIGINT NOT NULL
);

INSERT INTO admins (name, role, password_digest, epoch, created_at, password_at)
SELECT 'admin', 'admin', value, 'migrated', {now}, {now} FROM settings
WHERE name = 'admin_password';

DELETE FROM settings WHERE name = 'admin_password';

DROP TABLE sessions;

CREATE TABLE sessions (
    digest {binary} NOT NULL PRIMARY KEY, created_at BIGINT NOT NULL, seen_at BIGINT NOT NULL,
    address TEXT NOT NULL, agent TEXT NOT NULL, admin TEXT NOT NULL, epoch TEXT NOT NULL
);

CREATE TABLE admin_tokens (
    id TEXT NOT NULL PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest {binary} NOT NULL UNIQUE,
    display TEXT NOT NULL, scope TEXT NOT NULL, created_at BIGINT NOT NULL,
    created_by TEXT NOT NULL, expires_at BIGINT, last_used_at BIGINT, last_address TEXT
);

CREATE TABLE audit_log (
    id TEXT NOT NULL PRIMARY KEY, at BIGINT NOT NULL, actor TEXT NOT NULL, address TEXT,
    action TEXT NOT NULL, target TEXT, before TEXT, after TEXT,
    times BIGINT DEFAULT '1' NOT NULL
) {without_rowid};
