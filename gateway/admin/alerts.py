"""What operators see of alerts; `gateway.alerts.monitor` provides it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertView:
    """An alert that fires. `since` is in Unix microseconds; `deliveries` has what became of its
    message, by webhook: `waiting`, `delivered` or `failed: …`."""

    id: str
    alert: str
    severity: str
    subject: str
    summary: str
    details: dict[str, Any]
    since: int
    deliveries: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookTest:
    """`error` is None if the webhook took the message; `seconds` until its answer."""

    webhook: str
    ok: bool
    error: str | None
    seconds: float


class AlertSource(Protocol):
    """The alerts of a running gateway."""

    def firing(self) -> list[AlertView] | None:
        """Oldest first; None where the configuration has no alerts."""
        ...

    def held_back(self) -> dict[str, int]:
        """Returns, by kind, how many more would fire if there were not so many already."""
        ...

    def webhooks(self) -> list[str]:
        """Their names."""
        ...

    async def test(self, names: Sequence[str]) -> list[WebhookTest]:
        """Sends a message to each of these webhooks."""
        ...
