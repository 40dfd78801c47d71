"""Creates, updates, rotates and revokes tokens. Times are Unix microseconds."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Final

from gateway.admin.api.key_forms import ImportedKeyForm, KeyChanges, KeySettings, apply_settings
from gateway.admin.errors import ExpiryPassed, FieldError, FormError, KeyRevoked
from gateway.admission.dimensions import parse_trust
from gateway.core.limits import DIMENSION_BUDGETS
from gateway.store import keys
from gateway.store.records import Token, TokenState

_UNTRUSTED: Final = "This budget needs a key that trusts {0}: trust {0} too, or remove the budget."


def create(
    name: str, group: str, settings: KeySettings, now: int, key: str | None = None
) -> tuple[Token, str]:
    """A token and its key, which is a new one unless an existing `key` is given. Raises
    ExpiryPassed, and FormError as `check_trust`."""
    check_expiry(settings, now)
    key = key or keys.generate_key()
    token = Token(
        id=f"tok_{secrets.token_hex(8)}",
        name=name,
        digest=keys.digest(key),
        display=keys.display(key),
        group=group,
        state=TokenState.ACTIVE,
        created_at=now,
    )
    token = apply_settings(token, settings)
    check_trust(token)
    return token, key


def update(token: Token, changes: KeyChanges, now: int) -> Token:
    """A new state without `let_run` lets nothing run. Raises KeyRevoked and ExpiryPassed, and
    FormError as `check_trust`."""
    if token.state is TokenState.REVOKED:
        raise KeyRevoked(token)
    check_expiry(changes, now)
    if "state" in changes:
        token = replace(token, let_run=False)
    token = apply_settings(token, changes)
    check_trust(token)
    return token


def revoke(token: Token, now: int, *, let_run: bool) -> Token:
    """A revoked token can only be told to let nothing run any more."""
    if token.state is TokenState.REVOKED:
        return replace(token, let_run=token.let_run and let_run)
    return replace(token, state=TokenState.REVOKED, revoked_at=now, let_run=let_run)


def rotate(token: Token, overlap_us: int, now: int) -> tuple[Token, str]:
    """The token with a new key. The current key stays valid for `overlap_us`, at most until the
    token expires; any earlier key is revoked immediately. Raises KeyRevoked."""
    if token.state is TokenState.REVOKED:
        raise KeyRevoked(token)
    key = keys.generate_key()
    until = now + overlap_us
    if token.expires_at is not None:
        until = min(until, token.expires_at)
    stays = until > now
    rotated = replace(
        token,
        digest=keys.digest(key),
        display=keys.display(key),
        old_digest=token.digest if stays else None,
        old_display=token.display if stays else None,
        old_expires_at=until if stays else None,
    )
    return rotated, key


def check_expiry(settings: KeySettings | KeyChanges, now: int) -> None:
    """Raises ExpiryPassed."""
    expires_at = settings.get("expires_at")
    if expires_at is not None and expires_at <= now:
        raise ExpiryPassed


def check_trust(key: Token | ImportedKeyForm) -> None:
    """Raises FormError for budgets of a dimension that the key does not trust."""
    trusted = {parse_trust(item)[0] for item in key.trust or ()}
    errors = [
        FieldError((name,), _UNTRUSTED.format(dimension.replace("_", "-")))
        for name, (dimension, _) in DIMENSION_BUDGETS.items()
        if getattr(key, name) is not None and dimension not in trusted
    ]
    if errors:
        raise FormError(*errors)
