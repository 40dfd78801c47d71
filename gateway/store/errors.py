"""Errors of the ledger, with messages for the operator; clients never see them."""

from __future__ import annotations


class StoreError(Exception):
    """The message says what is wrong and what to do about it."""


class NewerSchema(StoreError):
    """A later release has migrated the database; this one would damage it."""


class DamagedDatabase(StoreError):
    """The file is no database or failed its quick check. It was not changed."""


class RowsLost(StoreError):
    """The database could not be written until the recorder had to end."""


class InvalidRows(StoreError):
    """The database refuses at least one of the rows as it is, and will every time."""


class NotKept(StoreError):
    """A spool without room while the database cannot be written."""


class RowsChanged(StoreError):
    """Another transaction has changed some of the rows: their states have to be looked up."""


class MigrationFailed(StoreError):
    """A migration was rolled back: the database is unchanged."""


class ServerUnavailable(StoreError):
    """A server cannot be reached or used at the moment: trying again later can succeed as it is."""


class DatabaseUnavailable(ServerUnavailable):
    """The database server does not answer, or not in time. The message has no address."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"The database cannot be used now: {reason}.")


class QueryTimeout(StoreError):
    """A read took longer than its deadline, in seconds, and was cancelled."""

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"This was not found within {seconds:g} s: narrow the time that is searched."
        )


class TooManyRows(StoreError):
    """A report is larger than the given number of rows."""

    def __init__(self, most: int) -> None:
        super().__init__(f"The report has more than {most:,} rows: narrow it, or widen its steps.")


class Busy(StoreError):
    """A lock was not free in time; nothing was changed."""


class UnknownGroup(StoreError):
    """A token names a group that does not exist."""


class TokenExists(StoreError):
    """Another token has that id or the digest of that key."""


class GroupInUse(StoreError):
    """A group cannot be removed while tokens, revoked ones included, name it."""


class StateLocked(StoreError):
    """Another process holds the state directory; `pid` is its id where it could be read."""

    def __init__(self, message: str, pid: int | None) -> None:
        super().__init__(message)
        self.pid = pid


class ChainTooLarge(StoreError):
    """A chain of stored responses has more replies or bytes than can be continued; the message is
    the limit."""


class ConversationTooLarge(StoreError):
    """A conversation would have more items or bytes than it may; the message is the limit."""


class ReplicaNameTaken(StoreError):
    """Another replica has this one's name."""


class SharedStateMissing(StoreError):
    """A second replica with which limits are not shared."""


class ReplicaUnclear(StoreError):
    """Another process may use a copy of this state directory: if it is still heard of after
    `LOST_AFTER`, it does."""


class ReplicaRemoved(StoreError):
    """Others have taken this replica for gone: its budget leases have ended."""


def error_reason(error: BaseException) -> str:
    """The cause in one line of the process log, without the statement that SQLAlchemy adds. The
    message may have the server's address: for clients `postgresql.errors.reason_of` has none."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    cause = getattr(error, "orig", None) or error  # of SQLAlchemy: the driver's own error
    is_expected = isinstance(cause, StoreError | OSError) or hasattr(cause, "sqlstate")
    return (str(cause) if is_expected or cause is not error else "") or repr(cause)
