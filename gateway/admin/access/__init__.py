"""Who has access to console and admin API: admins, tokens, sessions, permissions, the audit log."""
