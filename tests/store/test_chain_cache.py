"""The cache of chains: bounded, the newest stay, and a key makes room with its own first."""

from __future__ import annotations

import pytest

from gateway.store import chain_cache
from gateway.store.chain_cache import ChainCache
from gateway.store.records import StoredResponse


def reply(
    id: str, previous: str | None = None, *, token_id: str = "a", size: int = 0, **changes: str
) -> StoredResponse:
    return StoredResponse(
        token_id=token_id,
        id=id,
        format="responses",
        previous_id=previous,
        root_id=id,
        request_id=f"req_{id}",
        model="m",
        status=changes.get("status", "completed"),
        created_at=0,
        expires_at=0,
        request=b"x" * size,
        events=b"data",
    )


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chain_cache, "MAX_CACHED", 10 * 1024)


def test_a_chain_grows_with_the_reply_that_continues_it() -> None:
    cache = ChainCache()
    cache.put([reply("1")])
    cache.extend(reply("2", "1"))
    cache.extend(reply("4", "3"))
    chain = cache.find(("a", "2"))
    assert chain is not None
    assert [each.id for each in chain] == ["1", "2"]
    assert chain[-1].events is None  # they are large
    assert cache.find(("b", "2")) is None
    assert cache.find(("a", "4")) is None


def test_the_key_that_adds_makes_room() -> None:
    cache = ChainCache()
    cache.put([reply("first", token_id="b")])
    for number in range(30):
        cache.put([reply(str(number))])
    assert cache.find(("b", "first")) is not None
    assert [number for number in range(30) if cache.find(("a", str(number)))] == list(range(21, 30))
    cache.put([reply("other", token_id="c")])  # has none of its own: the one unused for longest
    assert cache.find(("c", "other")) is not None
    assert cache.find(("b", "first")) is None


def test_a_chain_that_is_too_large_is_left_out() -> None:
    cache = ChainCache()
    cache.put([reply("large", size=3 * 1024)])
    assert cache.find(("a", "large")) is None


def test_a_reply_that_has_not_ended_is_left_out() -> None:
    cache = ChainCache()
    cache.put([reply("1"), reply("2", "1", status="in_progress")])
    assert cache.find(("a", "2")) is None
