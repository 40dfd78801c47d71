"""Ledgers with today's schema, copied from one that was migrated once in this process.

Migrating an empty file costs about 30 ms and a dozen disk flushes; a copy costs neither. Tests of
the migrations open their files themselves. With `--database=postgresql` a path stands for a
database of the tests' server (`databases`), which is a copy too.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from gateway.store.database import Database
from gateway.store.open import open_database
from tests.support.databases import database_url, on_server, place_of

_template: bytes | None = None


async def copy_ledger(path: Path) -> None:
    """Writes an empty ledger to `path`, mode 0600; one that exists is left alone."""
    global _template
    if on_server():
        database_url(path)
        return
    if path.exists():
        return
    if _template is None:
        _template = await _migrated()
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(_template)


async def open_ledger(path: Path) -> Database:
    """`open_database` of a copy, or of what is there."""
    await copy_ledger(path)
    return await open_database(place_of(path))


async def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.db"
        database = await open_database(path)
        await database.close()
        return path.read_bytes()
