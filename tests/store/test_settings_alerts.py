"""What alerts keep over a restart."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import update

from gateway.store.schema import settings
from gateway.store.settings import load_alerts, save_alerts
from tests.support.ledger_template import open_ledger


async def test_the_latest_state_is_kept(tmp_path: Path) -> None:
    database = await open_ledger(tmp_path / "a.db")
    try:
        assert await load_alerts(database) == {}
        await save_alerts(database, {"firing": [1]})
        await save_alerts(database, {"firing": [], "waiting": {"é": []}})
        assert await load_alerts(database) == {"firing": [], "waiting": {"é": []}}
        for text in ("{", "[1]"):
            broken = update(settings).where(settings.c.name == "alerts").values(value=text)
            await database.write(lambda connection, broken=broken: connection.execute(broken))
            assert await load_alerts(database) == {}
    finally:
        await database.close()
