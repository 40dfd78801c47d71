"""Migration 3: limits of keys and groups, costs, and sums by the hour."""

from __future__ import annotations

from sqlalchemy import Connection

_COUNT = "BIGINT DEFAULT '0' NOT NULL"

_LIMITS = (
    *("requests_per_minute BIGINT", "tokens_per_minute BIGINT", "concurrent BIGINT"),
    *("budget BIGINT", "budget_day BIGINT", "budget_month BIGINT"),
)

_COLUMNS = {
    "tokens": (
        *(f"cost_micro {_COUNT}", "note TEXT", "expires_at BIGINT"),
        *("probe BOOLEAN DEFAULT {false} NOT NULL", "models TEXT", "addresses TEXT"),
        *("user_agents TEXT", *_LIMITS, "old_digest {binary}", "old_display TEXT"),
        *("old_expires_at BIGINT", "first_used_at BIGINT", "first_address TEXT"),
        *("first_agent TEXT", "changed_at BIGINT", "changed TEXT"),
    ),
    "groups": (
        *("multiplier TEXT DEFAULT '1' NOT NULL", *_LIMITS, "user_agents TEXT"),
        "user_agent_mode TEXT DEFAULT 'enforce' NOT NULL",
    ),
    "requests": (
        *("catalog_model TEXT", f"expected_input_tokens {_COUNT}", f"expected_micro {_COUNT}"),
        *("tariff TEXT", "notes TEXT", f"cache_write_1h_tokens {_COUNT}", f"cost_micro {_COUNT}"),
    ),
}

_HOURS = f"""
    CREATE TABLE usage_hours (
        hour INTEGER NOT NULL, token_id TEXT NOT NULL, group_name TEXT NOT NULL,
        model TEXT NOT NULL, requests {_COUNT}, errors {_COUNT}, estimated {_COUNT},
        input_tokens {_COUNT}, cache_read_tokens {_COUNT}, cache_write_tokens {_COUNT},
        cache_write_1h_tokens {_COUNT}, output_tokens {_COUNT}, reasoning_tokens {_COUNT},
        cost_micro {_COUNT}, PRIMARY KEY (hour, token_id, group_name, model)
    )
"""

_SUMS = """
    INSERT INTO usage_hours (hour, token_id, group_name, model, requests, errors, estimated,
        input_tokens, cache_read_tokens, cache_write_tokens, output_tokens, reasoning_tokens)
    SELECT started_at / 3600000000, token_id, group_name, COALESCE(catalog_model, ''), COUNT(*),
        SUM(CASE WHEN state = 'ok' THEN 0 ELSE 1 END), 0, SUM(input_tokens),
        SUM(cache_read_tokens), SUM(cache_write_tokens), SUM(output_tokens), SUM(reasoning_tokens)
    FROM requests WHERE state <> 'open' GROUP BY 1, 2, 3, 4
"""


def upgrade(connection: Connection, now: int) -> None:
    """Older rows cost nothing. Where they reached a channel, the catalog's name of the model was
    not recorded: it is taken to be the one that the client sent."""
    is_sqlite = connection.dialect.name == "sqlite"
    names = {"binary": "BLOB", "false": "0"} if is_sqlite else {"binary": "BYTEA", "false": "false"}
    for table, columns in _COLUMNS.items():
        for column in columns:
            connection.exec_driver_sql(f"ALTER TABLE {table} ADD COLUMN {column.format(**names)}")
    for statement in (
        "CREATE UNIQUE INDEX tokens_old_digest ON tokens (old_digest)",
        "UPDATE requests SET catalog_model = model WHERE channel IS NOT NULL",
        f"{_HOURS} {'WITHOUT ROWID' if is_sqlite else ''}",
        _SUMS,
    ):
        connection.exec_driver_sql(statement)
