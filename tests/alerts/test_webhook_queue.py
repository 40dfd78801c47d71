"""The queue of a webhook: order, repetitions, giving up, bounds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.alerts import webhook_queue as module
from gateway.alerts.delivery import Delivery, Message
from gateway.alerts.webhook_queue import Retries, WebhookQueue
from tests.alerts.receiver import OK, Receiver
from tests.alerts.test_delivery import webhook
from tests.support.upstream import Response, json_response

QUICK = Retries(first=0.02, longest=0.05, give_up_after=0.5)


def message(number: int) -> Message:
    return {"id": f"m{number}", "alert": "channel_down", "status": "firing"}


class Results(list[tuple[str, str]]):
    """The ids of messages, and what became of them."""

    def note(self, _: str, ended: Message, result: str) -> None:
        self.append((ended["id"], result))


@asynccontextmanager
async def queue_to(
    receiver: Receiver, results: Results, retries: Retries = QUICK, **options: Any
) -> AsyncIterator[WebhookQueue]:
    queue = WebhookQueue(
        webhook(receiver, **options), Delivery(lambda: 0), retries, results.note, lambda: 0.0
    )
    try:
        yield queue
    finally:
        await queue.close()


async def test_messages_arrive_in_order(receiver: Receiver) -> None:
    results = Results()
    receiver.server.respond_with(
        json_response({}, 500), json_response({}, 500), Response(raw=b""), OK
    )
    async with queue_to(receiver, results) as queue:
        queue.put(message(number) for number in range(5))
        await receiver.until(lambda: len(results) == 5)
        assert queue.waiting == []
    assert results == [(f"m{number}", "delivered") for number in range(5)]
    assert [each["id"] for each in receiver.messages] == ["m0"] * 4 + ["m1", "m2", "m3", "m4"]


async def test_a_message_is_given_up_after_a_time(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
) -> None:
    results = Results()
    receiver.server.respond_with(json_response({}, 500))
    async with queue_to(receiver, results) as queue:
        queue.put([message(1), message(2)])
        await receiver.until(lambda: results)
        receiver.server.respond_with(OK)
        await receiver.until(lambda: len(results) == 2)
    assert results == [("m1", "failed: status 500"), ("m2", "delivered")]
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert errors == [
        "webhook receiver did not get m1 (firing of channel_down), failed: status 500"
    ]


async def test_a_message_that_is_not_taken_is_given_up_at_once(receiver: Receiver) -> None:
    results = Results()
    receiver.server.respond_with(json_response({}, 422), OK)
    async with queue_to(receiver, results, Retries()) as queue:
        queue.put([message(1), message(2)])
        await receiver.until(lambda: len(results) == 2)
    assert results == [("m1", "failed: status 422"), ("m2", "delivered")]


async def test_what_waits_is_bounded(receiver: Receiver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 3)
    results = Results()
    receiver.server.respond_with(OK.with_changes(delay=0.2), OK)
    async with queue_to(receiver, results) as queue:
        queue.put([message(0)])
        await receiver.until(lambda: receiver.requests)
        queue.put(message(number) for number in range(1, 10))
        assert [each["id"] for each in queue.waiting] == ["m0", "m8", "m9"]
        await receiver.until(lambda: len(results) == 10)
    assert [each["id"] for each in receiver.messages] == ["m0", "m8", "m9"]


async def test_the_oldest_of_the_least_severe_is_given_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 3)
    receiver.server.respond_with(OK.with_changes(delay=30))
    severities = ["info", "critical", "warning", "warning", "critical"]
    async with queue_to(receiver, Results()) as queue:
        for number, severity in enumerate(severities):
            queue.put([message(number) | {"severity": severity}])
        assert [each["id"] for each in queue.waiting] == ["m0", "m1", "m4"]


async def test_one_line_counts_what_is_given_up(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "MAX_QUEUED", 3)
    monkeypatch.setattr(module, "_LOG_EVERY", 0.3)
    receiver.server.respond_with(OK.with_changes(delay=30))

    def errors() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]

    end = "(firing of channel_down), failed: more than 3 messages waited"
    async with queue_to(receiver, Results()) as queue:
        queue.put(message(number) for number in range(503))
        await receiver.until(errors)
        assert errors() == [
            f"webhook receiver did not get 500 messages, the last of them m500 {end}"
        ]
        for number in range(503, 513):
            queue.put([message(number)])
            await asyncio.sleep(0)
        assert len(errors()) == 1
        await receiver.until(lambda: len(errors()) == 2)
        assert errors()[1] == (
            f"webhook receiver did not get 10 messages, the last of them m510 {end}"
        )
        queue.put([message(513)])
    assert errors()[2:] == [f"webhook receiver did not get m511 {end}"]


async def test_closing_sends_what_can_be_sent(receiver: Receiver) -> None:
    results = Results()
    async with queue_to(receiver, results) as queue:
        queue.put([message(1)])
        await queue.close(5.0)
        assert queue.waiting == []
    receiver.server.respond_with(OK.with_changes(delay=30))
    async with queue_to(receiver, results) as queue:
        queue.put([message(2)])
        await queue.close(0.1)
        assert queue.waiting == [message(2)]


async def test_a_receiver_that_asks_to_wait(receiver: Receiver) -> None:
    results = Results()
    receiver.server.respond_with(json_response({}, 429, retry_after="1"), OK)
    loop = asyncio.get_running_loop()
    async with queue_to(receiver, results) as queue:
        started = loop.time()
        queue.put([message(1)])
        await receiver.until(lambda: results)
        assert loop.time() - started >= 0.95


@pytest.mark.parametrize(
    ("failures", "random_float", "seconds"),
    [(1, 0.0, 1.0), (1, 1.0, 0.5), (4, 0.0, 8.0), (7, 0.0, 60.0), (10_000, 0.5, 45.0)],
)
def test_pauses(failures: int, random_float: float, seconds: float) -> None:
    assert Retries().pause(failures, random_float) == seconds
