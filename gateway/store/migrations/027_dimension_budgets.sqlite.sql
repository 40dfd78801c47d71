-- compatible with: 16
-- Daily budgets of each end user and each session of a key.

ALTER TABLE tokens ADD COLUMN budget_day_per_user BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_day_per_user BIGINT;
ALTER TABLE tokens ADD COLUMN budget_day_per_session BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_day_per_session BIGINT;
