-- compatible with: 16
-- Whom a request is for, as far as its key is set to trust what the request says of it: a change of
-- that setting is noted for other replicas, so it gets its collation before a trigger names it.

ALTER TABLE tokens ADD COLUMN trust TEXT COLLATE "C";
ALTER TABLE requests ADD COLUMN end_user TEXT COLLATE "C";
ALTER TABLE requests ADD COLUMN session TEXT COLLATE "C";
ALTER TABLE requests ADD COLUMN agent TEXT COLLATE "C";
ALTER TABLE requests ADD COLUMN tag TEXT COLLATE "C";

DROP TRIGGER changes_of_tokens ON tokens;

CREATE TRIGGER changes_of_tokens AFTER INSERT OR DELETE OR UPDATE OF
    name, digest, display, "group", state, revoked_at, note, expires_at, probe, models, addresses,
    user_agents, requests_per_minute, tokens_per_minute, concurrent, budget, budget_5h, budget_day,
    budget_week, budget_month, budget_usd, budget_usd_5h, budget_usd_day, budget_usd_week,
    budget_usd_month, old_digest, old_display, old_expires_at, let_run, trust
    ON tokens FOR EACH ROW EXECUTE FUNCTION note_change('token', 'id');
