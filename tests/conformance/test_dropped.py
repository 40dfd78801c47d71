"""What a format cannot say: named in a header, refused where a client insists, and refused at once
where the answer would mean something else.
"""

from __future__ import annotations

from typing import Any

import anthropic
import openai
import pytest

from gateway.core.formats import Format
from tests.conformance.neutral_reply import make_reply
from tests.conformance.pairs import FOREIGN, PAIRS, Clients, Pair, only
from tests.conformance.validating_upstream import ValidatingUpstream

pytestmark = pytest.mark.asyncio(loop_scope="session")

TUNED: dict[Format, dict[str, Any]] = {
    Format.CHAT: {"seed": 7, "frequency_penalty": 0.5},
    Format.MESSAGES: {"extra_body": {"top_k": 5}},
    Format.RESPONSES: {"extra_body": {"truncation": "auto"}},
}
LOST = {
    (Format.CHAT, Format.MESSAGES): "frequency_penalty, seed",
    (Format.CHAT, Format.RESPONSES): "frequency_penalty, seed",
    (Format.MESSAGES, Format.CHAT): "top_k",
    (Format.MESSAGES, Format.RESPONSES): "top_k",
    (Format.RESPONSES, Format.CHAT): "truncation",
    (Format.RESPONSES, Format.MESSAGES): "truncation",
}
OLD_VERSION = {"anthropic-version": "2023-06-01"}


async def ask(clients: Clients, pair: Pair, **headers: str) -> Any:
    """The raw answer to a question with a field that few formats have."""
    turns = [{"role": "user", "content": "Hello"}]
    fields = {"model": pair.model, "extra_headers": headers} | TUNED[pair.client]
    match pair.client:
        case Format.CHAT:
            raw: Any = clients.openai.chat.completions.with_raw_response
            return await raw.create(messages=turns, **fields)
        case Format.MESSAGES:
            fields["extra_headers"] = headers | OLD_VERSION
            raw = clients.anthropic.messages.with_raw_response
            return await raw.create(messages=turns, max_tokens=100, **fields)
        case Format.RESPONSES:
            raw = clients.openai.responses.with_raw_response
            return await raw.create(input=turns, store=False, **fields)


async def test_dropped_fields_are_named(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("Hello."))
    answer = await ask(clients, pair)
    lost = LOST.get((pair.client, pair.upstream))
    assert answer.headers.get("x-gateway-dropped") == lost
    (row,) = await clients.newest_rows(1)
    assert row.dropped == lost


async def test_strict_clients_get_an_error(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream
) -> None:
    vendor.play(make_reply("Hello."))
    headers = {"x-gateway-strict": "1"}
    lost = LOST.get((pair.client, pair.upstream))
    if lost is None:
        await ask(clients, pair, **headers)
        return
    with pytest.raises((openai.BadRequestError, anthropic.BadRequestError)) as raised:
        await ask(clients, pair, **headers)
    assert all(name in str(raised.value) for name in lost.split(", "))
    assert vendor.received == []


@only(pair for pair in PAIRS if pair.client is Format.CHAT and not pair.native)
async def test_fields_that_change_the_meaning_are_refused(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream
) -> None:
    if pair.again:
        vendor.play(make_reply("One."))
    with pytest.raises(openai.BadRequestError) as raised:
        await clients.openai.chat.completions.create(
            model=pair.model, messages=[{"role": "user", "content": "Hello"}], n=2
        )
    assert raised.value.param == "n"
    assert raised.value.code == "convert_request_failed"
    assert vendor.received == []


@only(pair for pair in FOREIGN if pair.client is Format.RESPONSES)
@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_not_found"),
        ({"prompt": {"id": "p"}}, "convert_request_failed"),
    ],
    ids=["previous response", "prompt"],
)
async def test_references_to_stored_responses_are_refused(
    clients: Clients, pair: Pair, vendor: ValidatingUpstream, fields: dict[str, Any], code: str
) -> None:
    with pytest.raises(openai.BadRequestError) as raised:
        await clients.openai.responses.create(model=pair.model, input="And then?", **fields)
    assert (raised.value.param, raised.value.code) == (next(iter(fields)), code)
    assert vendor.received == []
