"""What others wait for while one key loads the gateway: requests of another key, and what an
operator reads."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Any, Final

import orjson
from aiohttp import ClientSession, ClientTimeout, CookieJar, TCPConnector

from gateway.core.formats import Format
from tests.console.browser import FORM_HEADERS, PASSWORD
from tests.resilience.attacks.target import CommandProcess, command_process, max_stall
from tests.resilience.chaos.process import (
    GatewayProcess,
    create_key,
    process_environment,
    write_config,
)
from tests.resilience.chaos.sample_replies import complete_body
from tests.resilience.fairness.agent_turn import agent_turn
from tests.resilience.fairness.loads import MODEL
from tests.support.forked_process import run_forked
from tests.support.gateway import ALPHA, BETA, PATHS, channel, channels, request_body
from tests.support.image_files import png
from tests.support.image_requests import image_part, image_request
from tests.support.upstream import json_response, scripted_upstream

ROUNDS: Final = 5
_REST: Final = 10.0
"""Seconds until what a load has begun is done, at most."""
_RESPONSES: Final = PATHS[Format.RESPONSES]
_TIMEOUT: Final = ClientTimeout(total=30)

Waits = dict[str, float]
"""The median wait for each kind of request, in seconds, without the time in which the gateway or
its client were ready to run while others had all processors."""


@dataclass(frozen=True)
class Place:
    """A gateway, the process that loads it, and the others' client. `stored` is a response that
    the other key can continue."""

    gateway: GatewayProcess
    loads: CommandProcess
    http: ClientSession
    keys: tuple[str, str, str]
    stored: str

    async def load(self, name: str) -> dict[str, int]:
        """Begins a load, whose key is the second and, for probes, the third; tells how many answers
        of each status its first client alone had."""
        _, key, probe_key = self.keys
        words = "start", name, self.gateway.address(), key, probe_key
        statuses: dict[str, int] = await self.loads.command(*words, seconds=60)
        return statuses

    async def stop(self) -> dict[str, int]:
        """Ends it, waits until the gateway has nothing to do any more, and tells how many answers
        of each status there were."""
        statuses: dict[str, int] = await self.loads.command("stop", seconds=60)
        deadline, used = time.monotonic() + _REST, self._used()
        while time.monotonic() < deadline:
            await asyncio.sleep(0.2)
            before, used = used, self._used()
            if used - before <= 0.02:
                break
        return statuses

    async def measure(self) -> Waits:
        """Every kind of request, several times; each is answered with 200."""
        waits: dict[str, list[float]] = {name: [] for name in _KINDS}
        for _ in range(ROUNDS):
            for name, send in _KINDS.items():
                withheld, began = self._withheld(), time.monotonic()
                await send(self)
                seconds = time.monotonic() - began
                waits[name].append(seconds - _withheld_since(withheld, self._withheld()))
        return {name: median(seconds) for name, seconds in waits.items()}

    async def post(self, path: str, body: bytes) -> dict[str, Any]:
        headers = {
            "authorization": f"Bearer {self.keys[0]}",
            "content-type": "application/json",
            "anthropic-version": "2023-06-01",
        }
        async with self.http.post(path, data=BytesIO(body), headers=headers) as reply:
            content = await reply.read()
            assert reply.status == 200, (path, reply.status, content[:300])
        answer: dict[str, Any] = orjson.loads(content)
        return answer

    async def get(self, path: str) -> None:
        async with self.http.get(path) as page:
            content = await page.text()
            assert page.status == 200, (path, page.status, content[:300])

    def _used(self) -> float:
        """Seconds of a processor, of all threads."""
        fields = Path(f"/proc/{self.gateway.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _withheld(self) -> tuple[dict[str, int], int]:
        """Nanoseconds on a run queue: of each thread of the gateway, and of this process."""
        threads: dict[str, int] = {}
        for thread in Path(f"/proc/{self.gateway.pid}/task").iterdir():
            with suppress(OSError):  # it has ended
                threads[thread.name] = _on_run_queue(thread)
        return threads, _on_run_queue(Path("/proc/thread-self"))


def _on_run_queue(thread: Path) -> int:
    return int((thread / "schedstat").read_text().split()[1])


def _withheld_since(before: tuple[dict[str, int], int], after: tuple[dict[str, int], int]) -> float:
    """Seconds. Of the gateway's threads the one that waited longest: it may have held the
    interpreter's lock meanwhile, so that the others waited for it."""
    threads = [count - before[0].get(name, 0) for name, count in after[0].items()]
    return (max(threads) + after[1] - before[1]) / 1e9


