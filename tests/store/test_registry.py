"""What requests are checked against: active tokens and groups, from memory."""

from __future__ import annotations

from dataclasses import replace

from gateway.store.database import Database
from gateway.store.records import Group, TokenState
from gateway.store.registry import Registry
from gateway.store.tokens import add_token, put_group
from tests.store.sample_rows import START, token


async def test_loading_skips_revoked_tokens(database: Database) -> None:
    kept, gone = token(1), token(2)
    await put_group(database, Group("team", ("beta-*",), START))
    gone = replace(gone, state=TokenState.REVOKED, revoked_at=START + 9)
    for each in (kept, gone):
        await add_token(database, each)
    registry = await Registry.load(database)
    assert registry.find(kept.digest) == kept
    assert registry.find(gone.digest) is None
    assert [group.name for group in registry.groups()] == ["default", "team"]


def test_a_revoked_token_is_removed() -> None:
    known = token()
    registry = Registry()
    assert registry.find(known.digest) is None
    registry.put_token(known)
    assert registry.find(known.digest) is known
    registry.put_token(replace(known, state=TokenState.REVOKED))
    registry.put_token(replace(known, state=TokenState.REVOKED))
    assert registry.find(known.digest) is None


def test_a_disabled_token_is_not_found_until_enabled() -> None:
    known = token()
    registry = Registry([replace(known, state=TokenState.DISABLED)])
    assert registry.find(known.digest) is registry.token(known.id) is None
    registry.put_token(known)
    assert registry.find(known.digest) is registry.token(known.id) is known


def test_a_rotated_key_finds_its_token() -> None:
    known = token()
    registry = Registry([known])
    rotated = replace(known, digest=b"n" * 32, old_digest=known.digest)
    registry.put_token(rotated)
    assert registry.find(rotated.digest) is registry.find(known.digest) is rotated
    assert registry.token(known.id) is rotated


def test_a_lent_key_finds_the_token_for_a_block() -> None:
    known = token()
    registry = Registry([known])
    with registry.lent(known.id, b"lent"):
        assert registry.find(b"lent") is registry.find(known.digest) is known
        assert registry.is_lent(known.id)
        registry.put_token(replace(known, name="changed meanwhile"))
    assert registry.find(b"lent") is None
    assert not registry.is_lent(known.id)
    assert registry.find(known.digest) is not None


def test_replaced_keys_find_no_token() -> None:
    known = token()
    first, second, third = known.digest, b"n" * 32, b"m" * 32
    registry = Registry([replace(known, digest=second, old_digest=first)])
    registry.put_token(replace(known, digest=third, old_digest=second))
    assert registry.find(first) is None
    assert registry.find(second) is registry.find(third) is not None
    registry.put_token(replace(known, digest=third))
    assert registry.find(second) is None
    registry.put_token(replace(known, digest=third, state=TokenState.REVOKED))
    assert registry.find(third) is registry.token(known.id) is None


def test_only_group_changes_increase_the_version() -> None:
    registry = Registry()
    registry.put_token(token())
    assert registry.version == 0
    registry.put_group(Group("team", ("*",), START))
    registry.put_group(Group("team", ("beta-*",), START))
    group = registry.group("team")
    assert group is not None
    assert group.patterns == ("beta-*",)
    registry.remove_group("team")
    assert registry.group("team") is None
    assert registry.version == 3
