"""What it costs to translate a 1 MB agent prompt, in this process: every format to every format.

The baseline is the least that any gateway must do with a body: load its JSON and dump it again.
This is the only module of the bench that imports the gateway.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import process_time

import orjson

from gateway.core.formats import Format
from gateway.core.target import Target as ModelTarget
from gateway.wire.registry import CODECS
from tests.bench.agent_prompt import chat_prompt
from tests.bench.report import REFERENCE, Row, Target

AT_MOST = 12.0
SIZE = 1_000_000
QUICK_TURNS, TURNS = 5, 15


def bodies() -> dict[Format, bytes]:
    """The same conversation of about `SIZE` bytes in every format."""
    prompt = CODECS[Format.CHAT].parse_prompt(chat_prompt(SIZE))
    target = ModelTarget(model="alpha-sonnet-4-6")
    return {
        format: orjson.dumps(codec.render_prompt(prompt, target).body)
        for format, codec in CODECS.items()
    }


def milliseconds(step: Callable[[], object], turns: int) -> float:
    """Processor time, as other work on the machine does not count."""
    times = []
    for _ in range(turns):
        began = process_time()
        step()
        times.append((process_time() - began) * 1e3)
    return median(times)


def translate(body: bytes, client: Format, upstream: Format) -> bytes:
    prompt = CODECS[client].parse_prompt(orjson.loads(body))
    target = ModelTarget(model="upstream")
    return orjson.dumps(CODECS[upstream].render_prompt(prompt, target).body)


def measure(quick: bool) -> list[Row]:
    turns = QUICK_TURNS if quick else TURNS
    rows = []
    for client, body in bodies().items():
        least = milliseconds(lambda body=body: orjson.dumps(orjson.loads(body)), turns)
        for upstream in Format:
            spent = milliseconds(
                lambda body=body, client=client, upstream=upstream: translate(
                    body, client, upstream
                ),
                turns,
            )
            rows.append(
                Row(
                    name=f"translate:{client}-{upstream}",
                    title=f"translate {len(body):,} bytes {client} → {upstream}",
                    unit="ms",
                    values={REFERENCE: least, "gateway": spent},
                    targets=(Target(AT_MOST, REFERENCE),),
                )
            )
    return rows
