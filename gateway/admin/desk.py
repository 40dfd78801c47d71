"""What an operator may do: mint and revoke keys, change groups, read the ledger.

Every change goes to the database first and into the registry's memory next, so it binds from the
next request on. This room must not know HTTP, nor who asks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from gateway.store import groups, keys, logs, tokens
from gateway.store.database import Database
from gateway.store.lock import DATABASE_NAME
from gateway.store.records import Attempted, ExchangeState, Group, RequestRow, Token, TokenState
from gateway.store.registry import Registry


class DeskError(Exception):
    """What the desk will not do; the message is for the operator, `code` for scripts."""

    code = "refused"


class UnknownKey(DeskError):
    code = "key_not_found"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"No key has the id {token_id}.")


class UnknownGroup(DeskError):
    """`known` are the names of the groups that exist."""

    code = "group_not_found"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no group {name}; the groups are: {', '.join(known) or 'none'}.")


class UnknownRequest(DeskError):
    code = "request_not_found"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The ledger has no request {request_id}.")


class UnknownAccount(DeskError):
    """`name` is channel/account."""

    code = "account_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The running configuration has no account {name}.")


class UnknownModel(DeskError):
    """`known` are the models that the channel has; `sent` is None where it was to be any."""

    code = "model_not_found"

    def __init__(self, channel: str, sent: str | None, known: Sequence[str]) -> None:
        what = f"no model {sent}" if sent is not None else "no model of the catalog"
        super().__init__(f"Channel {channel} has {what}; it has: {', '.join(known)}.")


class NothingToReload(DeskError):
    code = "nothing_to_reload"

    def __init__(self) -> None:
        super().__init__("No gateway that was started with a configuration file serves here.")


class GroupExists(DeskError):
    code = "group_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a group {name} already.")


class GroupInUse(DeskError):
    """Revoked keys count too: their token goes on naming the group."""

    code = "group_in_use"

    def __init__(self, name: str, users: Sequence[Token]) -> None:
        shown = ", ".join(f"{token.name} ({token.id})" for token in users[:5])
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""
        super().__init__(f"Group {name} is still named by keys: {shown}{more}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Which rows of the ledger to read: `limit` of those that match, next to the ids given.

    Newest first, always; with `after` the page is the one that follows that id most closely.
    """

    limit: int = 50
    before: str | None = None
    after: str | None = None
    token_id: str | None = None
    model: str | None = None
    state: ExchangeState | None = None
    status: int | None = None


class Desk:
    """The operations over one database and the registry that requests are checked against.

    `now` gives Unix microseconds. The caller owns the database: nobody else may write it.
    """

    def __init__(self, database: Database, registry: Registry, now: Callable[[], int]) -> None:
        self._database = database
        self._registry = registry
        self._now = now
        self._turn = asyncio.Lock()  # one change at a time: check, write and memory stay together

    async def mint_key(self, name: str, group: str) -> tuple[Token, str]:
        """A new token and its key, which exists nowhere but in this answer."""
        async with self._turn:
            self._existing_group(group)
            key = keys.mint_key()
            token = Token(
                id=f"tok_{secrets.token_hex(8)}",
                name=name,
                digest=keys.digest(key),
                display=keys.display(key),
                group=group,
                state=TokenState.ACTIVE,
                created_at=self._now(),
            )
            await tokens.add_token(self._database, token)
            self._registry.put_token(token)
        return token, key

    async def keys(self) -> list[Token]:
        """All tokens with their totals, revoked ones too, oldest first."""
        return await tokens.all_tokens(self._database)

    async def key(self, token_id: str) -> Token:
        for token in await tokens.all_tokens(self._database):
            if token.id == token_id:
                return token
        raise UnknownKey(token_id)

    async def revoke_key(self, token_id: str) -> Token:
        """The token as it is now. Revoking twice changes nothing the second time."""
        async with self._turn:
            token = await self.key(token_id)
            if token.state is TokenState.REVOKED:
                return token
            revoked_at = self._now()
            await tokens.revoke_token(self._database, token_id, revoked_at)
            token = replace(token, state=TokenState.REVOKED, revoked_at=revoked_at)
            self._registry.put_token(token)
        return token

    def groups(self) -> tuple[Group, ...]:
        return self._registry.groups()

    def group(self, name: str) -> Group:
        return self._existing_group(name)

    async def add_group(self, name: str, patterns: Sequence[str]) -> Group:
        async with self._turn:
            if self._registry.group(name):
                raise GroupExists(name)
            return await self._put(Group(name, tuple(patterns), self._now()))

    async def set_group(self, name: str, patterns: Sequence[str]) -> Group:
        async with self._turn:
            return await self._put(replace(self._existing_group(name), patterns=tuple(patterns)))

    async def remove_group(self, name: str) -> None:
        async with self._turn:
            self._existing_group(name)
            if users := [token for token in await self.keys() if token.group == name]:
                raise GroupInUse(name, users)
            await groups.remove_group(self._database, name)
            self._registry.drop_group(name)

    async def requests(self, page: Page) -> list[RequestRow]:
        return await logs.page(
            self._database,
            limit=page.limit,
            before=page.before,
            after=page.after,
            token_id=page.token_id,
            model=page.model,
            state=page.state,
            status=page.status,
        )

    async def request(self, request_id: str) -> RequestRow:
        row = await logs.get(self._database, request_id)
        if row is None:
            raise UnknownRequest(request_id)
        return row

    async def attempts(self, request_id: str) -> list[Attempted]:
        """In their order; none while the exchange is open."""
        await self.request(request_id)
        return await logs.attempts(self._database, request_id)

    def _existing_group(self, name: str) -> Group:
        group = self._registry.group(name)
        if group is None:
            raise UnknownGroup(name, [known.name for known in self._registry.groups()])
        return group

    async def _put(self, group: Group) -> Group:
        await groups.put_group(self._database, group)
        self._registry.put_group(group)
        return group


@asynccontextmanager
async def open_desk(state_dir: Path, now: Callable[[], int]) -> AsyncIterator[Desk]:
    """A desk of its own over a state directory whose lock the caller holds: for when no gateway
    runs. Raises StoreError where the database cannot be opened."""
    database = await Database.open(state_dir / DATABASE_NAME)
    try:
        yield Desk(database, await Registry.load(database), now)
    finally:
        await database.close()
