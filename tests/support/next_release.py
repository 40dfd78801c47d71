"""The next release: this code with one more migration, for tests of rolling upgrades.

    python -m tests.support.next_release serve --config FILE

takes the arguments of `gateway`. NEXT_RELEASE in the environment says what it does: `compatible`
(the default) adds columns and an index, with which the present release goes on working;
`incompatible` states that it does not.
"""

from __future__ import annotations

import os
from typing import Final

from gateway.store import migrations

VARIABLE: Final = "NEXT_RELEASE"

NAME: Final = f"{len(migrations.NAMES) + 1:03}_next_release"

_COLUMNS: Final = """
ALTER TABLE requests ADD COLUMN next_release BIGINT DEFAULT 0 NOT NULL;
ALTER TABLE tokens ADD COLUMN next_release TEXT;
ALTER TABLE settings ADD COLUMN next_release TEXT;
CREATE INDEX attempts_next_release ON attempts (next_release);
"""

COMPATIBLE: Final = (
    f"-- compatible with: {len(migrations.NAMES)}\n"
    "ALTER TABLE attempts ADD COLUMN next_release TEXT;\n"
    f"{_COLUMNS}"
)
INCOMPATIBLE: Final = f"ALTER TABLE attempts ADD COLUMN next_release TEXT;\n{_COLUMNS}"


def become(migration: str = COMPATIBLE) -> None:
    """From now on this process is the next release: before the database's module is imported."""
    before, count = migrations.migrations_for, len(migrations.NAMES)

    def with_next(dialect: str) -> tuple[str, ...]:
        return (*before(dialect)[:count], migration)

    migrations.migrations_for = with_next
    migrations.NAMES = (*migrations.NAMES, NAME)  # type: ignore[misc]
    migrations.MIGRATIONS = with_next("sqlite")  # type: ignore[misc]


if __name__ == "__main__":
    is_compatible = os.environ.get(VARIABLE, "compatible") == "compatible"
    become(COMPATIBLE if is_compatible else INCOMPATIBLE)
    from gateway.cli import main

    main(prog_name="gateway")
