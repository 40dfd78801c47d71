"""Operations on keys and groups, and reads of the request log and of usage.

A change goes to the database first and then into the registry in memory, so that it applies from
the next request on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from typing import Final, Generic, TypeVar, Unpack

from gateway.admin import token_lifecycle
from gateway.admin.access.audit import Audit
from gateway.admin.api.key_forms import (
    GroupSettings,
    ImportedKeyForm,
    KeyChanges,
    KeySettings,
    apply_settings,
    key_label,
    record_fields,
)
from gateway.admin.errors import (
    MAX_LISTED_USERS,
    ExpiryPassed,
    FormError,
    GroupExists,
    GroupInUse,
    ImportRejected,
    ImportRowError,
    UnknownGroup,
    UnknownKey,
    UnknownRequest,
)
from gateway.admission.budgets import (
    budget_holders,
    dimension_limits,
    load_budgets,
    load_dimension_budgets,
)
from gateway.quota.limits import BudgetStatus, Quota
from gateway.store import keys, tokens
from gateway.store.database import Database
from gateway.store.log import integrity, overview, pages, search
from gateway.store.log.pages import NO_FILTER, LogFilter
from gateway.store.log.search import LogPage
from gateway.store.records import AttemptRow, Group, RequestRow, SearchRow, Token
from gateway.store.registry import Registry


class AdminOperations:
    """`now` gives Unix microseconds, `boot_id` is that of the recorder, `quota` and `refusal` (of
    keys, `Permit.refusal`) are those of the gateway, if one is running. The caller owns the
    database, and no other process may write it."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        now: Callable[[], int],
        *,
        boot_id: str | None = None,
        quota: Quota | None = None,
        refusal: Callable[[Token], str | None] = lambda _: None,
    ) -> None:
        self.database = database
        self.audit = Audit(database, now)
        self._quota = quota
        self.refusal = refusal
        self.boot_id = boot_id
        self._registry = registry
        self.now = now
        self._overviews = CoalescingCache[tuple[int, int], overview.Overview](
            lambda span: overview.overview(database, *span)
        )
        self._lock = asyncio.Lock()  # one change at a time: check, database and memory

    async def list_budgets(self) -> Iterator[BudgetStatus]:
        """Yields the budgets of active keys and groups; without a gateway, as the next one will
        find them."""
        quota = self._quota
        if quota is None:
            quota = Quota()
            await load_budgets(quota, self.database)
        return quota.budget_statuses(budget_holders(self._registry), self.now())

    async def create_key(
        self, name: str, group: str, **settings: Unpack[KeySettings]
    ) -> tuple[Token, str]:
        """A new token and its key, which is stored nowhere."""
        async with self._lock:
            self.get_group(group)
            token, key = token_lifecycle.create(name, group, settings, self.now())
            after = record_fields(token)
            await tokens.add_token(
                self.audit.change("key.create", key_label(token), after=after), token
            )
            self._registry.put_token(token)
        return token, key

    async def import_keys(
        self, forms: Sequence[ImportedKeyForm], *, dry_run: bool = False
    ) -> list[tuple[Token, str]]:
        """Creates all keys or none; a dry run only checks them. Raises ImportRejected."""
        async with self._lock:
            if errors := await self._import_errors(forms):
                raise ImportRejected(errors)
            if dry_run:
                return []
            now = self.now()
            # A microsecond apart, so that a list by age keeps their order.
            created = [
                token_lifecycle.create(form.name, form.group, form.settings(), now + n, form.key)
                for n, form in enumerate(forms)
            ]
            added = [token for token, _ in created]
            after = {"count": len(added), "keys": list(map(key_label, added))}
            await tokens.add_tokens(self.audit.change("key.import", after=after), added)
            for token, _ in created:
                self._registry.put_token(token)
        return created

    async def list_keys(self, named: str | None = None, limit: int | None = None) -> list[Token]:
        """Tokens with their totals, revoked ones too, oldest first: all, or those with this id or
        name; no more than `limit`."""
        return await tokens.all_tokens(self.database, named=named, limit=limit)

    async def key_names(self, ids: Collection[str | None]) -> dict[str, str]:
        """Returns the names of keys by id; those of deleted keys are missing."""
        known = {id: self._registry.token(id) for id in ids if id}
        names = {id: token.name for id, token in known.items() if token is not None}
        if inactive := [id for id in known if id not in names]:
            found = await tokens.tokens_by_id(self.database, inactive)
            names |= {token.id: token.name for token in found}
        return names

    async def keys_of_group(self, name: str, limit: int) -> tuple[list[Token], int]:
        """Returns the oldest tokens of a group, and how many it has, revoked ones too."""
        first = await tokens.all_tokens(self.database, group=name, limit=limit)
        counts = await tokens.count_by_group(self.database, with_revoked=True)
        return first, counts.get(name, 0)

    async def get_key(self, token_id: str) -> Token:
        token = await tokens.get_token(self.database, token_id)
        if token is None:
            raise UnknownKey(token_id)
        return token

    async def update_key(self, token_id: str, **changes: Unpack[KeyChanges]) -> Token:
        async with self._lock:
            before = await self.get_key(token_id)
            token = token_lifecycle.update(before, changes, self.now())
            self.get_group(token.group)
            if token == before:
                self.audit.mark()
                return token
            return await self._save_key("key.update", before, token)

    async def rotate_key(self, token_id: str, overlap_us: int) -> tuple[Token, str]:
        """The token and its new key; the current key stays valid for `overlap_us`."""
        async with self._lock:
            before = await self.get_key(token_id)
            token, key = token_lifecycle.rotate(before, overlap_us, self.now())
            return await self._save_key("key.rotate", before, token), key

    async def revoke_key(self, token_id: str, *, let_run: bool = False) -> Token:
        """Revokes a key; its background responses are cancelled, unless they may end by themselves:
        `let_run`."""
        async with self._lock:
            token = await self.get_key(token_id)
            revoked = token_lifecycle.revoke(token, self.now(), let_run=let_run)
            if token == revoked:
                self.audit.mark()
                return token
            return await self._save_key("key.revoke", token, revoked)

    def list_groups(self) -> tuple[Group, ...]:
        return self._registry.groups()

    def get_group(self, name: str) -> Group:
        group = self._registry.group(name)
        if group is None:
            raise UnknownGroup(name, [each.name for each in self._registry.groups()])
        return group

    async def create_group(
        self, name: str, patterns: Sequence[str], **settings: Unpack[GroupSettings]
    ) -> Group:
        async with self._lock:
            if self._registry.group(name):
                raise GroupExists(name)
            group = Group(name, tuple(patterns), self.now())
            return await self._save_group("group.create", None, apply_settings(group, settings))

    async def update_group(
        self, name: str, patterns: Sequence[str] | None = None, **settings: Unpack[GroupSettings]
    ) -> Group:
        async with self._lock:
            before = self.get_group(name)
            group = apply_settings(before, settings)
            if patterns is not None:
                group = replace(group, patterns=tuple(patterns))
            if group == before:
                self.audit.mark()
                return group
            return await self._save_group("group.update", before, group)

    async def delete_group(self, name: str) -> None:
        async with self._lock:
            group = self.get_group(name)
            users, count = await self.keys_of_group(name, MAX_LISTED_USERS)
            if users:
                raise GroupInUse(name, users, count)
            before = record_fields(group)
            await tokens.remove_group(self.audit.change("group.remove", name, before), name)
            self._registry.remove_group(name)

    async def list_requests(
        self,
        log_filter: LogFilter = NO_FILTER,
        *,
        limit: int = 50,
        before: str | None = None,
        after: str | None = None,
    ) -> LogPage:
        """See `gateway.store.log.search`. Raises QueryTimeout."""
        return await search.search(
            self.database, log_filter, limit=limit, before=before, after=after
        )

    async def get_request(self, request_id: str) -> RequestRow:
        row = await pages.get(self.database, request_id)
        if row is None:
            raise UnknownRequest(request_id)
        return row

    async def list_searches(self, request_id: str) -> list[SearchRow]:
        """The web searches that the gateway ran for a request."""
        await self.get_request(request_id)
        return await pages.searches(self.database, request_id)

    async def list_attempts(self, request_id: str) -> list[AttemptRow]:
        """Returns the attempts in their order; none while the exchange runs."""
        await self.get_request(request_id)
        return await pages.attempts(self.database, request_id)

    async def get_overview(self, since: int, until: int | None = None) -> overview.Overview:
        """Returns the overview from `since` to before `until` (Unix µs), by default now. It may be
        a second old."""
        until = self.now() if until is None else until
        return await self._overviews.get(overview.align_span(since, until)[:2])

    async def check_integrity(self, heads: Sequence[str] = ()) -> integrity.Report:
        return await integrity.check(self.database, boot_id=self.boot_id, heads=heads)

    async def _import_errors(self, forms: Sequence[ImportedKeyForm]) -> list[ImportRowError]:
        digests = [keys.digest(form.key) for form in forms if form.key is not None]
        owners: dict[bytes, str] = {}
        for token in await tokens.tokens_by_digest(self.database, digests):
            owners[token.digest] = f"{token.name} ({token.id})"
            if token.old_digest:
                owners[token.old_digest] = owners[token.digest]
        errors: list[ImportRowError] = []
        for index, form in enumerate(forms):
            try:
                self.get_group(form.group)
            except UnknownGroup as error:
                errors.append(ImportRowError(index, "group", str(error)))
            try:
                token_lifecycle.check_expiry(form.settings(), self.now())
            except ExpiryPassed as error:
                errors.append(ImportRowError(index, "expires_at", str(error)))
            try:
                token_lifecycle.check_trust(form)
            except FormError as error:
                for each in error.field_errors:
                    errors.append(ImportRowError(index, str(each.path[0]), each.message))
            if form.key is not None:
                digest = keys.digest(form.key)
                if owner := owners.get(digest):
                    text = f"This is already the key of {owner}."
                    errors.append(ImportRowError(index, "key", text))
                owners[digest] = f"{form.name} in the same import"
        return errors

    async def _save_key(self, action: str, before: Token, token: Token) -> Token:
        writer = self.audit.change(
            action, key_label(before), record_fields(before), record_fields(token)
        )
        stored = await tokens.update_token(writer, token, before)
        if stored is None:
            raise UnknownKey(token.id)
        if self._quota is not None and dimension_limits(stored).keys() - dimension_limits(before):
            await load_dimension_budgets(self._quota, self.database, self.now(), stored.id)
        return self._registry.put_stored(stored)

    async def _save_group(self, action: str, before: Group | None, group: Group) -> Group:
        earlier = None if before is None else record_fields(before)
        writer = self.audit.change(action, group.name, earlier, record_fields(group))
        group = await tokens.put_group(writer, group, before)
        self._registry.put_group(group)
        return group


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_CACHE_SECONDS: Final = 1.0
"""The time from the start of the computation."""


class CoalescingCache(Generic[K, V]):
    """Concurrent reads of one key share one computation, which a cancelled reader does not stop."""

    def __init__(self, compute: Callable[[K], Awaitable[V]]) -> None:
        self._compute = compute
        self._results: dict[K, tuple[float, asyncio.Future[V]]] = {}

    async def get(self, key: K) -> V:
        """A result, or an exception, that is at most a second old."""
        now = asyncio.get_running_loop().time()
        for each, (started, result) in list(self._results.items()):
            if result.done() and now - started > _CACHE_SECONDS:
                del self._results[each]
        if key not in self._results:
            self._results[key] = now, asyncio.ensure_future(self._compute(key))
        return await asyncio.shield(self._results[key][1])
