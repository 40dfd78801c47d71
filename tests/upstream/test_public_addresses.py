"""Lookups of names, which do not hold up anything else. No name server is asked: names of this
machine, and numbers."""

from __future__ import annotations

import asyncio
import socket
from threading import Event

import pytest

from gateway.upstream import public_addresses
from gateway.upstream.public_addresses import MAX_LOOKUPS, NameLookup


async def test_addresses() -> None:
    for host in ("localhost", "127.0.0.1"):
        found = await NameLookup().resolve(host, 80, socket.AF_INET)
        assert {(each["host"], each["port"]) for each in found} == {("127.0.0.1", 80)}


@pytest.mark.parametrize("host", ["\u200b", "a" * 300, "..", "\udc80"])
async def test_what_is_no_name(host: str) -> None:
    with pytest.raises(OSError, match="cannot be looked up"):
        await NameLookup().resolve(host, 80)


async def test_lookups_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """They can be left, they are counted, and the loop's own lookups go on."""
    answered = Event()
    addresses = public_addresses._addresses

    def wait(host: str, port: int, family: socket.AddressFamily) -> object:
        answered.wait(20)
        return addresses(host, port, family)

    monkeypatch.setattr(public_addresses, "_addresses", wait)
    lookup = NameLookup()
    try:
        waiting = [asyncio.create_task(lookup.resolve("127.0.0.1")) for _ in range(MAX_LOOKUPS)]
        await asyncio.sleep(0.05)
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        with pytest.raises(OSError, match="too many"):
            await lookup.resolve("127.0.0.1")
        async with asyncio.timeout(5):
            await asyncio.get_running_loop().getaddrinfo("localhost", 80)
    finally:
        answered.set()
    async with asyncio.timeout(5):
        while lookup._running:
            await asyncio.sleep(0.01)
    assert await lookup.resolve("127.0.0.1")
