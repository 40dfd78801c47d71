"""One long session of a real agent: `python -m tests.agents.session AGENT FORMAT FOLDER CLIENTS`,
in a network that has nothing but loopback. Prints what came of it, as JSON.

After the first compaction the account in use is refused for good, after the second the gateway
is restarted; both while the agent runs a command.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import orjson

from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.daemon import Daemon, run_daemon
from gateway.store.records import ExchangeState
from tests.agents.clients import Agent, ClaudeCode, Codex, Place
from tests.agents.prefixes import Prefixes
from tests.agents.scripted_model import SHOW_NOTE, ScriptedModel
from tests.support.gateway import channel, gateway_config
from tests.support.server_process import free_port
from tests.support.upstream import ReceivedRequest, Response, scripted_upstream

_CALLS: Final = 10
"""Of each prompt."""
_SWITCH: Final = 13
_RESTART: Final = 23
"""Calls before which this happens."""
_ACCOUNTS: Final = [{"name": f"a{n}", "key": f"upstream-secret-{n}"} for n in range(2)]


class RestartedGateway:
    """A gateway that is started again on its port and state."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config = parse_config(orjson.dumps(config).decode())
        self._running = AsyncExitStack()
        self.daemon: Daemon

    async def start(self) -> None:
        self.daemon = await self._running.enter_async_context(run_daemon(self._config))

    async def stop(self) -> None:
        await self._running.aclose()


def _agent(name: str, place: Place) -> Agent:
    match name:
        case "claude-code":
            return ClaudeCode(place)
        case "codex":
            return Codex(place, None)
        case _:
            return Codex(place, "gateway")


def _prompts(name: str) -> list[str]:
    asked = [f"Read the notes. Remember fact-user-{n}." for n in range(3)]
    if name != "claude-code":
        return asked
    return [asked[0], "/compact", asked[1], "/compact", asked[2]]


def _write_notes(work: Path) -> None:
    """What commands show: a fact each, and enough words to fill a context window."""
    work.mkdir()
    for number in range(1, 3 * _CALLS + 1):
        words = " ".join(f"word{number}x{n}" for n in range(500))
        (work / f"note-{number}.txt").write_text(f"fact-file-{number} {words}\n")


async def run_session(
    name: str, format: Format, folder: Path, clients: Path, *, compacts: bool
) -> dict[str, Any]:
    """What came of it. `compacts`: the upstream compacts conversations itself."""
    work, home = folder / "work", folder / "home"
    _write_notes(work)
    home.mkdir()
    model = ScriptedModel({_RESTART: f"until test -e restarted; do sleep 0.1; done; {SHOW_NOTE}"})
    restarts: list[asyncio.Task[None]] = []
    prefixes = Prefixes(compacts)

    async def restart() -> None:
        await gateway.stop()
        await gateway.start()
        (work / "restarted").touch()

    async def reply(request: ReceivedRequest) -> Response:
        calls = model.calls
        prefixes.compare(request)
        response = await model.reply(request)
        if calls < model.calls == _SWITCH:
            model.refused[request.key] = status
        if calls < model.calls == _RESTART:
            restarts.append(asyncio.create_task(restart()))
        return response

    status = 401 if format is Format.MESSAGES else 429
    async with scripted_upstream(reply) as upstream:
        line = channel(
            format, upstream.address, accounts=_ACCOUNTS, traits={"compaction": compacts}
        )
        server = {"port": free_port(), "drain_timeout": 5}
        gateway = RestartedGateway(gateway_config(folder / "state", [line], server=server))
        await gateway.start()
        _, key = await gateway.daemon.operations.create_key("agent", "default")
        try:
            async with prefixes.recorded(gateway.daemon.address) as address:
                place = Place(work, home, clients, address, key)
                agent = _agent(name, place)
                for number, prompt in enumerate(_prompts(name)):
                    model.left = 0 if prompt.startswith("/") else _CALLS
                    await agent.ask(prompt, number)
            await asyncio.sleep(0.5)  # until the last row is settled
            rows = (await gateway.daemon.operations.list_requests(limit=200)).rows
        finally:
            for index, request in enumerate(upstream.requests):
                (folder / f"request-{index:02}.json").write_bytes(request.body)
            await gateway.stop()
    failed = [row for row in rows if row.state is not ExchangeState.OK]
    return {
        "turns": model.turns,
        "calls": model.calls,
        "compactions": model.compactions,
        "refused": model.refusals,
        "restarts": sum(task.done() for task in restarts),
        "facts": len(model.told),
        "forgotten": model.forgotten,
        "texts": len(place.output.texts),
        "errors": place.output.errors,
        "failed_rows": [f"{row.id} {row.status} {row.error_message}" for row in failed],
        "compared": prefixes.compared,
        "continued": prefixes.continued,
        "changed": prefixes.changed,
        "native": sum(row.lane == "native" and row.stop_reason is not None for row in rows),
        "dropped": sorted({row.dropped for row in rows if row.dropped}),
    }


if __name__ == "__main__":
    agent, format, folder, clients, *options = sys.argv[1:]
    result = asyncio.run(
        run_session(agent, Format(format), Path(folder), Path(clients), compacts=bool(options))
    )
    print(orjson.dumps(result, option=orjson.OPT_INDENT_2).decode())
