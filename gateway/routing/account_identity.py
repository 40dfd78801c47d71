"""What makes an account the same one: its endpoint and its credential, not its name alone."""

from __future__ import annotations

from hashlib import blake2b
from typing import Final

from gateway.config.channel import Account, Channel
from gateway.config.schema import Config
from gateway.routing.health import AccountRef

_DIGEST_SIZE: Final = 16


def account_identities(config: Config) -> dict[AccountRef, str]:
    """Returns each account's digest of its name, endpoint and credential, which reveals none of
    them and is the same in every replica whose file has the same account."""
    return {
        (channel.name, account.name): _digest(channel, account)
        for channel in config.channels
        for account in channel.accounts
    }


def _digest(channel: Channel, account: Account) -> str:
    headers = {name: value.get_secret_value() for name, value in channel.headers.items()}
    same: tuple[object, ...] = (
        *(channel.name, account.name, channel.format.value, channel.base_url, channel.proxy),
        *(sorted(headers.items()), account.static_key),
    )
    transport = account.auth or channel.auth, dict(channel.query), channel.path
    if any(transport):  # digests of accounts without it stay those of earlier releases
        same = (*same, transport)
    if account.source is not None:
        same = (*same, account.source.model_dump_json())
    return blake2b(repr(same).encode(), digest_size=_DIGEST_SIZE).hexdigest()
