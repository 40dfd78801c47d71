"""A reply costs the same however it travels: streamed, whole, or turned from the one into the other
on its way, whatever its client speaks.

Every fixture that has both forms is asked for in all pairs of formats over real connections, and
what the ledger says of the exchanges is compared. Independent of how usage is read.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import orjson
import pytest
import pytest_asyncio

from gateway.core.events import End, Usage
from gateway.core.formats import Format
from gateway.core.reply import collect_reply, count_output_chars
from gateway.quota.estimates import InputEstimates
from gateway.routing.health import Health
from gateway.store.records import RequestRow
from gateway.wire.registry import CODECS
from gateway.wire.token_estimate import estimate_tokens
from tests.conformance.pairs import PAIRS, Pair, pair_config
from tests.resilience.faults.sample_replies import in_quarters, streamed_reply, uncounted
from tests.resilience.faults.two_accounts import settled
from tests.support.fixture_json import expected_file, from_json, read_events
from tests.support.gateway import RunningGateway, run_gateway
from tests.support.upstream import (
    Response,
    ScriptedUpstream,
    event_stream,
    json_response,
    scripted_upstream,
)
from tests.wire.stream_cases import WITH_BODY, decode, param_id

pytestmark = [pytest.mark.timeout(60), pytest.mark.asyncio(loop_scope="module")]

RATES: Final = {
    "completion": "5.3",
    "cache_read": "0.107",
    "cache_write": "1.23",
    "cache_write_1h": "2.03",
}
MODEL, GROUP = "2.7", "1.1"
"""Multipliers, of which no two make a third."""


@dataclass(frozen=True, slots=True)
class Place:
    gateway: RunningGateway
    upstream: ScriptedUpstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Place]:
    async with scripted_upstream() as upstream:
        config = pair_config(upstream.address)
        for model in config["models"]:
            model["multiplier"] = float(MODEL)
            model["rates"] = {kind: float(rate) for kind, rate in RATES.items()}
        async with run_gateway(tmp_path_factory.mktemp("money"), **config) as gateway:
            await gateway.operations.update_group("default", multiplier=GROUP)
            yield Place(gateway, upstream)


@pytest.fixture(autouse=True)
def nothing_learned(place: Place) -> None:
    """What one test's upstream has told is nothing to the next one."""
    runtime = place.gateway.daemon.runtime
    runtime.health, runtime.input_estimates = Health(), InputEstimates(estimate_tokens)


def price(usage: Usage) -> int:
    """Micro-units, by hand."""
    rates = {kind: Fraction(rate) for kind, rate in RATES.items()}
    five_minutes = usage.cache_write_tokens - usage.cache_write_1h_tokens
    units = (
        usage.input_tokens
        - usage.cache_read_tokens
        - usage.cache_write_tokens
        + usage.cache_read_tokens * rates["cache_read"]
        + five_minutes * rates["cache_write"]
        + usage.cache_write_1h_tokens * rates["cache_write_1h"]
        + usage.output_tokens * rates["completion"]
    )
    micro = units * Fraction(MODEL) * Fraction(GROUP) * 1_000_000
    return int(micro + Fraction(1, 2))


@dataclass(frozen=True, slots=True)
class Billed:
    usage: Usage
    source: str
    micro: int

    @classmethod
    def of(cls, row: RequestRow) -> Billed:
        usage = Usage(
            input_tokens=row.input_tokens,
            cache_read_tokens=row.cache_read_tokens,
            cache_write_tokens=row.cache_write_tokens,
            cache_write_1h_tokens=row.cache_write_1h_tokens,
            output_tokens=row.output_tokens,
            reasoning_tokens=row.reasoning_tokens,
        )
        return cls(usage, row.usage_source, row.cost_micro)


FORMS: Final = {
    "streamed": (True, ".sse"),
    "whole": (False, ".json"),
    "folded": (False, ".sse"),
    "synthesised": (True, ".json"),
}
"""Whether the client asks for a stream, and what the upstream answers."""


async def bills(place: Place, pair: Pair, scripts: dict[str, Response]) -> dict[str, Billed]:
    """Of the same reply in every form; `scripts` are the upstream's by their endings."""
    gateway, bodies = place.gateway, [scripts[ending] for _, ending in FORMS.values()]
    place.upstream.respond_with(*bodies)
    ids = []
    for streamed, _ in FORMS.values():
        answer = await gateway.post(pair.client, model=pair.model, stream=streamed)
        assert answer.status == 200, await answer.text()
        ids.append(answer.headers["request-id"])
    rows = [await settled(gateway, id) for id in ids]
    assert {row.end_reason for row in rows} == {"complete"}
    return {form: Billed.of(row) for form, row in zip(FORMS, rows, strict=True)}


def cases(*left_out: str) -> Iterator[Any]:
    for pair in PAIRS:
        for format, path in WITH_BODY:
            if format is pair.upstream and path.parent.name not in left_out:
                yield pytest.param(pair, path, id=f"{pair.id}-{param_id(path)}")


def expected_usage(format: Format, path: Path) -> Usage | None:
    """What the fixture's author says that it tells."""
    end = from_json(read_events(expected_file(path, format)))[-1]
    assert isinstance(end, End)
    return end.usage


@pytest.mark.parametrize(("pair", "path"), [*cases()])
async def test_reported_usage_is_billed_in_every_form(place: Place, pair: Pair, path: Path) -> None:
    scripts = {
        ".sse": event_stream(path.read_bytes()),
        ".json": json_response(path.with_suffix(".json").read_bytes()),
    }
    billed = await bills(place, pair, scripts)
    result = expected_usage(pair.upstream, path)
    if result is None:
        assert {bill.source for bill in billed.values()} == {"estimated"}
        assert len({*billed.values()}) == 1
        result = billed["whole"].usage
    else:
        assert {bill.source for bill in billed.values()} == {"upstream"}
        assert {bill.usage for bill in billed.values()} == {replace(result, web_searches=0)}
    assert {bill.micro for bill in billed.values()} == {price(result)}


@pytest.mark.parametrize(("pair", "path"), [*cases("empty", "empty_text")])
async def test_estimates_follow_the_output_in_every_form(
    place: Place, pair: Pair, path: Path
) -> None:
    """A body of messages does not tell how arguments are spelled: only there forms may differ."""
    streamed = uncounted(streamed_reply((*map(ended, path.read_bytes().split(b"\n\n")),)), True)
    body = uncounted(in_quarters(path.with_suffix(".json").read_bytes()), False).body
    billed = await bills(
        place, pair, {".sse": event_stream(streamed.body), ".json": json_response(body)}
    )
    assert {bill.source for bill in billed.values()} == {"estimated"}
    assert len({bill.usage.input_tokens for bill in billed.values()}) == 1
    for form, (_, ending) in FORMS.items():
        usage = billed[form].usage
        result = streamed.body if ending == ".sse" else body
        assert usage.output_tokens == max(1, output_chars(pair.upstream, result, ending) // 4)
        assert usage.input_tokens > 0
        assert billed[form].micro == price(usage)


def ended(frame: bytes) -> bytes:
    return frame + b"\n\n"


def output_chars(format: Format, data: bytes, ending: str) -> int:
    """How many characters."""
    codec = CODECS[format]
    if ending == ".sse":
        return count_output_chars(collect_reply(decode(codec.decoder(), data)))
    return count_output_chars(codec.parse_reply(orjson.loads(data)))
