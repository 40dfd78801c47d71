"""`python -m tests.bench.prompts`: what it costs to put a large agent prompt into another format.

The yardstick is the least that any gateway must do with a body: load its JSON and dump it again.
Everything runs in this process; the medians of several turns are compared.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table

from gateway.core.formats import Format
from gateway.core.target import Target
from gateway.wire.codecs import CODECS

AIM = 12.0
SIZE = 1_000_000
LINE = 'def test_{0}(self) -> None:\n    assert self.answer("question {0}") == {{"value": {0}}}\n'


def schema() -> dict[str, Any]:
    text = {"type": "string", "description": "A path below the root of the project."}
    properties = {"path": text, "lines": {"type": "array", "items": {"type": "integer"}}}
    return {"type": "object", "properties": properties, "required": ["path"]}


def chat_body(rounds: int) -> dict[str, Any]:
    """What an agent has after so many calls of a tool that reads files."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": "You are a careful programmer. " * 200},
        {"role": "user", "content": "Mend the failing test."},
    ]
    for number in range(rounds):
        arguments = orjson.dumps({"path": f"tests/test_{number}.py", "lines": [1, 80]}).decode()
        function = {"name": "read_file", "arguments": arguments}
        call = {"id": f"call_{number}", "type": "function", "function": function}
        found = "".join(LINE.format(number * 40 + line) for line in range(40))
        messages += [
            {"role": "assistant", "content": f"Step {number}.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"call_{number}", "content": found},
        ]
    function = {"name": "read_file", "description": "Reads a file.", "parameters": schema()}
    tools = [
        {"type": "function", "function": function | {"name": f"tool_{number}"}}
        for number in range(24)
    ]
    tools.append({"type": "function", "function": function})
    return {"model": "beta-5.4", "stream": True, "messages": messages, "tools": tools}


def bodies() -> dict[Format, bytes]:
    """The same conversation of about `SIZE` bytes in every format."""
    rounds = SIZE // len(orjson.dumps(chat_body(10))) * 10
    chat = chat_body(rounds)
    prompt = CODECS[Format.CHAT].parse_prompt(chat)
    target = Target(model="alpha-sonnet-4-6")
    return {
        format: orjson.dumps(codec.render_prompt(prompt, target).body)
        for format, codec in CODECS.items()
    }


def milliseconds(step: Callable[[], object], turns: int) -> float:
    times = []
    for _ in range(turns):
        began = perf_counter()
        step()
        times.append((perf_counter() - began) * 1e3)
    return median(times)


def translate(body: bytes, client: Format, upstream: Format) -> bytes:
    prompt = CODECS[client].parse_prompt(orjson.loads(body))
    target = Target(model="upstream")
    return orjson.dumps(CODECS[upstream].render_prompt(prompt, target).body)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.prompts",
        description="A 1 MB agent prompt from every format to every format.",
    )
    parser.add_argument("--turns", type=int, default=15, help="turns of each measurement")
    parser.add_argument("--json", action="store_true", help="the figures as JSON on stdout")
    arguments = parser.parse_args()
    found = []
    for client, body in bodies().items():
        least = milliseconds(lambda body=body: orjson.dumps(orjson.loads(body)), arguments.turns)
        for upstream in Format:
            spent = milliseconds(
                lambda body=body, client=client, upstream=upstream: translate(
                    body, client, upstream
                ),
                arguments.turns,
            )
            row = {"client": client, "upstream": upstream, "bytes": len(body)}
            found.append(row | {"json_ms": least, "translate_ms": spent, "ratio": spent / least})
    if arguments.json:
        print(orjson.dumps(found, option=orjson.OPT_INDENT_2).decode())
        return
    table = Table(title="A large agent prompt, translated", title_justify="left")
    for heading in ("client", "upstream", "bytes", "JSON ms", "translated ms", "ratio", "aim"):
        table.add_column(heading)
    for row in found:
        met = "[green]met" if row["ratio"] <= AIM else "[red]missed"
        table.add_row(
            row["client"],
            row["upstream"],
            f"{row['bytes']:,}",
            f"{row['json_ms']:.1f}",
            f"{row['translate_ms']:.1f}",
            f"{row['ratio']:.1f}",
            f"<= {AIM:g} x {met}",
        )
    Console().print(table)


if __name__ == "__main__":
    main()
