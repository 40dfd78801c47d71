"""The messages that wait for one webhook, sent in order, each until it is taken or given up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Final, NoReturn

from gateway.alerts.conditions import Severity
from gateway.alerts.delivery import Delivery, DeliveryFailed, Message
from gateway.config.monitoring import Webhook

MAX_QUEUED: Final = 500
"""Messages; beyond it the oldest of the least severe is given up."""

_LOG_EVERY: Final = 60.0
"""Seconds between two lines about messages that were given up."""
_SEVERITIES: Final = tuple(Severity)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retries:
    """Seconds: the first pause, which doubles up to `longest`; each is shortened by up to a half at
    random. A message is given up `give_up_after` its first try."""

    first: float = 1.0
    longest: float = 60.0
    give_up_after: float = 3600.0

    def pause(self, failures: int, random_float: float) -> float:
        seconds: float = min(self.longest, self.first * 2 ** min(failures - 1, 30))
        return seconds * (1 - random_float / 2)


class WebhookQueue:
    """`on_result` gets a message and what became of it: `delivered` or `failed: …`; `random_float`
    returns a number in [0, 1)."""

    def __init__(
        self,
        webhook: Webhook,
        delivery: Delivery,
        retries: Retries,
        on_result: Callable[[str, Message, str], None],
        random_float: Callable[[], float],
    ) -> None:
        self.webhook = webhook
        self._delivery = delivery
        self._retries = retries
        self._on_result = on_result
        self._random_float = random_float
        self._messages: deque[Message] = deque()
        self._arrived = asyncio.Event()
        self._given_up = 0  # since the last line about them
        self._last_given_up = ""
        self._log_timer: asyncio.TimerHandle | None = None
        self._task = asyncio.ensure_future(self._run())

    @property
    def waiting(self) -> list[Message]:
        """Returns the waiting messages, oldest first, with the one that is being sent."""
        return list(self._messages)

    def put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._messages.append(message)
            if len(self._messages) > MAX_QUEUED:
                # not the first, which may be on its way
                least = max(islice(self._messages, 1, None), key=_rank)
                self._end(least, f"failed: more than {MAX_QUEUED} messages waited")
        if self._messages:
            self._arrived.set()

    async def close(self, seconds: float = 0.0) -> None:
        """Gives what waits so much time to be sent; the rest stays in `waiting`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._messages:
                    await asyncio.sleep(0.02)
        self._task.cancel()
        await asyncio.wait({self._task})
        if self._log_timer is not None:
            self._log_timer.cancel()
            self._log_given_up()

    async def _run(self) -> NoReturn:
        while True:
            while self._messages:
                message = self._messages[0]
                self._end(message, await self._deliver(message))
            self._arrived.clear()
            await self._arrived.wait()

    async def _deliver(self, message: Message) -> str:
        loop = asyncio.get_running_loop()
        started, failures = loop.time(), 0
        while True:
            try:
                await self._delivery.send(self.webhook, message)
            except DeliveryFailed as error:
                failures += 1
                if error.is_final or loop.time() - started >= self._retries.give_up_after:
                    return f"failed: {error}"
                if failures == 1:
                    log.warning(
                        "webhook %s did not take %s, which is tried again: %s",
                        *(self.webhook.name, message["id"], error),
                    )
                pause = self._retries.pause(failures, self._random_float())
                await asyncio.sleep(max(pause, error.wait or 0.0))
            except Exception as error:  # the queue has to go on
                log.exception("webhook %s: %s is given up", self.webhook.name, message["id"])
                return f"failed: {type(error).__name__}"
            else:
                return "delivered"

    def _end(self, message: Message, result: str) -> None:
        if result != "delivered":
            self._given_up += 1
            self._last_given_up = (
                f"{message['id']} ({message['status']} of {message['alert']}), {result}"
            )
            if self._log_timer is None:
                self._log_timer = asyncio.get_running_loop().call_later(0, self._on_log_timer)
        self._messages.remove(message)
        self._on_result(self.webhook.name, message, result)

    def _on_log_timer(self) -> None:
        """Logs the first at once, and then every minute while there are more."""
        self._log_timer = None
        if self._given_up:
            self._log_given_up()
            loop = asyncio.get_running_loop()
            self._log_timer = loop.call_later(_LOG_EVERY, self._on_log_timer)

    def _log_given_up(self) -> None:
        if self._given_up == 1:
            log.error("webhook %s did not get %s", self.webhook.name, self._last_given_up)
        elif self._given_up:
            log.error(
                "webhook %s did not get %d messages, the last of them %s",
                *(self.webhook.name, self._given_up, self._last_given_up),
            )
        self._given_up = 0


def _rank(message: Message) -> int:
    """Ranks a message; greater for what is less severe."""
    severity = message.get("severity")
    return _SEVERITIES.index(severity) if severity in _SEVERITIES else 0
