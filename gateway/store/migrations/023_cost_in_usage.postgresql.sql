-- compatible with: 16
-- Whether the replies of a key state their cost in their usage: a change of it is noted for
-- other replicas.

ALTER TABLE tokens ADD COLUMN cost_in_usage BOOLEAN DEFAULT {false} NOT NULL;

DROP TRIGGER changes_of_tokens ON tokens;

CREATE TRIGGER changes_of_tokens AFTER INSERT OR DELETE OR UPDATE OF
    name, digest, display, "group", state, revoked_at, note, expires_at, probe, models, addresses,
    user_agents, requests_per_minute, tokens_per_minute, concurrent, budget, budget_5h, budget_day,
    budget_week, budget_month, budget_usd, budget_usd_5h, budget_usd_day, budget_usd_week,
    budget_usd_month, old_digest, old_display, old_expires_at, let_run, trust,
    cost_in_usage
    ON tokens FOR EACH ROW EXECUTE FUNCTION note_change('token', 'id');
