"""What requests need of a credential that expires, as another package obtains it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from yarl import URL

from gateway.core.buffers import Buffers
from gateway.core.events import Failure


class Credential(Protocol):
    """The credential of one account. A token is valid at one time, and opaque here."""

    @property
    def expires_at(self) -> float | None:
        """The end of the token in Unix seconds; None if there is none."""

    @property
    def refreshes(self) -> Mapping[str, int]:
        """Counts of refreshes by their outcome, ok or failed."""

    async def token(self) -> Any:
        """Returns a valid token. Raises `AttemptFailed`."""

    async def headers(
        self, token: Any, method: str, url: URL, headers: Mapping[str, str], body: bytes | Buffers
    ) -> Mapping[str, str]:
        """Returns the headers that authorize a request; `headers` are its others, without `host`.
        Their names are in lower case."""

    async def replace(self, token: Any, failure: Failure, date: str) -> bool:
        """Tells whether a request that was refused with this token can be sent again with another
        one; `date` is the header of the response."""