_AGENT: Final = orjson.dumps(agent_turn(Format.CHAT, 100, 60, 2000) | {"model": BETA})
_IMAGE: Final = orjson.dumps(
    image_request(Format.MESSAGES, image_part(Format.MESSAGES, png(padding=500_000)))
    | {"model": ALPHA}
)


async def _small(place: Place) -> None:
    await place.post(PATHS[Format.CHAT], orjson.dumps(request_body(Format.CHAT)))


async def _agent(place: Place) -> None:
    await place.post(PATHS[Format.CHAT], _AGENT)


async def _background(place: Place) -> None:
    body = request_body(Format.RESPONSES, background=True, store=True)
    started = await place.post(_RESPONSES, orjson.dumps(body))
    assert started["status"] in ("queued", "in_progress"), started


async def _continuation(place: Place) -> None:
    body = request_body(Format.RESPONSES, previous_response_id=place.stored)
    await place.post(_RESPONSES, orjson.dumps(body))


async def _image(place: Place) -> None:
    await place.post(PATHS[Format.MESSAGES], _IMAGE)


async def _metrics(place: Place) -> None:
    await place.get("/metrics")


async def _console(place: Place) -> None:
    await place.get("/console/logs")


_KINDS: Final[dict[str, Callable[[Place], Awaitable[None]]]] = {
    "a small request": _small,
    "a body of 300 KB": _agent,
    "a background start": _background,
    "a stored continuation": _continuation,
    "an image": _image,
    "metrics": _metrics,
    "a page of the console": _console,
}


def _sections(address: str, load: str) -> dict[str, Any]:
    names = {format: MODEL.format(format) for format in Format}
    loaded = [
        channel(format, load, name=f"load-{format}", models={name: "upstream-model"})
        for format, name in names.items()
    ]
    models: list[dict[str, Any]] = [
        {"id": name, "family": "beta", "multiplier": 1} for name in (*names.values(), BETA, ALPHA)
    ]
    return {
        "models": models,
        "channels": [*channels(address), *loaded],
        "images": {"fit": True},
    }


@asynccontextmanager
async def run_place(folder: Path) -> AsyncIterator[Place]:
    """A gateway with other keys, whose upstream answers at once."""
    max_stall()
    scripts = {format: json_response(complete_body(format)) for format in Format}

    async def answer(call: Any) -> Any:
        return scripts[call.format]

    async with (
        command_process("tests.resilience.fairness.loads") as loads,
        scripted_upstream(answer) as upstream,
    ):
        sections = _sections(upstream.address, loads.upstream)
        config = write_config(folder, sections=sections)
        keys = (
            await create_key(folder),
            await create_key(folder),
            await create_key(folder, probe=True),
        )
        with GatewayProcess(folder, "--config", config) as gateway:
            address = gateway.address()
            words = ("admin", "password", "--state-dir", str(folder / "state"))
            run_forked(
                *("gateway", *words), input=f"{PASSWORD}\n".encode(), env=process_environment()
            ).check_returncode()
            connector = TCPConnector(force_close=True)
            jar = CookieJar(unsafe=True)  # an address is a host too
            async with ClientSession(
                address, connector=connector, cookie_jar=jar, timeout=_TIMEOUT
            ) as http:
                form = {"password": PASSWORD}
                async with http.post("/console/sign-in", data=form, headers=FORM_HEADERS) as page:
                    assert page.status == 200, await page.text()
                place = Place(gateway, loads, http, keys, "")
                body = orjson.dumps(request_body(Format.RESPONSES, store=True))
                stored = (await place.post(_RESPONSES, body))["id"]
                place = Place(gateway, loads, http, keys, stored)
                await place.measure()  # what is imported and built at the first time
                yield place
