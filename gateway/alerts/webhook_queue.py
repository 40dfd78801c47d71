"""The messages that wait for one webhook, sent in order, each until it is taken or given up."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, NoReturn

from gateway.alerts.delivery import Delivery, DeliveryFailed
from gateway.alerts.message import Message
from gateway.config.alerts import Webhook

MAX_QUEUED: Final = 500
"""Messages; beyond it the oldest is given up."""

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
        self._task = asyncio.ensure_future(self._run())

    @property
    def waiting(self) -> list[Message]:
        """Oldest first, with the one that is being sent."""
        return list(self._messages)

    def put(self, messages: Iterable[Message]) -> None:
        for message in messages:
            self._messages.append(message)
            if len(self._messages) > MAX_QUEUED:
                # not the first, which may be on its way
                self._end(self._messages[1], f"failed: more than {MAX_QUEUED} messages waited")
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
            log.error(
                "webhook %s did not get %s (%s of %s), %s",
                *(self.webhook.name, message["id"], message["status"], message["alert"], result),
            )
        self._messages.remove(message)
        self._on_result(self.webhook.name, message, result)
