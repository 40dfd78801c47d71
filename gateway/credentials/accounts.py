"""The credentials of the accounts that have none in the configuration."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial

from gateway.config.channel import Account, Channel
from gateway.config.key_source import KeySource
from gateway.config.redaction import LogRedactor, Redactor
from gateway.config.schema import Config
from gateway.credentials.expiring import (
    AwsCredential,
    BearerCredential,
    ExpiringCredential,
    Listener,
    Timing,
)
from gateway.credentials.sigv4 import Signer
from gateway.credentials.sources import issuer
from gateway.routing.account_identity import account_identities
from gateway.routing.health import AccountRef
from gateway.runtime import Runtime, Snapshot
from gateway.upstream.client import header_of

log = logging.getLogger(__name__)

_LOG_REDACTOR = LogRedactor()
"""Removes credentials by the names of their fields."""


@asynccontextmanager
async def run_credentials(
    runtime: Runtime,
    learn: Callable[[Collection[str]], None] | None = None,
    timing: Timing | None = None,
) -> AsyncIterator[None]:
    """Provides credentials for the time of the block, also to later configurations. `learn` is told
    all secrets that are valid."""
    credentials = _Credentials(runtime, learn, timing or Timing())
    credentials.provide(runtime.current)
    runtime.prepare_snapshot = credentials.provide
    try:
        yield
    finally:
        runtime.prepare_snapshot = None
        await credentials.close()


class _Credentials:
    """The credentials by the identities of their accounts: they outlive a reload."""

    def __init__(
        self, runtime: Runtime, learn: Callable[[Collection[str]], None] | None, timing: Timing
    ) -> None:
        self._runtime, self._learn, self._timing = runtime, learn, timing
        self._known: dict[str, ExpiringCredential] = {}
        self._secrets: dict[str, tuple[str, ...]] = {}
        self._problems: dict[AccountRef, tuple[str, bool]] = {}
        self._learning = asyncio.Lock()

    def provide(self, snapshot: Snapshot) -> None:
        """Provides a snapshot with credentials. What it does not have is no longer renewed."""
        config, used = snapshot.config, set[str]()
        identities = account_identities(config)
        for channel in config.channels:
            for account in channel.accounts:
                if (source := account.source) is None:
                    continue
                ref = channel.name, account.name
                used.add(identity := identities[ref])
                credential = self._known.get(identity)
                if credential is None:
                    credential = self._make(identity, channel, account, source)
                    self._known[identity] = credential
                snapshot.upstream.use_credential(ref, credential)
                credential.start()
        for identity in self._known.keys() - used:
            self._known.pop(identity).pause()
            self._secrets.pop(identity, None)
        if self._secrets:
            snapshot.redactor = Redactor.from_config(config, self._issued())

    async def close(self) -> None:
        await asyncio.gather(*(each.close() for each in self._known.values()))

    def _make(
        self, identity: str, channel: Channel, account: Account, source: KeySource
    ) -> ExpiringCredential:
        ref = channel.name, account.name
        listener = Listener(
            partial(self._note_issued, identity),
            partial(self._note_renewed, ref),
            partial(self._note_failed, ref),
        )
        args = issuer(source), source.ttl, listener, self._timing, self._clock
        if source.aws is None:
            return BearerCredential(partial(header_of, channel, account), *args)
        service, region = source.aws.scope(channel.base_url) or ("", "")
        return AwsCredential(Signer(service, region, self._clock), *args)

    def _clock(self) -> float:
        return self._runtime.now() / 1e6

    def _issued(self) -> list[str]:
        return [secret for secrets in self._secrets.values() for secret in secrets]

    async def _note_issued(self, identity: str, secrets: tuple[str, ...]) -> None:
        """Lets logs and errors know a credential before it is sent."""
        self._secrets[identity] = secrets
        async with self._learning:
            snapshot = self._runtime.current
            redactor = await asyncio.to_thread(self._learned, snapshot.config, self._issued())
            snapshot.redactor = redactor

    def _learned(self, config: Config, secrets: list[str]) -> Redactor:
        if self._learn is not None:
            self._learn(secrets)
        return Redactor.from_config(config, secrets)

    def _note_renewed(self, ref: AccountRef) -> None:
        self._runtime.health.restore(ref)
        if self._problems.pop(ref, None) is not None:
            log.info("account %s/%s: it has a new credential", *ref)

    def _note_failed(self, ref: AccountRef, reason: str, seconds_left: float) -> None:
        reason = _LOG_REDACTOR.redact(self._runtime.current.redactor.redact_secrets(reason))
        if not seconds_left:
            self._runtime.health.reject(ref, reason, asyncio.get_running_loop().time())
        problem = reason, seconds_left > 0
        if self._problems.get(ref) != problem:  # not again for each try
            self._problems[ref] = problem
            text = "account %s/%s: no new credential: %s; the old one is valid for %d s"
            log.warning(text, *ref, reason, seconds_left)
