"""What becomes of a token: made, changed, rotated, revoked. Pure: the clock is an argument.

It must not know where tokens are kept, nor whether the group that one names exists.
Times are Unix microseconds.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import Any

from gateway.admin.errors import ExpiryPassed, KeyRevoked
from gateway.admin.key_settings import KeyChanges, KeyRequest, KeySettings, merge_limits
from gateway.store import keys
from gateway.store.records import Token, TokenState


def create(key_request: KeyRequest, now: int) -> tuple[Token, str]:
    """A new token and its key. Raises ExpiryPassed."""
    key = keys.mint_key() if key_request.key is None else key_request.key
    token = Token(
        id=f"tok_{secrets.token_hex(8)}",
        name=key_request.name,
        digest=keys.digest(key),
        display=keys.display(key),
        group=key_request.group,
        state=TokenState.ACTIVE,
        created_at=now,
    )
    return _with_settings(token, key_request.settings, now), key


def update(token: Token, changes: KeyChanges, now: int) -> Token:
    """Raises KeyRevoked and ExpiryPassed."""
    if token.state is TokenState.REVOKED:
        raise KeyRevoked(token)
    return _with_settings(token, changes, now)


def revoke(token: Token, now: int) -> Token:
    """Neither its key nor the one before opens it again."""
    return replace(token, state=TokenState.REVOKED, revoked_at=now)


def rotate(token: Token, overlap_us: int, now: int) -> tuple[Token, str]:
    """The token under a new key. The key of now opens it for `overlap_us` longer, but never longer
    than the token lives as things stand; one before that no more. Raises KeyRevoked."""
    if token.state is TokenState.REVOKED:
        raise KeyRevoked(token)
    key = keys.mint_key()
    until = now + overlap_us
    if token.expires_at is not None:
        until = min(until, token.expires_at)
    stays = until > now
    successor = replace(
        token,
        digest=keys.digest(key),
        display=keys.display(key),
        old_digest=token.digest if stays else None,
        old_display=token.display if stays else None,
        old_expires_at=until if stays else None,
    )
    return successor, key


def check_expiry(settings: KeySettings | KeyChanges, now: int) -> None:
    """Raises ExpiryPassed."""
    expires_at = settings.get("expires_at")
    if expires_at is not None and expires_at <= now:
        raise ExpiryPassed


def _with_settings(token: Token, settings: KeySettings | KeyChanges, now: int) -> Token:
    check_expiry(settings, now)
    fields: dict[str, Any] = {**settings}
    if "limits" in fields:
        fields["limits"] = merge_limits(token.limits, fields["limits"])
    return replace(token, **fields)
