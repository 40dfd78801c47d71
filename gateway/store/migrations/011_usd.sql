-- Costs in US dollars, and budgets in them and for five hours and a week. The prices of older rows
-- are not known: they cost no dollars.

ALTER TABLE requests ADD COLUMN expected_usd_micro BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE requests ADD COLUMN usd_micro BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE usage_hours ADD COLUMN usd_micro BIGINT DEFAULT '0' NOT NULL;
ALTER TABLE tokens ADD COLUMN usd_micro BIGINT DEFAULT '0' NOT NULL;

ALTER TABLE tokens ADD COLUMN budget_5h BIGINT;
ALTER TABLE tokens ADD COLUMN budget_week BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_5h BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_day BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_week BIGINT;
ALTER TABLE tokens ADD COLUMN budget_usd_month BIGINT;

ALTER TABLE groups ADD COLUMN budget_5h BIGINT;
ALTER TABLE groups ADD COLUMN budget_week BIGINT;
ALTER TABLE groups ADD COLUMN budget_usd BIGINT;
ALTER TABLE groups ADD COLUMN budget_usd_5h BIGINT;
ALTER TABLE groups ADD COLUMN budget_usd_day BIGINT;
ALTER TABLE groups ADD COLUMN budget_usd_week BIGINT;
ALTER TABLE groups ADD COLUMN budget_usd_month BIGINT;
