"""Conversations and their items: sizes, eviction, expiry."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.store import conversations as rows
from gateway.store.conversations import MAX_ITEMS, ROW_SIZE, Limits, pack_items, unpack_items
from gateway.store.database import Database
from gateway.store.errors import ConversationTooLarge
from gateway.store.records import Conversation

ROOMY = Limits(size=10**9, text_size=10**9)


def conversation(name: str, used: int = 1, token: str = "t") -> Conversation:
    return Conversation(token, f"conv_{name}", used, used, "{}")


def items(*ids: str, text: str = "") -> list[dict[str, Any]]:
    return [{"id": id, "text": text} for id in ids]


async def create(
    database: Database, made: Conversation, *ids: str, limits: Limits = ROOMY, text: str = ""
) -> None:
    await rows.create(database, made, pack_items(made, items(*ids, text=text)), limits)


async def sizes(database: Database, made: Conversation) -> tuple[int, int]:
    found = await rows.find(database, made.token_id, made.id)
    assert found is not None
    return found.size, found.text_size


async def test_items_keep_their_order_and_sizes_are_exact(database: Database) -> None:
    made = conversation("a")
    await create(database, made, "1", "2")
    added = pack_items(made, items("3", "4", text="x" * 1000))
    assert await rows.append(database, made, added, 7, ROOMY)
    kept = await rows.items_of(database, made)
    assert unpack_items(kept) == [*items("1", "2"), *items("3", "4", text="x" * 1000)]
    found = await rows.find(database, "t", made.id)
    assert found is not None
    assert found.updated_at == 7
    assert found.size == ROW_SIZE + sum(len(item.item) + ROW_SIZE for item in kept)
    assert found.text_size == sum(item.text_size for item in kept) > 2000
    for item in kept:
        await rows.remove_item(database, item)
        await rows.remove_item(database, item)  # again: it is gone
    assert await sizes(database, made) == (ROW_SIZE, 0)


async def test_pages(database: Database) -> None:
    made = conversation("a")
    await create(database, made, *"12345")
    second = await rows.find_item(database, made, "2")
    for descending, expected in ((False, "34"), (True, "1")):
        page = await rows.page(database, made, second, 2, descending=descending)
        assert [item.id for item in page] == list(expected)
    page = await rows.page(database, made, None, 2, descending=True)
    assert [item.id for item in page] == ["5", "4"]


async def test_a_deleted_conversation_is_not_extended(database: Database) -> None:
    made = conversation("a")
    await create(database, made, "1")
    await rows.remove(database, made)
    assert await rows.items_of(database, made) == []
    assert not await rows.append(database, made, pack_items(made, items("2")), 2, ROOMY)
    assert await rows.items_of(database, made) == []


async def test_those_used_least_recently_make_room(database: Database) -> None:
    limits = Limits(size=5 * ROW_SIZE, text_size=10**6)
    first, second, other = conversation("a"), conversation("b", 2), conversation("c", 1, "u")
    for made in (first, second, other):
        await create(database, made, limits=limits)
    await rows.append(database, first, pack_items(first, items("1")), 3, limits)
    third = conversation("d", 4)
    await create(database, third, "1", limits=limits)
    left = [each for each in (first, second, third) if await rows.find(database, "t", each.id)]
    assert left == [first, third]  # the second was used before the first
    assert await rows.find(database, "u", other.id) is not None


@pytest.mark.parametrize(
    "limits", [Limits(size=10**6, text_size=1000), Limits(size=2 * ROW_SIZE, text_size=10**6)]
)
async def test_one_that_is_too_large(database: Database, limits: Limits) -> None:
    made = conversation("a")
    with pytest.raises(ConversationTooLarge, match="more than"):
        await create(database, made, "1", "2", text="x" * 600, limits=limits)
    assert await rows.find(database, "t", made.id) is None
    await create(database, made)
    packed = pack_items(made, items("1", "2", text="x" * 600))
    with pytest.raises(ConversationTooLarge):
        await rows.append(database, made, packed, 2, limits)
    assert await sizes(database, made) == (ROW_SIZE, 0)


async def test_too_many_items(database: Database) -> None:
    made = conversation("a")
    (item,) = pack_items(made, items("1"))
    await rows.create(database, made, [item] * MAX_ITEMS, ROOMY)
    with pytest.raises(ConversationTooLarge, match="10,000 items"):
        await rows.append(database, made, [item], 2, ROOMY)


async def test_unused_ones_are_deleted(database: Database) -> None:
    old, new = conversation("a", 5), conversation("b", 6)
    for made in (old, new):
        await create(database, made, "1")
    assert await rows.remove_unused(database, 6) == 1
    assert await rows.remove_unused(database, 6) == 0
    assert await rows.find(database, "t", old.id) is None
    assert await rows.items_of(database, old) == []
    assert len(await rows.items_of(database, new)) == 1
