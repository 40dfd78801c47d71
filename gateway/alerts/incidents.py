"""Which alerts fire: conditions that have begun and are not over."""

from __future__ import annotations

import logging
import secrets
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from gateway.alerts.conditions import SEVERITIES, Condition, Severity
from gateway.config.monitoring import AlertKind
from gateway.core.value import FastStrEnum

MAX_INCIDENTS: Final = 1000
"""Alerts of a kind that fire at once; further ones are held back until others are over."""
MAX_BUDGETS: Final = 200
"""Alerts of budgets that fire at once, of which there are several for each key: beginnings and ends
together fit in the queue of a webhook, and leave room there."""

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
    """The alerts that fire, oldest first. `held_back` are those that would fire were there not so
    many of their kind already."""

    def __init__(self) -> None:
        self._firing: dict[str, Incident] = {}
        self.held_back: Counter[AlertKind] = Counter()

    def __iter__(self) -> Iterator[Incident]:
        return iter(self._firing.values())

    def update(
        self, conditions: Iterable[Condition], clear_after: float, now: float, at: int
    ) -> list[tuple[Incident, Status]]:
        """Returns what has begun and what is over. A condition that is missing is over; `now` is
        loop time, `at` the same in Unix microseconds."""
        found = {each.key: each for each in conditions}
        changes: list[tuple[Incident, Status]] = []
        for key, incident in list(self._firing.items()):
            condition = found.pop(key, None)
            if condition is None or condition.active is False:
                if incident.calm_since is None:
                    incident.calm_since = now
                if now - incident.calm_since >= clear_after:
                    del self._firing[key]
                    if condition is None or not condition.summary:
                        incident.summary = f"No longer: {incident.summary}"
                    changes.append((incident, Status.RESOLVED))
            else:
                incident.calm_since = None
            if condition is not None and condition.summary:
                incident.summary, incident.details = condition.summary, condition.details
        begun = self._begin([each for each in found.values() if each.active], at)
        return changes + [(incident, Status.FIRING) for incident in begun]

    def _begin(self, conditions: Iterable[Condition], at: int) -> list[Incident]:
        """Begins those for which there is room: each kind has its own, so that many budgets keep
        nothing severe back."""
        numbers = Counter(each.kind for each in self)
        held_back: Counter[AlertKind] = Counter()
        begun = []
        for condition in conditions:
            if numbers[condition.kind] >= _room(condition.kind):
                held_back[condition.kind] += 1
                continue
            numbers[condition.kind] += 1
            of_condition = condition.subject, condition.summary, condition.details
            incident = Incident(new_incident_id(), condition.kind, condition.key, at, *of_condition)
            self._firing[incident.key] = incident
            begun.append(incident)
        self._note_held_back(held_back)
        return begun

    def find(self, incident_id: str) -> Incident | None:
        return next((each for each in self if each.id == incident_id), None)

    def clear(self) -> bool:
        """Forgets everything, and nobody is told; False if there was nothing."""
        had_any = bool(self._firing)
        self._firing.clear()
        self.held_back.clear()
        return had_any

    def restore(self, stored: Iterable[dict[str, Any]]) -> None:
        """Restores what an earlier run has announced. Raises KeyError, TypeError, ValueError."""
        for each in stored:
            fields = {name: each[name] for name in _STORED}
            incident = Incident(**fields | {"kind": AlertKind(each["kind"])})
            self._firing[incident.key] = incident

    def _note_held_back(self, held_back: Counter[AlertKind]) -> None:
        for kind in held_back.keys() - self.held_back.keys():
            log.error(
                "%d alerts %s fire: %d further ones are held back until others are over",
                *(_room(kind), kind, held_back[kind]),
            )
        for kind in self.held_back.keys() - held_back.keys():
            log.info("no alert %s is held back any more", kind)
        self.held_back = held_back


def _room(kind: AlertKind) -> int:
    return MAX_BUDGETS if kind is AlertKind.BUDGET_USED else MAX_INCIDENTS
