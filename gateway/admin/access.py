"""Who has access to console and admin API: admins, their sessions, tokens, and the audit log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gateway.admin.admin_tokens import AdminTokens
from gateway.admin.admins import Admins
from gateway.admin.audit import Audit
from gateway.admin.sessions import Sessions
from gateway.store.admins import all_admins, all_tokens
from gateway.store.sessions import all_sessions


@dataclass(frozen=True, slots=True)
class Access:
    audit: Audit
    admins: Admins
    sessions: Sessions
    tokens: AdminTokens

    @classmethod
    async def load(cls, audit: Audit, now: Callable[[], int]) -> Access:
        """`now` gives Unix microseconds."""
        database = audit.database
        admins = Admins(audit, now, await all_admins(database))
        return cls(
            audit,
            admins,
            Sessions(audit, now, admins, await all_sessions(database)),
            AdminTokens(audit, now, await all_tokens(database)),
        )

    async def close(self) -> None:
        """Waits for a running password check."""
        await self.admins.close()
        await self.audit.close()
