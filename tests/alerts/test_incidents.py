"""When an alert begins and ends: unknown and flapping conditions change nothing."""

from __future__ import annotations

import logging
from typing import Any

import orjson
import pytest

from gateway.alerts import incidents as module
from gateway.alerts.conditions import Condition, exceeds
from gateway.alerts.incidents import Incidents, Status
from gateway.config.monitoring import AlertKind

KIND = AlertKind.CHANNEL_DOWN


def condition(active: bool | None, scope: str = "a", **fields: Any) -> Condition:
    return Condition(KIND, scope, active, f"channel {scope}", "down", fields)


class Watch:
    """Updates with a condition each second; an end needs ten."""

    def __init__(self) -> None:
        self.incidents = Incidents()
        self.now = 0.0

    def see(self, *conditions: Condition, seconds: float = 1.0) -> list[Status]:
        self.now += seconds
        changes = self.incidents.update(conditions, 10.0, self.now, int(self.now * 1e6))
        return [status for _, status in changes]


def test_an_alert_begins_once_and_ends_once() -> None:
    watch = Watch()
    assert watch.see(condition(False)) == []
    assert watch.see(condition(True)) == [Status.FIRING]
    for _ in range(20):
        assert watch.see(condition(True)) == []
    assert watch.see(condition(False)) == []
    assert watch.see(condition(False), seconds=9.9) == []
    assert watch.see(condition(False), seconds=0.2) == [Status.RESOLVED]
    assert watch.see(condition(False), seconds=60) == []
    assert watch.see(condition(True)) == [Status.FIRING]


def test_a_condition_that_flaps_is_one_alert() -> None:
    watch = Watch()
    changes = [watch.see(condition(bool(number % 8 == 0))) for number in range(100)]
    assert [change for change in changes if change] == [[Status.FIRING]]


def test_what_is_unknown_neither_begins_nor_ends() -> None:
    watch = Watch()
    assert watch.see(condition(None)) == []
    watch.see(condition(True))
    assert watch.see(condition(None), seconds=1000) == []
    watch.see(condition(False))
    assert watch.see(condition(None), seconds=1000) == []
    assert watch.see(condition(False), seconds=9) == []  # from the beginning again


def test_a_condition_that_is_gone_ends() -> None:
    watch = Watch()
    watch.see(condition(True, "a"), condition(True, "b"))
    watch.see(condition(True, "b"))
    assert watch.see(condition(True, "b"), seconds=11) == [Status.RESOLVED]
    assert [each.subject for each in watch.incidents] == ["channel b"]


def test_the_details_are_those_of_the_latest_check() -> None:
    watch = Watch()
    watch.see(condition(True, free=3))
    watch.see(condition(True, free=2))
    watch.see(Condition(KIND, "a", None))  # nothing is known
    (incident,) = watch.incidents
    assert incident.details == {"free": 2}
    watch.see(condition(None, free=1))  # between its thresholds
    assert incident.details == {"free": 1}
    assert incident.since == 1_000_000


def test_incidents_survive_as_json() -> None:
    watch = Watch()
    watch.see(condition(True, free=3))
    (incident,) = watch.incidents
    incident.deliveries["oncall"] = "delivered"
    other = Incidents()
    other.restore(orjson.loads(orjson.dumps([each.stored() for each in watch.incidents])))
    assert list(other) == [incident]
    assert other.update([condition(True)], 10.0, 0.0, 0) == []


def test_only_so_many_fire_at_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_INCIDENTS", 3)
    watch = Watch()
    many = [condition(True, str(number)) for number in range(9)]
    with caplog.at_level(logging.ERROR):
        assert watch.see(*many) == [Status.FIRING] * 3
        assert watch.see(*many) == []
    assert [record.getMessage() for record in caplog.records] == [
        "3 alerts channel_down fire: 6 further ones are held back until others are over"
    ]
    assert watch.incidents.held_back == {KIND: 6}
    watch.see(*many[3:])
    assert watch.see(*many[3:], seconds=11) == [Status.RESOLVED] * 3 + [Status.FIRING] * 3
    caplog.clear()
    with caplog.at_level(logging.INFO):
        for _ in range(2):
            watch.see(*many[3:6])
    assert [record.getMessage() for record in caplog.records] == [
        "no alert channel_down is held back any more"
    ]
    assert watch.incidents.held_back == {}


def test_a_storm_of_budgets_keeps_nothing_else_back() -> None:
    watch = Watch()
    budgets = [
        Condition(AlertKind.BUDGET_USED, str(number), True, "", "x") for number in range(2000)
    ]
    assert watch.see(*budgets) == [Status.FIRING] * module.MAX_BUDGETS
    others = [
        Condition(kind, "a", True, "", "x")
        for kind in AlertKind
        if kind not in (AlertKind.BUDGET_USED, AlertKind.KEY_NEW_CLIENT, AlertKind.TEST)
    ]
    assert watch.see(*budgets, *others) == [Status.FIRING] * len(others)
    assert watch.incidents.held_back == {AlertKind.BUDGET_USED: 2000 - module.MAX_BUDGETS}


def test_the_end_says_what_is_now() -> None:
    watch = Watch()
    watch.see(condition(True, "a"), condition(True, "b"))
    fine = Condition(KIND, "a", False, "channel a", "up", {"free": 9})
    watch.see(fine, Condition(KIND, "b", False))
    changes = watch.incidents.update([fine], 10.0, 60.0, 0)
    assert [(each.summary, each.details) for each, _ in changes] == [
        ("up", {"free": 9}),
        ("No longer: down", {}),
    ]


@pytest.mark.parametrize(("value", "active"), [(8, True), (7.9, None), (6, None), (5.9, False)])
def test_two_thresholds(value: float, active: bool | None) -> None:
    assert exceeds(value, 8, 6) is active
