"""Who has access to console and admin API: admins, their sessions, tokens, and the audit log."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from gateway.admin.access.admin_tokens import AdminTokens
from gateway.admin.access.admins import Admins
from gateway.admin.access.audit import Audit
from gateway.admin.access.sessions import FindKey, Sessions
from gateway.store.access import all_admins, all_sessions, all_tokens, sessions_by_digest
from gateway.store.database import Reader


@dataclass(frozen=True, slots=True)
class Access:
    audit: Audit
    admins: Admins
    sessions: Sessions
    tokens: AdminTokens

    @classmethod
    async def load(
        cls, audit: Audit, now: Callable[[], int], find_key: FindKey = lambda _: None
    ) -> Access:
        """`now` gives Unix microseconds, `find_key` the active key of an id."""
        database = audit.database
        admins = Admins(audit, now, await all_admins(database))
        return cls(
            audit,
            admins,
            Sessions(audit, now, admins, await all_sessions(database), find_key),
            AdminTokens(audit, now, await all_tokens(database)),
        )

    async def reload_admins(self, database: Reader, names: Sequence[str] | None) -> None:
        """Reloads the admins after another replica has changed some; these three are for
        `fleet.changes`."""
        self.admins.replace_all(await all_admins(database))

    async def reload_tokens(self, database: Reader, ids: Sequence[str] | None) -> None:
        self.tokens.replace_all(await all_tokens(database))

    async def reload_sessions(self, database: Reader, ids: Sequence[str] | None) -> None:
        """The ids are digests as the server writes them: `\\x` and hex digits."""
        if ids is None:
            rows = await all_sessions(database)
            digests = {*self.sessions.known(), *(row.digest for row in rows)}
        else:
            digests = {bytes.fromhex(each.removeprefix("\\x")) for each in ids}
            rows = await sessions_by_digest(database, digests)
        self.sessions.replace(digests, rows)

    async def close(self) -> None:
        """Waits for a running password check."""
        await self.admins.close()
        await self.audit.close()
