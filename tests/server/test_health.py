"""Probes: no key asked, nothing told."""

from __future__ import annotations

from pathlib import Path

from tests.house import House, open_house


async def test_alive_and_ready(house: House) -> None:
    for path in ("/healthz", "/readyz"):
        async with house.http.get(path) as answer:
            assert answer.status == 200
            assert set(await answer.json()) == {"status"}
            assert "x-request-id" in answer.headers
        async with house.http.head(path) as answer:
            assert answer.status == 200


async def test_not_ready_without_channels(tmp_path: Path) -> None:
    async with open_house(tmp_path, []) as house:
        assert (await house.get("/healthz")).status == 200
        answer = await house.get("/readyz")
        assert answer.status == 503
        assert answer.headers["retry-after"] == "5"


async def test_not_ready_while_draining(house: House) -> None:
    house.daemon.runtime.draining = True
    assert (await house.get("/readyz")).status == 503
    assert (await house.get("/healthz")).status == 200
