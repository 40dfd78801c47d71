"""Which alerts fire: conditions that have begun and are not over."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.alerts.condition import SEVERITIES, Condition, Severity
from gateway.config.alerts import AlertKind
from gateway.core.value import FastStrEnum

MAX_INCIDENTS: Final = 1000
"""Alerts that fire at once; further ones wait until others are over."""

log = logging.getLogger(__name__)


class Status(FastStrEnum):
    FIRING = "firing"
    RESOLVED = "resolved"
    EVENT = "event"


@dataclass(slots=True)
class Incident:
    """An alert from its beginning to its end. `since` is in Unix microseconds; `deliveries` has
    what became of its first message, by webhook. `calm_since` is loop time."""

    id: str
    kind: AlertKind
    key: str
    since: int
    subject: str
    summary: str
    details: dict[str, Any]
    deliveries: dict[str, str] = field(default_factory=dict)
    calm_since: float | None = None

    @property
    def severity(self) -> Severity:
        return SEVERITIES[self.kind]

    def stored(self) -> dict[str, Any]:
        """JSON values, for `Incidents.restore`."""
        return {name: getattr(self, name) for name in _STORED}


_STORED: Final = ("id", "kind", "key", "since", "subject", "summary", "details", "deliveries")


def new_incident_id() -> str:
    return f"alert_{secrets.token_hex(12)}"


class Incidents:
    """All alerts that fire, oldest first."""

    def __init__(self) -> None:
        self._firing: dict[str, Incident] = {}
        self._is_full = False

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._firing.values())

    def update(
        self, conditions: Iterable[Condition], clear_after: float, now: float, at: int
    ) -> list[tuple[Incident, Status]]:
        """What has begun and what is over. A condition that is missing is over; `now` is loop time,
        `at` the same in Unix microseconds."""
        found = {each.key: each for each in conditions}
        changes: list[tuple[Incident, Status]] = []
        for key, incident in list(self._firing.items()):
            condition = found.pop(key, None)
            if condition is None or condition.active is False:
                if incident.calm_since is None:
                    incident.calm_since = now
                if now - incident.calm_since >= clear_after:
                    del self._firing[key]
                    changes.append((incident, Status.RESOLVED))
            else:
                incident.calm_since = None
                if condition.active:
                    incident.summary, incident.details = condition.summary, condition.details
        for key, condition in found.items():
            if condition.active and self._has_room():
                incident = self._firing[key] = _begin(condition, at)
                changes.append((incident, Status.FIRING))
        return changes

    def find(self, incident_id: str) -> Incident | None:
        return next((each for each in self if each.id == incident_id), None)

    def clear(self) -> bool:
        """Forgets everything, and nobody is told; False if there was nothing."""
        had_any = bool(self._firing)
        self._firing.clear()
        return had_any

    def restore(self, stored: Iterable[dict[str, Any]]) -> None:
        """What an earlier run has announced. Raises KeyError, TypeError, ValueError."""
        for each in stored:
            fields = {name: each[name] for name in _STORED}
            incident = Incident(**fields | {"kind": AlertKind(each["kind"])})
            self._firing[incident.key] = incident

    def _has_room(self) -> bool:
        is_full = len(self._firing) >= MAX_INCIDENTS
        if is_full and not self._is_full:
            log.error("%d alerts fire: further ones are not announced", MAX_INCIDENTS)
        self._is_full = is_full
        return not is_full


def _begin(condition: Condition, at: int) -> Incident:
    return Incident(
        new_incident_id(),
        condition.kind,
        condition.key,
        at,
        condition.subject,
        condition.summary,
        condition.details,
    )
