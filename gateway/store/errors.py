"""What the ledger refuses to do, in words for the operator. No client ever sees these.

This room must not know HTTP: a row of the error table (`gateway.errors`) is another matter.
"""

from __future__ import annotations


class StoreError(Exception):
    """The ledger cannot go on; the message says why and what to do about it."""


class NewerSchema(StoreError):
    """A later release has migrated the database; this one would damage it."""


class DamagedDatabase(StoreError):
    """The file is no database or failed its quick check. Nothing of it was changed."""


class MigrationFailed(StoreError):
    """A migration was rolled back: the database is as it was before."""


class QueryTimeout(StoreError):
    """A read went through more rows than the time for it allows: it was given up."""


class UnknownGroup(StoreError):
    """A token names a group that does not exist."""


class TokenExists(StoreError):
    """A token has that id or that key's digest already."""


class GroupInUse(StoreError):
    """A group cannot go while tokens, revoked ones included, name it."""


class StateLocked(StoreError):
    """Another process holds the state directory; `pid` is its id where it could be read."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid
