"""What a check of the gateway's state has found."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from gateway.config.alerts import AlertKind
from gateway.core.value import FastStrEnum


class Severity(FastStrEnum):
    CRITICAL = "critical"
    WARNING = "warning"
    INFO = "info"


SEVERITIES: Final = {
    AlertKind.ACCOUNT_AUTH_FAILED: Severity.CRITICAL,
    AlertKind.ACCOUNT_CIRCUIT_OPEN: Severity.WARNING,
    AlertKind.CHANNEL_DOWN: Severity.CRITICAL,
    AlertKind.BUDGET_USED: Severity.WARNING,
    AlertKind.ERROR_RATE: Severity.CRITICAL,
    AlertKind.CONFIG_INVALID: Severity.WARNING,
    AlertKind.DISK_LOW: Severity.CRITICAL,
    AlertKind.LOG_UNWRITABLE: Severity.CRITICAL,
    AlertKind.KEY_NEW_CLIENT: Severity.INFO,
    AlertKind.TEST: Severity.INFO,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """`active` is None where nothing is known, or the value is between its two thresholds: then an
    alert that fires goes on, and none begins. `scope` identifies the condition within its kind,
    `subject` and `summary` are for people; without a summary, nothing is known of the present but
    that. `details` are JSON values."""

    kind: AlertKind
    scope: str
    active: bool | None
    subject: str = ""
    summary: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind} {self.scope}"


def exceeds(value: float, threshold: float, clear_below: float) -> bool | None:
    """True from the threshold on, False below the other one, else None."""
    if value >= threshold:
        return True
    return False if value < clear_below else None
