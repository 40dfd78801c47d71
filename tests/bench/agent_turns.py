"""`python -m tests.bench.agent_turns`: the CPU time of requests of a coding agent, whole replies.

Turns 1 to 60 of a growing conversation, and its 75th turn (188 KB, 75 calls with results, 40 tools)
again and again as another conversation's: what a gateway has never seen. The bare relay and other
checkouts (`--also NAME=DIR`) are measured in the same alternating rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import uvloop

from tests.bench import gateway_server, servers
from tests.bench.__main__ import parse_checkout
from tests.bench.client import Client, render_request
from tests.bench.gateway_server import Checkout
from tests.bench.limits import raise_open_files
from tests.bench.run import end_on_sigterm
from tests.bench.servers import Server, model_of

PAIRS = (
    *(("chat", "chat"), ("messages", "messages"), ("responses", "responses")),
    *(("messages", "chat"), ("chat", "messages"), ("responses", "chat"), ("responses", "messages")),
)
"""The formats of client and upstream."""
TURNS = 60
LONG_TURN = 75
TOOLS = 40
REPEATS = 20
"""Conversations that are new, in each round."""

_GUIDE = "Read before you write; run the tests after each change. "
_CODE = '    {0}.assertEqual(self.answer("question {1}"), {{"value": {1}, "note": "x\\ty"}})\n'
_LOG = "2026-01-02T03:04:{0:02} INFO worker-{1}: request /v1/items/{1} took {0} ms (status 200)\n"


def agent_body(client: str, model: str, turns: int, name: str) -> bytes:
    """The request after so many calls; `name` makes every text of the conversation its own."""
    system = f"You work on {name}. " + _GUIDE * 60
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": f"Mend the failing test of {name}."}
    ]
    for number in range(turns):
        messages += _turn(client, number, name)
    body: dict[str, Any] = {"model": model}
    if client == "chat":
        body["messages"] = [{"role": "system", "content": system}, *messages]
    elif client == "messages":
        body |= {"system": [{"type": "text", "text": system}], "messages": messages}
    else:
        body |= {"instructions": system, "input": messages, "store": False}
    limit = "max_output_tokens" if client == "responses" else "max_tokens"
    tools = [_tool(client, number) for number in range(TOOLS)]
    return orjson.dumps(body | {"tools": tools, limit: 4096})


def _turn(client: str, number: int, name: str) -> list[dict[str, Any]]:
    """A call and its result."""
    id, text = f"call_{number:04}", f"Step {number} of {name}: I look at the next file."
    arguments = {"path": f"{name}/tests/test_{number}.py", "lines": [1, 80], "context": True}
    if number % 2:
        found = "".join([_CODE.format(name, number * 40 + line) for line in range(17)])
    else:
        found = "".join([_LOG.format(line, number * 9 + line) for line in range(23)]) + name
    if client == "chat":
        function = {"name": "tool_7", "arguments": orjson.dumps(arguments).decode()}
        call = {"id": id, "type": "function", "function": function}
        return [
            {"role": "assistant", "content": text, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": id, "content": found},
        ]
    if client == "responses":
        call = {"type": "function_call", "call_id": id, "name": "tool_7"}
        said = {"type": "output_text", "text": text, "annotations": []}
        return [
            {"type": "message", "role": "assistant", "content": [said]},
            call | {"arguments": orjson.dumps(arguments).decode()},
            {"type": "function_call_output", "call_id": id, "output": found},
        ]
    use = {"type": "tool_use", "id": id, "name": "tool_7", "input": arguments}
    return [
        {"role": "assistant", "content": [{"type": "text", "text": text}, use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": id, "content": found}],
        },
    ]


def _tool(client: str, number: int) -> dict[str, Any]:
    fields = {
        f"field_{field}": {"type": "string", "description": f"What field {field} is for."}
        for field in range(4)
    }
    schema = {"type": "object", "properties": fields, "required": [f"field_{number % 4}"]}
    tool = {"name": f"tool_{number}", "description": f"Tool {number}. " + _GUIDE * 4}
    if client == "chat":
        return {"type": "function", "function": tool | {"parameters": schema}}
    if client == "responses":
        return {"type": "function"} | tool | {"parameters": schema}
    return tool | {"input_schema": schema}


async def send_all(server: Server, path: str, bodies: Sequence[bytes]) -> None:
    """One after the other over one connection. SystemExit if one fails."""
    replied: asyncio.Queue[str] = asyncio.Queue()
    client = Client(lambda _, error: replied.put_nowait(error))
    await asyncio.get_running_loop().create_connection(lambda: client, "127.0.0.1", server.port)
    for body in bodies:
        client.send(render_request(server.port, path, server.key, body))
        if error := await asyncio.wait_for(replied.get(), 20):
            raise SystemExit(f"{server.name}: {error}")
    client.close()


def cpu_ms(server: Server, client: str, upstream: str, bodies: Sequence[bytes]) -> float:
    """CPU time of a request, in ms."""
    path = server.path(upstream if server.transparent else client, f"whole-{upstream}")
    before = server.cpu_seconds()
    uvloop.run(send_all(server, path, bodies))
    return (server.cpu_seconds() - before) / len(bodies) * 1e3


def measure(tested: Sequence[Server], client: str, upstream: str, rounds: int) -> None:
    """Prints the medians of the rounds."""
    model = model_of(f"whole-{upstream}")
    found: dict[str, dict[str, list[float]]] = {each.name: {} for each in tested}
    for number in range(-1, rounds):
        body = partial(agent_body, client, model)
        growing = [body(turn, f"growing-{number}") for turn in range(1, LONG_TURN + 6)]
        new = [body(LONG_TURN, f"project-{number}-{repeat}") for repeat in range(REPEATS)]
        loads = {"new": new, "turns 1 to 60": growing[:TURNS], "next turn": growing[TURNS:]}
        for server in tested:
            for name, bodies in loads.items():
                spent = cpu_ms(server, client, upstream, bodies)
                if number >= 0:
                    found[server.name].setdefault(name, []).append(spent)
    size = len(agent_body(client, model, LONG_TURN, "project-0-0"))
    print(f"{client} <- {upstream}, {size:,} bytes: CPU ms of a request (ratio to the relay)")
    relay = found[tested[0].name]
    for server_name, times in found.items():
        texts = [
            f"{name} {median(spent):.2f} "
            f"({median([own / other for own, other in zip(spent, relay[name], strict=True)]):.2f})"
            for name, spent in times.items()
        ]
        print(f"  {server_name:10} " + ", ".join(texts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.agent_turns", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--pair", action="append", help="such as chat-messages")
    parser.add_argument("--also", action="append", type=parse_checkout, default=[])
    arguments = parser.parse_args()
    raise_open_files()
    end_on_sigterm()
    load_core, tested_core = servers.cores() or (None, None)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gateway-turns-")))
        upstream = stack.enter_context(servers.upstream(folder, load_core))
        tested = [stack.enter_context(servers.relay(folder, upstream, tested_core))]
        for checkout in (*arguments.also, Checkout()):
            started = gateway_server.gateway(
                folder / checkout.name, upstream, tested_core, checkout
            )
            tested.append(stack.enter_context(started))
        stack.enter_context(servers.on_core(load_core))
        for client, format in PAIRS:
            if not arguments.pair or f"{client}-{format}" in arguments.pair:
                measure(tested, client, format, arguments.rounds)


if __name__ == "__main__":
    main()
