"""Load on several replicas from a process of its own; it reads a `Load` and writes `Answer`s, as
JSON. The test's loop stays free, and the generator has a processor's time of its own.

Independent of what is tested: it repeats nothing and judges nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import uvloop
from aiohttp import ClientError, ClientSession, ClientTimeout, TCPConnector

from tests.support.forked_process import ForkedProcess

GRACE: Final = 60.0
"""Seconds after which a request that has no end is given up, if not stated otherwise."""
NO_ANSWER: Final = 0
"""The status where no head of an answer came."""
_START: Final = 60.0
_BEGUN: Final = b"begun\n"
_DONE: Final = b"data: [DONE]\n\n"
_PROMPT: Final = "Which three habits keep a code base easy to change, and why these? " * 6


@dataclass(frozen=True, slots=True)
class Load:
    """Ends after `requests`, or after `seconds`, whichever is first; `rate` is requests a second, 0
    as fast as the answers come. Requests go to `addresses` and have `keys` in turn; one is given up
    after `grace` seconds. Without `keep` each has a connection of its own."""

    addresses: list[str]
    keys: list[str]
    prefix: str
    concurrency: int = 50
    requests: int = 10**6
    seconds: float = 60.0
    rate: float = 0.0
    stream: bool = False
    model: str = "beta-whole-chat"
    max_tokens: int = 200
    grace: float = GRACE
    keep: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """`name` is the client's own id of the request, `began` in Unix seconds. `is_complete`: the
    reply ended as it should."""

    name: str
    target: int
    status: int
    code: str
    is_complete: bool
    began: float
    seconds: float


@dataclass(slots=True)
class Answers:
    all: list[Answer] = field(default_factory=list)

    def statuses(self) -> Counter[int]:
        return Counter(answer.status for answer in self.all)

    def codes(self) -> Counter[str]:
        """Of errors."""
        return Counter(answer.code for answer in self.all if answer.status != 200)

    def admitted(self) -> list[Answer]:
        return [answer for answer in self.all if answer.status == 200]

    def cut(self) -> list[Answer]:
        """Replies that began and did not end as they should."""
        return [answer for answer in self.admitted() if not answer.is_complete]

    def quantile(self, share: float) -> float:
        """Of the seconds of complete replies."""
        times = sorted(answer.seconds for answer in self.all if answer.is_complete)
        return times[min(int(len(times) * share), len(times) - 1)] if times else 0.0


class LoadProcess:
    """It begins as soon as it can; `answers` waits for its end."""

    def __init__(self, load: Load, folder: Path) -> None:
        self._limit = load.seconds + load.grace + 20
        self._output = folder / f"load-{load.prefix}.json"
        self._errors = folder / f"load-{load.prefix}.err"
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self.process = ForkedProcess(
                __name__, stdin=subprocess.PIPE, stdout=output, stderr=errors
            )
        assert self.process.stdin is not None
        self.process.stdin.write(orjson.dumps(asdict(load)))
        self.process.stdin.close()

    async def under_way(self, seconds: float) -> None:
        """Returns so many seconds after its first request. A busy machine is late to start it."""
        async with asyncio.timeout(_START):
            while not self._output.stat().st_size:
                assert self.process.poll() is None, self._errors.read_text()
                await asyncio.sleep(0.01)
        await asyncio.sleep(seconds)

    def end(self) -> None:
        """It sends no more requests."""
        self.process.terminate()

    async def answers(self) -> Answers:
        code = await asyncio.to_thread(self.process.wait, self._limit)
        assert code == 0, self._errors.read_text()
        answers = orjson.loads(self._output.read_bytes().removeprefix(_BEGUN))
        return Answers([Answer(**fields) for fields in answers])

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(10)


async def run_load(load: Load, folder: Path) -> Answers:
    process = LoadProcess(load, folder)
    try:
        return await process.answers()
    finally:
        process.kill()


class _Generator:
    def __init__(self, load: Load, http: ClientSession) -> None:
        self.load, self.http = load, http
        self.sent = 0
        self.answers: list[Answer] = []

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end)
        self.began = loop.time()
        os.write(sys.stdout.fileno(), _BEGUN)
        async with asyncio.TaskGroup() as workers:
            for _ in range(self.load.concurrency):
                workers.create_task(self._work(loop))

    def _end(self) -> None:
        self.sent = self.load.requests

    async def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        load = self.load
        while self.sent < load.requests:
            number, self.sent = self.sent, self.sent + 1
            due = self.began + (number / load.rate if load.rate else 0)
            if max(due, loop.time()) >= self.began + load.seconds:
                return
            await asyncio.sleep(max(0.0, due - loop.time()))
            self.answers.append(await self._ask(number))

    async def _ask(self, number: int) -> Answer:
        load = self.load
        name, target = f"{load.prefix}-{number}", number % len(load.addresses)
        status, body, began = NO_ANSWER, b"", time.time()
        is_complete = False
        fields = {
            "model": load.model,
            "messages": [{"role": "user", "content": _PROMPT}],
            "max_tokens": load.max_tokens,
            "stream": load.stream,
        }
        headers = {
            "authorization": f"Bearer {load.keys[number % len(load.keys)]}",
            "content-type": "application/json",
            "x-request-id": name,
        }
        try:
            async with self.http.post(
                f"{load.addresses[target]}/v1/chat/completions",
                data=orjson.dumps(fields),
                headers=headers,
            ) as answer:
                status = answer.status
                async for data in answer.content.iter_any():
                    body = (body + data)[-65536:]
            is_complete = status == 200 and (not load.stream or body.endswith(_DONE))
        except (ClientError, OSError, TimeoutError) as error:
            body = repr(error).encode()
        code = "" if status == 200 else _error_code(body)
        return Answer(name, target, status, code, is_complete, began, time.time() - began)


def _error_code(body: bytes) -> str:
    try:
        error = orjson.loads(body)["error"]
        return str(error.get("code") or error.get("type"))
    except (ValueError, KeyError, AttributeError, TypeError):
        return body[:80].decode(errors="replace")


async def _generate(load: Load) -> Sequence[Answer]:
    kept: dict[str, Any] = {"keepalive_timeout": 60} if load.keep else {"force_close": True}
    connector = TCPConnector(limit=0, **kept)
    timeout = ClientTimeout(total=load.grace)
    async with ClientSession(connector=connector, timeout=timeout) as http:
        generator = _Generator(load, http)
        await generator.run()
    return generator.answers


if __name__ == "__main__":
    load = Load(**orjson.loads(sys.stdin.buffer.read()))
    sys.stdout.buffer.write(orjson.dumps(uvloop.run(_generate(load))))
