"""Whatever becomes of requests, nothing of them stays; and who does not read gets no memory."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import psutil
from aiohttp import ClientError, ClientSession

from gateway.core.formats import Format
from gateway.runtime import Runtime
from tests.resilience.chaos.client import headers, request_fields, send_request
from tests.resilience.chaos.process import GatewayProcess, create_key, write_config
from tests.resilience.chaos.sample_replies import complete_body, sample_stream
from tests.support.answer import Framing
from tests.support.formats.endings import error_at_end, is_complete
from tests.support.gateway import PATHS, RunningGateway, channels, run_gateway
from tests.support.raw_client import Leave
from tests.support.upstream import ReceivedRequest, Response, json_response, scripted_upstream

KINDS = ("complete", "whole", "refused", "limited", "cut", "cut whole", "silent", "silent whole")
REQUESTS = 300
AT_ONCE = 20

MiB = 1024 * 1024
WANTED = 40 * MiB
UNREAD = 5


async def misbehave(call: ReceivedRequest) -> Response | None:
    """Does what the call's name tells."""
    kind, result = call.prompt.partition("/")[0], sample_stream(call.format)
    match kind:
        case "refused":
            return json_response(b'{"error":{"message":"no"}}', 400)
        case "limited":
            return json_response(b'{"error":{"message":"slow down"}}', 429)
        case "whole":
            return json_response(complete_body(call.format))
        case "cut whole":
            await call.answer.head(framing=Framing.LENGTH, length=1000)
            call.answer.hang_up()
        case "silent whole":
            await call.disconnected.wait()
        case _:
            await call.answer.begin_stream()
            await call.answer.say(result.opening)
            if kind == "complete":
                await call.answer.say(result.word + result.ending)
                await call.answer.end()
            elif kind == "silent":
                await call.disconnected.wait()
            else:
                call.answer.hang_up()
    return None


@dataclass(frozen=True, slots=True)
class Belongings:
    """What a process holds, without idle connections to upstreams: they are kept on purpose."""

    files: int
    threads: int
    tasks: int

    @classmethod
    def now(cls, runtime: Runtime) -> Belongings:
        process = psutil.Process()
        _, idle = runtime.current.upstream.connections
        files = process.num_fds() - 2 * idle  # the upstream's end is in this process too
        tasks = len(asyncio.all_tasks()) - 2 * idle  # of the upstream, for each connection
        return cls(files, process.num_threads(), tasks)

    def exceed(self, other: Belongings) -> bool:
        mine, theirs = ((each.files, each.threads, each.tasks) for each in (self, other))
        return any(held > before + 2 for held, before in zip(mine, theirs, strict=True))


def model_of(format: Format) -> str:
    """Each channel has one of its own, so that nobody stands in for it."""
    return f"beta-{format}"


def apart(address: str) -> list[dict[str, Any]]:
    return [
        channel | {"models": {model_of(format): "upstream-model"}}
        for format, channel in zip(Format, channels(address), strict=True)
    ]


async def request(gateway: RunningGateway, format: Format, name: str) -> None:
    kind = name.partition("/")[0]
    stream = "whole" not in kind
    if kind.startswith("silent"):
        fields = {"stream": stream, "model": model_of(format)}
        client = await send_request(gateway.address, gateway.key, format, name, **fields)
        await asyncio.sleep(0.05)
        client.leave(Leave.RESET)
        return
    async with ClientSession(gateway.address) as http:
        answer = await http.post(
            PATHS[format],
            json=request_fields(format, name, stream=stream, model=model_of(format)),
            headers=headers(gateway.key, name.replace("/", "-")),
        )
        body = await answer.read()
    expected = {"refused": 400, "limited": 503, "cut whole": 502}.get(kind, 200)
    assert answer.status == expected
    if kind == "complete":
        assert is_complete(format, body)
    elif kind == "cut":
        assert error_at_end(format, body)


async def many(gateway: RunningGateway, count: int, prefix: str) -> None:
    receive_buffer = asyncio.Semaphore(AT_ONCE)

    async def one(format: Format, name: str) -> None:
        async with receive_buffer:
            await request(gateway, format, name)

    mix = enumerate(islice(cycle(product(KINDS, Format)), count))
    async with asyncio.TaskGroup() as group:
        for number, (kind, format) in mix:
            group.create_task(one(format, f"{kind}/{prefix}{number}"))


async def test_nothing_leaks(tmp_path: Path) -> None:
    models = [{"id": model_of(format), "family": "beta"} for format in Format]
    async with (
        scripted_upstream(misbehave) as model,
        run_gateway(tmp_path, apart(model.address), models=models) as gateway,
    ):
        await many(gateway, len(KINDS) * len(Format), "warm")
        await gateway.rows(len(KINDS) * len(Format))
        runtime = gateway.daemon.runtime
        before = Belongings.now(runtime)
        await many(gateway, REQUESTS, "")
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                while Belongings.now(runtime).exceed(before):
                    await asyncio.sleep(0.05)
        after = Belongings.now(runtime)
        assert not after.exceed(before), (before, after, asyncio.all_tasks())
        assert (runtime.active_requests, len(runtime.scheduler)) == (0, 0)
        rows = await gateway.rows()
        assert {row.state.value for row in rows} <= {"ok", "error", "client_gone", "upstream_cut"}


async def pour(call: ReceivedRequest) -> None:
    text = sample_stream(call.format)
    long_word = text.word.replace(b" word", b" word" * 13_000)
    await call.answer.begin_stream()
    await call.answer.say(text.opening)
    while call.answer.sent < WANTED:
        await call.answer.say(long_word)
    await call.answer.say(text.ending)
    await call.answer.end()


async def test_a_client_that_does_not_read_gets_no_memory(tmp_path: Path) -> None:
    async with scripted_upstream(pour) as model:
        config = write_config(tmp_path, model.address)
        key = await create_key(tmp_path)
        with GatewayProcess(tmp_path, "--config", config) as process:
            address = process.address()
            memory = psutil.Process(process.pid)
            await one_who_reads(address, key)
            before = memory.memory_info().rss
            idle = [
                await send_request(
                    address, key, Format.CHAT, f"idle {number}", room=4096, stream=True
                )
                for number in range(UNREAD)
            ]
            calls = [
                await model.wait_for_request(prompt=f"idle {number}") for number in range(UNREAD)
            ]
            sent, peak = -1, before
            while sent != (sent := sum(call.answer.sent for call in calls)):
                await asyncio.sleep(0.5)
                peak = max(peak, memory.memory_info().rss)
            for client in idle:
                client.leave(Leave.CLOSE)
            for call in calls:
                async with asyncio.timeout(5):
                    await call.disconnected.wait()
    assert peak - before <= 32 * MiB
    assert all(call.answer.sent < WANTED / 2 for call in calls)


async def one_who_reads(address: str, key: str) -> None:
    """Gets all of it, and so shows that the others could have."""
    async with ClientSession(address) as http:
        body = request_fields(Format.CHAT, "reads", stream=True)
        answer = await http.post(PATHS[Format.CHAT], json=body, headers=headers(key, "reads"))
        received, last = 0, b""
        with suppress(ClientError):
            async for chunk in answer.content.iter_any():
                received += len(chunk)
                last = (last + chunk)[-4096:]
    assert received > WANTED * 0.99  # the model's name is shorter here than upstream
    assert is_complete(Format.CHAT, last)
