"""What an operator may do: mint, change and revoke keys, change groups, read the ledger.

Every change goes to the database first and into the registry's memory next, so it binds from the
next request on. This room must not know HTTP, nor who asks.

One answer for all who ask the same within a moment: a page and its pictures do.

It must not know what is asked, nor what it costs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeVar, Unpack

from gateway.admin import token_lifecycle
from gateway.admin.errors import (
    ExpiryPassed,
    GroupExists,
    GroupInUse,
    ImportRejected,
    ImportRowError,
    UnknownGroup,
    UnknownKey,
    UnknownRequest,
)
from gateway.admin.key_settings import (
    GroupSettings,
    KeyChanges,
    KeyRequest,
    KeySettings,
    merge_limits,
)
from gateway.store import integrity, keys, logs, overview, tokens
from gateway.store import usage as sums
from gateway.store.database import Database
from gateway.store.records import AttemptRow, Group, RequestRow, Token, TokenState
from gateway.store.registry import Registry


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage(logs.LogFilter):
    """Which rows of the ledger to read: `limit` of those wanted, next to the ids given.

    Newest first, always; with `after` the page is the one that follows that id most closely.
    """

    limit: int = 50
    before: str | None = None
    after: str | None = None


class AdminOperations:
    """The operations over one database and the registry that requests are checked against.

    `now` gives Unix microseconds, `boot_id` is that of the recorder, where one runs. The caller
    owns the database: nobody else may write it.
    """

    def __init__(
        self,
        database: Database,
        registry: Registry,
        now: Callable[[], int],
        *,
        boot_id: str | None = None,
    ) -> None:
        self._database = database
        self._registry = registry
        self._now = now
        self._boot_id = boot_id
        self._overviews = CoalescingCache[tuple[int, int], overview.Overview](
            lambda span: overview.overview(database, *span)
        )
        self._lock = asyncio.Lock()  # one change at a time: check, write and memory stay together

    async def create_key(
        self, name: str, group: str, **settings: Unpack[KeySettings]
    ) -> tuple[Token, str]:
        """A new token and its key, which exists nowhere but in this answer."""
        async with self._lock:
            self._require_group(group)
            token, key = token_lifecycle.create(
                KeyRequest(name, group, settings=settings), self._now()
            )
            await tokens.add_token(self._database, token)
            self._registry.put_token(token)
        return token, key

    async def import_keys(
        self, key_requests: Sequence[KeyRequest], *, dry_run: bool = False
    ) -> list[tuple[Token, str]]:
        """All of them or, where any cannot be made, none: raises ImportRefused with every reason.
        A dry run finds the reasons and makes none."""
        async with self._lock:
            digests = [keys.digest(wish.key) for wish in key_requests if wish.key is not None]
            if slips := self._validate_import(
                key_requests, await tokens.tokens_by_digest(self._database, digests)
            ):
                raise ImportRejected(slips)
            if dry_run:
                return []
            now = self._now()
            # A microsecond apart: whoever lists them by their age has them in their order here.
            made = [
                token_lifecycle.create(wish, now + place) for place, wish in enumerate(key_requests)
            ]
            await tokens.add_tokens(self._database, [token for token, _ in made])
            for token, _ in made:
                self._registry.put_token(token)
        return made

    async def list_keys(self) -> list[Token]:
        """All tokens with their totals, revoked ones too, oldest first."""
        return await tokens.all_tokens(self._database)

    async def get_key(self, token_id: str) -> Token:
        token = await tokens.get_token(self._database, token_id)
        if token is None:
            raise UnknownKey(token_id)
        return token

    async def update_key(self, token_id: str, **changes: Unpack[KeyChanges]) -> Token:
        """The token as it is then; what is not named stays."""
        async with self._lock:
            token = token_lifecycle.update(await self.get_key(token_id), changes, self._now())
            self._require_group(token.group)
            return await self._save_key(token)

    async def rotate_key(self, token_id: str, overlap_us: int) -> tuple[Token, str]:
        """The token and its new key; the key of before stays good for `overlap_us` more."""
        async with self._lock:
            token, key = token_lifecycle.rotate(
                await self.get_key(token_id), overlap_us, self._now()
            )
            return await self._save_key(token), key

    async def revoke_key(self, token_id: str) -> Token:
        """The token as it is now. Revoking twice changes nothing the second time."""
        async with self._lock:
            token = await self.get_key(token_id)
            if token.state is TokenState.REVOKED:
                return token
            return await self._save_key(token_lifecycle.revoke(token, self._now()))

    def list_groups(self) -> tuple[Group, ...]:
        return self._registry.groups()

    def get_group(self, name: str) -> Group:
        return self._require_group(name)

    async def create_group(
        self, name: str, patterns: Sequence[str], **settings: Unpack[GroupSettings]
    ) -> Group:
        async with self._lock:
            if self._registry.group(name):
                raise GroupExists(name)
            return await self._save_group(Group(name, tuple(patterns), self._now()), settings)

    async def update_group(
        self, name: str, patterns: Sequence[str] | None = None, **settings: Unpack[GroupSettings]
    ) -> Group:
        """The group as it is then; what is not named stays."""
        async with self._lock:
            group = self._require_group(name)
            if patterns is not None:
                group = replace(group, patterns=tuple(patterns))
            return await self._save_group(group, settings)

    async def delete_group(self, name: str) -> None:
        async with self._lock:
            self._require_group(name)
            if users := [token for token in await self.list_keys() if token.group == name]:
                raise GroupInUse(name, users)
            await tokens.remove_group(self._database, name)
            self._registry.remove_group(name)

    async def list_requests(self, page: LogPage) -> list[RequestRow]:
        """As all that reads many rows, raises TooMuchToRead where it takes too long."""
        return await logs.page(
            self._database, page, limit=page.limit, before=page.before, after=page.after
        )

    async def tail(
        self,
        log_filter: logs.LogFilter,
        *,
        after: str | None,
        watched: Sequence[str] = (),
        limit: int = 200,
    ) -> list[RequestRow]:
        """What is new since `after`, and those watched that have ended: see `logs.tail`."""
        return await logs.tail(
            self._database, log_filter, after=after, running_ids=watched, limit=limit
        )

    async def get_requests(
        self, ids: Sequence[str], log_filter: logs.LogFilter
    ) -> dict[str, RequestRow]:
        """The rows of these ids that are wanted, by their ids."""
        return await logs.get_many(self._database, ids, log_filter)

    async def ids_ended_before(self, limit: int) -> list[str]:
        """What ended before this run of the gateway, the newest: see `logs.ended_before`."""
        return await logs.ended_in_earlier_runs(self._database, self._boot_id, limit)

    def export_requests(self, log_filter: logs.LogFilter) -> AsyncIterator[list[RequestRow]]:
        """All rows wanted, some at a time, newest first."""
        return logs.export(self._database, log_filter)

    async def get_overview(self, since: int, until: int | None = None) -> overview.Overview:
        """From `since` to before `until` (Unix µs), the present time where it is None. It may be a
        moment old."""
        until = self._now() if until is None else until
        return await self._overviews.get(overview.align_span(since, until)[:2])

    async def get_request(self, request_id: str) -> RequestRow:
        row = await logs.get(self._database, request_id)
        if row is None:
            raise UnknownRequest(request_id)
        return row

    async def list_attempts(self, request_id: str) -> list[AttemptRow]:
        """In their order; none while the exchange is open."""
        await self.get_request(request_id)
        return await logs.attempts(self._database, request_id)

    async def get_usage(
        self,
        by: Sequence[sums.Dimension],
        *,
        since: int | None = None,
        until: int | None = None,
        token_id: str | None = None,
        group: str | None = None,
        model: str | None = None,
    ) -> list[sums.UsageRow]:
        """What was used, in whole Unix hours: from `since` on, before `until`."""
        return await sums.usage(
            self._database,
            by,
            since=since,
            until=until,
            token_id=token_id,
            group=group,
            model=model,
        )

    async def check_integrity(self) -> integrity.Report:
        """Whether rows, hours and totals agree."""
        return await integrity.check(self._database, boot_id=self._boot_id)

    def _require_group(self, name: str) -> Group:
        group = self._registry.group(name)
        if group is None:
            raise self._unknown_group(name)
        return group

    def _unknown_group(self, name: str) -> UnknownGroup:
        return UnknownGroup(name, [known.name for known in self._registry.groups()])

    def _validate_import(
        self, key_requests: Sequence[KeyRequest], owned: Sequence[Token]
    ) -> list[ImportRowError]:
        slips: list[ImportRowError] = []
        owners = {token.digest: f"{token.name} ({token.id})" for token in owned}
        owners |= {each.old_digest: owners[each.digest] for each in owned if each.old_digest}
        for index, wish in enumerate(key_requests):
            if self._registry.group(wish.group) is None:
                slips.append(ImportRowError(index, "group", str(self._unknown_group(wish.group))))
            try:
                token_lifecycle.check_expiry(wish.settings, self._now())
            except ExpiryPassed as passed:
                slips.append(ImportRowError(index, "expires_at", str(passed)))
            if wish.key is not None:
                digest = keys.digest(wish.key)
                if owner := owners.get(digest):
                    slips.append(
                        ImportRowError(index, "key", f"This is the key of {owner} already.")
                    )
                owners[digest] = f"{wish.name} in the same import"
        return slips

    async def _save_key(self, token: Token) -> Token:
        await tokens.update_token(self._database, token)
        if (known := self._registry.token(token.id)) is not None:
            token = _with_origin(token, known)
        self._registry.put_token(token)
        return token

    async def _save_group(self, group: Group, settings: GroupSettings) -> Group:
        fields: dict[str, Any] = {**settings}
        if "limits" in fields:
            fields["limits"] = merge_limits(group.limits, fields["limits"])
        group = replace(group, **fields)
        await tokens.put_group(self._database, group)
        self._registry.put_group(group)
        return group


def _with_origin(token: Token, known: Token) -> Token:
    """The token with what memory says of who came: it knew while the database was being written."""
    return replace(
        token,
        first_used_at=known.first_used_at,
        first_address=known.first_address,
        first_agent=known.first_agent,
        changed_at=known.changed_at,
        changed=known.changed,
    )


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CACHE_SECONDS: Final = 1.0
"""Seconds, from when it was asked for."""


class CoalescingCache(Generic[K, V]):
    """`make` gives the answer to what is asked. Who asks while another waits for the same waits
    with them; whoever leaves meanwhile takes it from nobody."""

    def __init__(self, make: Callable[[K], Awaitable[V]]) -> None:
        self._make = make
        self._answers: dict[K, tuple[float, asyncio.Future[V]]] = {}

    async def get(self, key: K) -> V:
        """The answer, or the exception, that is at most a moment old."""
        now = asyncio.get_running_loop().time()
        for each, (at, answer) in list(self._answers.items()):
            if answer.done() and now - at > _CACHE_SECONDS:
                del self._answers[each]
        if key not in self._answers:
            self._answers[key] = now, asyncio.ensure_future(self._make(key))
        return await asyncio.shield(self._answers[key][1])
