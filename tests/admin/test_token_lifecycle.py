"""Creating, updating, rotating and revoking tokens."""

from __future__ import annotations

import pytest

from gateway.admin import token_lifecycle
from gateway.admin.api.key_forms import ImportedKeyForm, KeySettings, apply_settings
from gateway.admin.errors import ExpiryPassed, KeyRevoked
from gateway.core.limits import UNLIMITED, Limits
from gateway.store import keys
from gateway.store.records import Group, TokenState

NOW = 1_700_000_000_000_000


def test_an_existing_key_is_imported_unchanged() -> None:
    token, key = token_lifecycle.create("a", "g", {}, NOW, "an-old-key-of-ours-4471")
    assert key == "an-old-key-of-ours-4471"
    assert token.digest == keys.digest(key)
    assert (token.name, token.group, token.created_at) == ("a", "g", NOW)
    assert key not in repr(ImportedKeyForm(name="a", key=key))


def test_an_expiry_is_in_the_future() -> None:
    for at in (0, NOW):
        with pytest.raises(ExpiryPassed):
            token_lifecycle.create("a", "g", {"expires_at": at}, NOW)
    token, _ = token_lifecycle.create("a", "g", {"expires_at": NOW + 1}, NOW)
    assert token.expires_at == NOW + 1
    later = NOW + 10
    assert (
        token_lifecycle.update(token, {"note": "expired keys change too"}, later).expires_at
        == NOW + 1
    )
    assert token_lifecycle.update(token, {"expires_at": None}, later).expires_at is None


def test_a_rotation_changes_only_the_key() -> None:
    settings: KeySettings = {"limits": {"budget": 5}, "models": ("*",)}
    token, _ = token_lifecycle.create("a", "g", settings, NOW)
    rotated, key = token_lifecycle.rotate(token, 7, NOW)
    assert (rotated.digest, rotated.display) == (keys.digest(key), keys.display(key))
    assert (rotated.old_digest, rotated.old_display) == (token.digest, token.display)
    assert rotated.old_expires_at == NOW + 7
    assert (rotated.id, rotated.limits, rotated.models) == (token.id, token.limits, token.models)
    at_once, _ = token_lifecycle.rotate(rotated, 0, NOW)
    assert (at_once.old_digest, at_once.old_display, at_once.old_expires_at) == (None, None, None)


def test_the_old_key_expires_with_its_token() -> None:
    token, _ = token_lifecycle.create("a", "g", {"expires_at": NOW + 5}, NOW)
    for overlap, until in ((3, NOW + 3), (7, NOW + 5)):
        assert token_lifecycle.rotate(token, overlap, NOW)[0].old_expires_at == until
    expired, _ = token_lifecycle.rotate(token, 7, NOW + 5)
    assert (expired.old_digest, expired.old_expires_at) == (None, None)


def test_a_revocation_is_final() -> None:
    token, _ = token_lifecycle.create("a", "g", {}, NOW)
    gone = token_lifecycle.revoke(token, NOW + 1, let_run=False)
    assert (gone.state, gone.revoked_at) == (TokenState.REVOKED, NOW + 1)
    with pytest.raises(KeyRevoked):
        token_lifecycle.update(gone, {"state": TokenState.ACTIVE}, NOW)
    with pytest.raises(KeyRevoked):
        token_lifecycle.rotate(gone, 0, NOW)


def test_limits_change_independently() -> None:
    group = Group("g", ("*",), NOW, limits=Limits(concurrent=1, budget=2))
    assert apply_settings(group, {"limits": {}}) == group
    changed = apply_settings(group, {"limits": {"budget": None, "budget_day": 3}})
    assert changed.limits == Limits(concurrent=1, budget_day=3)
    assert apply_settings(group, {"limits": None}).limits == UNLIMITED
