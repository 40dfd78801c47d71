"""What each replica tells the one that announces alerts: what only it can see of itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from gateway.alerts.conditions import Condition
from gateway.config.monitoring import AlertKind
from gateway.runtime import Runtime

_KIND: Final = "alerts"
_MISSED_ROUNDS: Final = 3
"""Checks after which the report of a replica no longer counts."""


@dataclass(slots=True)
class Report:
    """`conditions` of a replica itself; requests and failures in the window of the error rate;
    `clients`: token id and origin of new clients of keys."""

    conditions: list[Condition] = field(default_factory=list)
    requests: int = 0
    failed: int = 0
    clients: list[tuple[str, str]] = field(default_factory=list)


async def exchange(runtime: Runtime, own: Report, every: float) -> list[Report]:
    """Sends this replica's report and returns those of the others, whose conditions name them.
    `every` is how often that happens, in seconds."""
    others = await runtime.fleet.exchange_reports(
        _KIND, asdict(own), runtime.now(), _MISSED_ROUNDS * every + 1
    )
    return [_read(name, sent) for name, sent in others.items()]


def merge(own: Report, others: Sequence[Report]) -> Report:
    """Merges the reports of all replicas."""
    everyone = [own, *others]
    return Report(
        [condition for each in everyone for condition in each.conditions],
        sum(each.requests for each in everyone),
        sum(each.failed for each in everyone),
        [client for each in everyone for client in each.clients],
    )


def _read(name: str, sent: dict[str, Any]) -> Report:
    conditions = [_named(name, Condition(**each)) for each in sent["conditions"]]
    clients = [(token, origin) for token, origin in sent["clients"]]
    return Report(conditions, sent["requests"], sent["failed"], clients)


def _named(name: str, condition: Condition) -> Condition:
    return replace(
        condition,
        kind=AlertKind(condition.kind),
        scope=f"{condition.scope}@{name}",
        subject=f"{condition.subject} of replica {name}",
        summary=f"Replica {name}: {condition.summary}",
        details=condition.details | {"replica": name},
    )
