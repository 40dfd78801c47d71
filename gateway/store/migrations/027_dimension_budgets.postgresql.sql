-- compatible with: 16
-- Daily budgets of each end user and each session of a key: a change of them is noted for other
-- replicas.

ALTER TABLE tokens ADD COLUMN budget_day_per_user BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_day_per_user BIGINT;
ALTER TABLE tokens ADD COLUMN budget_day_per_session BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_day_per_session BIGINT;

DROP TRIGGER changes_of_tokens ON tokens;

CREATE TRIGGER changes_of_tokens AFTER INSERT OR DELETE OR UPDATE OF
    name, digest, display, "group", state, revoked_at, note, expires_at, probe, models, addresses,
    user_agents, requests_per_minute, tokens_per_minute, concurrent, budget, budget_5h, budget_day,
    budget_week, budget_month, budget_usd, budget_usd_5h, budget_usd_day, budget_usd_week,
    budget_usd_month, old_digest, old_display, old_expires_at, let_run, trust,
    cost_in_usage, budget_day_per_user, budget_usd_day_per_user, budget_day_per_session,
    budget_usd_day_per_session
    ON tokens FOR EACH ROW EXECUTE FUNCTION note_change('token', 'id');
