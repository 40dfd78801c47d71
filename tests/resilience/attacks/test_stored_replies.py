"""No chain of stored responses stalls the others or takes much memory, and none is without end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any, Final

import orjson
import pytest
from aiohttp import ClientSession, TCPConnector

from gateway.core.formats import Format
from tests.resilience.attacks.large_images import request_body
from tests.resilience.attacks.target import ATTACKER, HOSTILE, MIB, Target, attack
from tests.support.gateway import PATHS
from tests.support.upstream import fixture_reply

pytestmark = pytest.mark.asyncio(loop_scope="package")

MODEL: Final = HOSTILE.format(Format.RESPONSES)
PATH: Final = PATHS[Format.RESPONSES]


@asynccontextmanager
async def attacker(target: Target) -> AsyncIterator[ClientSession]:
    connector = TCPConnector(limit=0, local_addr=(ATTACKER, 0))
    key = {"authorization": f"Bearer {target.key}", "content-type": "application/json"}
    async with ClientSession(target.address, connector=connector, headers=key) as http:
        yield http


async def create(http: ClientSession, body: bytes, previous: str | None = None) -> tuple[int, Any]:
    if previous is not None:
        body = b'{"previous_response_id":"%b",' % previous.encode() + body[1:]
    async with http.post(PATH, data=BytesIO(body)) as answer:
        content = await answer.read()
        return answer.status, orjson.loads(content)


def body_of(items: Any) -> bytes:
    return orjson.dumps({"model": MODEL, "input": items})


SHAPES: Final = {
    "large_texts": body_of([{"role": "user", "content": "word " * (4 * MIB)}]),
    "many_items": body_of([{"role": "user", "content": "x"}] * 40_000),
    "many_tools": body_of("x")[:-1]
    + b',"tools":'
    + orjson.dumps(
        [
            {
                "type": "function",
                "name": f"tool_{number}",
                "parameters": {"properties": {"store": {"type": "string"}}},
            }
            for number in range(20_000)
        ]
    )
    + b"}",
}


@pytest.mark.parametrize("shape", SHAPES)
@attack
async def test_a_chain_of_large_requests(target: Target, shape: str) -> None:
    """Until it is too large, then what can be read of it."""
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    async with attacker(target) as http:
        previous = None
        for _ in range(4):
            status, reply = await create(http, SHAPES[shape], previous)
            if status != 200:
                assert status in (400, 413, 503), reply
                break
            previous = reply["id"]
        for path in ("", "/input_items", "/input_items?limit=100"):
            async with http.get(f"{PATH}/{previous}{path}") as answer:
                assert answer.status == 200
                await answer.read()
        async with http.delete(f"{PATH}/{previous}") as answer:
            assert answer.status == 200
    target.hostile.requests.clear()


@attack
async def test_many_requests_continue_one_large_chain(target: Target) -> None:
    """Each is a few bytes, and stands for many."""
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    async with attacker(target) as http:
        _, first = await create(http, SHAPES["large_texts"])
        small = body_of("x")
        many = await asyncio.gather(*(create(http, small, first["id"]) for _ in range(30)))
        assert {status for status, _ in many} <= {200, 429, 503}
    target.hostile.requests.clear()


@attack
async def test_a_conversation_about_a_large_image(target: Target) -> None:
    """Every turn has the image again, from the database."""
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    image = await asyncio.to_thread(request_body, Format.RESPONSES, MODEL, 1, small_images=False)
    await target.measure()
    async with attacker(target) as http:
        status, reply = await create(http, image)
        assert status == 200, reply
        for _ in range(3):
            status, reply = await create(http, body_of("And now?"), reply["id"])
            assert status == 200, reply
    assert len(target.hostile.last_request.body) > len(image)
    target.hostile.requests.clear()


@attack
async def test_many_references_to_items(target: Target) -> None:
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    async with attacker(target) as http:
        await create(http, body_of("x"))
        reference = {"type": "item_reference", "id": "msg_1"}
        for count, expected in ((900, 200), (200_000, 400)):
            status, _ = await create(http, body_of([reference] * count))
            assert status == expected
    target.hostile.requests.clear()


@attack
async def test_many_references_to_a_large_item(target: Target) -> None:
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    async with attacker(target) as http:
        _, reply = await create(http, body_of("x" * 5 * MIB))
        async with http.get(f"{PATH}/{reply['id']}/input_items") as answer:
            item = orjson.loads(await answer.read())["data"][0]
        reference = {"type": "item_reference", "id": item["id"]}
        many = body_of([reference] * 400)
        replies = await asyncio.gather(*(create(http, many) for _ in range(10)))
        assert {status for status, _ in replies} <= {413, 429}
    target.hostile.requests.clear()


@attack
async def test_many_small_chains(target: Target) -> None:
    target.hostile.respond_with(fixture_reply(Format.RESPONSES))
    small = body_of("x")
    async with attacker(target) as http:
        for _ in range(20):
            replies = await asyncio.gather(*(create(http, small) for _ in range(25)))
            assert {status for status, _ in replies} == {200}
    target.hostile.requests.clear()
