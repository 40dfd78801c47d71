-- compatible with: 16
-- What was added to the dollars of hourly sums when their requests got other prices: budgets count
-- the sums without it, as it was charged at the time.

CREATE TABLE usage_corrections (
    hour INTEGER NOT NULL,
    token_id TEXT NOT NULL,
    group_name TEXT NOT NULL,
    model TEXT NOT NULL,
    usd_micro BIGINT NOT NULL,
    PRIMARY KEY (hour, token_id, group_name, model)
) {without_rowid};
