"""A row of the audit log, added to a file without a gateway."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.store.audit import AuditFilter, add_to_file, page
from gateway.store.errors import StoreError
from gateway.store.migrations import MIGRATIONS, migrate
from gateway.store.open import open_database
from gateway.store.records import AuditRow
from gateway.store.sqlite.database import SqliteDatabase

pytestmark = pytest.mark.sqlite

ROW = AuditRow("aud_1", 1, "command: 0/root", None, "db.restore", "/a 'file'", None, '{"a":1}', 3)


async def test_a_row_as_the_gateway_writes_it(path: Path) -> None:
    await (await open_database(path)).close()
    assert add_to_file(path, ROW)
    database = await open_database(path)
    assert await page(database, AuditFilter()) == [ROW]
    await database.close()


async def test_an_older_schema_is_left_alone(path: Path) -> None:
    writer = SqliteDatabase(path)
    await migrate(writer, 1, MIGRATIONS[:10])
    await writer.close()
    before = path.read_bytes()
    assert not add_to_file(path, ROW)
    assert path.read_bytes() == before


def test_a_file_that_is_no_database(path: Path) -> None:
    path.write_text("no database " * 100)
    with pytest.raises(StoreError, match="cannot be written"):
        add_to_file(path, ROW)
