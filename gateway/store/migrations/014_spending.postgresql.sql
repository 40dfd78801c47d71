-- What keys and groups have spent, by period, in the transactions that settle requests; and what is
-- leased of their budgets to replicas. `spent of a budget's window + all leases <= its limit`.
-- `period` is total (start 0), month, day, hour or step (five minutes); `start` is in Unix us, UTC.

CREATE TABLE spending (
    holder_kind TEXT NOT NULL, holder_id TEXT NOT NULL, period TEXT NOT NULL,
    start BIGINT NOT NULL, units BIGINT NOT NULL, usd BIGINT NOT NULL,
    PRIMARY KEY (holder_kind, holder_id, period, start)
);

-- Amounts that are not spent yet, in millionths. They end with the row of their epoch in `replicas`.
CREATE TABLE budget_leases (
    holder_kind TEXT NOT NULL, holder_id TEXT NOT NULL,
    epoch BIGINT NOT NULL REFERENCES replicas (epoch) ON DELETE CASCADE,
    units BIGINT NOT NULL, usd BIGINT NOT NULL,
    PRIMARY KEY (holder_kind, holder_id, epoch)
);

CREATE INDEX budget_leases_of_epoch ON budget_leases (epoch);
