"""What the recorder asks of a database: its entries written, each counted once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from typing import TYPE_CHECKING, ClassVar

from gateway.store.records import LogEntry

if TYPE_CHECKING:  # only with a database server is it imported
    from gateway.store.postgresql.spool import Spool


class EntryWriter(ABC):
    """Writes the recorder's entries. It is used by one task at a time."""

    commits_slowly: ClassVar[bool] = False
    """Whether intents, which replies wait for, and settlements, whose sums take longer, are written
    in transactions of their own."""

    epoch: int | None = None
    """The epoch of this replica among several: what its requests cost is taken from its leases."""

    spool: Spool | None = None
    """The spool with the entries that wait while the database cannot be reached."""

    has_journal: bool = False
    """Whether entries can be kept before they are committed."""

    @property
    def is_full(self) -> bool:
        """Whether nothing more can be kept while the database cannot be reached."""
        return False

    async def open(self) -> None:
        """Write what an earlier run has left in the spool. Raises StoreError."""

    async def keep(self, entries: Sequence[LogEntry]) -> bool:
        """Make entries durable that are to be written later, in the same order; return whether they
        are. If not, there is no journal until all earlier ones are written."""
        return False

    @abstractmethod
    async def settle_interrupted(self) -> int:
        """Settle what earlier runs have left running as interrupted; returns their number."""

    @abstractmethod
    async def write(
        self, entries: Sequence[LogEntry], opened: Container[str] | None, left: int = 0
    ) -> bool:
        """Commit the entries, or keep them until they can be; returns whether they are committed.

        `left` of the entries in the journal are to be written after these. `opened` are the rows
        that are known to be running; None after a failure: then nothing is known. Raises
        InvalidRows if the database refuses one of them as it is; after any other error they may be
        committed.
        """

    def begin_outage(self, error: Exception, failures: int, waited: float) -> bool:
        """Return whether entries are kept from now on: `write` failed so many times, and nothing
        could be written for `waited` seconds."""
        return False

    async def close(self, seconds: float) -> None:
        """Write what is kept, for at most so many seconds; the next start writes the rest."""
