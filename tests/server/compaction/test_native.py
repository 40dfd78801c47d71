"""Upstreams that compact conversations themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from tests.support.compactions import compacting_gateway, is_summary_request, tell_facts
from tests.support.gateway import channel, run_gateway
from tests.support.upstream import ReceivedRequest, Response, event_stream, json_response

CHAT, MESSAGES, RESPONSES = Format.CHAT, Format.MESSAGES, Format.RESPONSES
TRIGGER = {"type": "compaction_trigger"}
USER = {"type": "message", "role": "user", "content": "Hello"}
USAGE = {
    "input_tokens": 9,
    "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 11,
}


async def compact(request: ReceivedRequest) -> Response:
    """An upstream that encrypts what it compacts for the account."""
    if request.fields["input"][-1] != TRIGGER:
        return await tell_facts(request)
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": f"for-{request.key}"}
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": request.model,
        "output": [item],
        "usage": USAGE,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }
    if not request.streamed:
        return json_response(response)
    opening = response | {"status": "in_progress", "output": []}
    events = [
        {"type": "response.created", "response": opening},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": response},
    ]
    frames = [
        b"event: %b\ndata: %b\n\n"
        % (str(event["type"]).encode(), orjson.dumps(event | {"sequence_number": number}))
        for number, event in enumerate(events)
    ]
    return event_stream(b"".join(frames))


ACCOUNTS = {"accounts": [{"name": f"a{n}", "key": f"upstream-secret-{n}"} for n in range(4)]}
NATIVE = {"traits": {}} | ACCOUNTS


@pytest.mark.parametrize("streamed", [False, True])
async def test_conversation_stays_with_the_account(tmp_path: Path, streamed: bool) -> None:
    """Only it can read what it has compacted."""
    async with compacting_gateway(tmp_path, RESPONSES, line=NATIVE) as (gateway, upstream):
        upstream.respond_with(compact)
        keys: set[str] = set()
        for number in range(8):
            session = {"prompt_cache_key": f"session-{number}", "store": False}
            body = {"input": [USER, TRIGGER], "stream": streamed} | session
            answer = await gateway.post(RESPONSES, **body)
            raw = await answer.read()
            reply = (
                orjson.loads(raw.split(b"data: ")[-1])["response"]
                if streamed
                else orjson.loads(raw)
            )
            (item,) = reply["output"]
            key = upstream.last_request.key
            assert item["encrypted_content"] == f"for-{key}"
            assert upstream.last_request.fields["input"] == [USER, TRIGGER]
            keys.add(key)
            for turn in range(3):  # of other sessions, as far as the gateway can tell
                other = {"prompt_cache_key": f"other-{number}-{turn}", "store": False}
                answer = await gateway.post(RESPONSES, input=[item, USER], **other)
                assert answer.status == 200
                assert upstream.last_request.key == key
                assert upstream.last_request.fields["input"] == [item, USER]
        assert len(keys) > 1


UNREADABLE = json_response(
    {"error": {"message": "Encrypted content could not be decrypted or parsed.", "code": None}},
    status=400,
)


@pytest.mark.parametrize("is_shared", [False, True], ids=["own", "one organization"])
async def test_account_is_down(tmp_path: Path, is_shared: bool) -> None:
    """Others of its channel are asked; one that cannot read it says so, and loses nothing."""
    async with compacting_gateway(tmp_path, RESPONSES, line=NATIVE) as (gateway, upstream):
        upstream.respond_with(compact)
        answer = await gateway.post(RESPONSES, input=[USER, TRIGGER], store=False)
        (item,) = (await answer.json())["output"]
        owner = upstream.last_request.key

        async def answer_others(request: ReceivedRequest) -> Response:
            if request.key == owner:
                return json_response({"error": {"message": "busy"}}, status=429)
            return await tell_facts(request) if is_shared else UNREADABLE

        upstream.respond_with(answer_others)
        for _ in range(2):  # the second time it is known that the owner is unavailable
            answer = await gateway.post(RESPONSES, input=[item, USER], store=False)
            assert answer.status == (200 if is_shared else 503)
            assert upstream.last_request.key != owner
            assert upstream.last_request.fields["input"] == [item, USER]
        upstream.respond_with(tell_facts)
        assert {owner} == {each.key for each in upstream.requests[:2]}


async def test_the_account_is_not_known(tmp_path: Path) -> None:
    """After a restart the one that can read it is found, without a penalty for others."""
    accounts = {"accounts": [{"name": f"a{n}", "key": f"upstream-secret-{n}"} for n in range(2)]}
    async with compacting_gateway(tmp_path, RESPONSES, line=NATIVE | accounts) as (gateway, up):
        for owner in ("upstream-secret-0", "upstream-secret-1"):

            async def read_own(request: ReceivedRequest, owner: str = owner) -> Response:
                return await tell_facts(request) if request.key == owner else UNREADABLE

            up.respond_with(read_own)
            item = {"type": "compaction", "encrypted_content": f"for-{owner}"}
            for _ in range(3):
                answer = await gateway.post(RESPONSES, input=[item, USER], store=False)
                assert answer.status == 200
                assert up.last_request.fields["input"] == [item, USER]


@pytest.mark.parametrize("others", [(CHAT,), (MESSAGES,), (CHAT, MESSAGES)])
async def test_no_upstream_can_read_it(tmp_path: Path, others: tuple[Format, ...]) -> None:
    item = {"type": "compaction", "encrypted_content": "ZW5j"}
    async with compacting_gateway(tmp_path, *others) as (gateway, upstream):
        for streamed in (False, True):
            answer = await gateway.post(RESPONSES, input=[item, USER], stream=streamed)
            error = (await answer.json())["error"]
            assert (answer.status, error["param"]) == (400, "compaction")
            assert "only its own upstream can read" in error["message"]
        assert not upstream.requests


async def test_a_channel_of_the_format_is_left(tmp_path: Path) -> None:
    item = {"type": "compaction", "encrypted_content": "ZW5j"}
    async with compacting_gateway(tmp_path, CHAT, MESSAGES, RESPONSES, line=NATIVE) as (
        gateway,
        up,
    ):
        for streamed in (False, True):
            answer = await gateway.post(RESPONSES, input=[item, USER], stream=streamed, store=False)
            assert answer.status == 200
            assert up.last_request.format is RESPONSES
            assert up.last_request.fields["input"] == [item, USER]


async def test_messages_pass(tmp_path: Path) -> None:
    """Nothing of them changes: not the order of fields, not the beta."""
    async with compacting_gateway(tmp_path, MESSAGES, line=NATIVE) as (gateway, upstream):
        body: dict[str, Any] = {
            "model": "alpha-sonnet-4-6",
            "context_management": {"edits": [{"type": "compact_20260112"}]},
            "max_tokens": 9,
            "messages": [
                {"role": "user", "content": "fact-old"},
                {"role": "assistant", "content": [{"type": "compaction", "content": "fact-1"}]},
                {"role": "user", "content": "Go on."},
            ],
        }
        headers = {"anthropic-beta": "compact-2026-01-12, other-1"}
        answer = await gateway.post(MESSAGES, body, headers=headers)
        assert answer.status == 200
        request = upstream.last_request
        expected = orjson.dumps(body).replace(b"alpha-sonnet-4-6", b"upstream-model")
        assert request.body == expected
        assert "compact-2026-01-12" in request.headers["anthropic-beta"]


async def test_native_and_other_upstreams(tmp_path: Path) -> None:
    """Each gets what it can read, whichever comes first."""
    async with compacting_gateway(tmp_path / "a", MESSAGES) as (_, upstream):
        lines = [
            channel(MESSAGES, upstream.address, name="native"),
            channel(CHAT, upstream.address, name="other"),
        ]
        body = {
            "messages": [
                {"role": "user", "content": "word " * 3000},
                {"role": "assistant", "content": [{"type": "compaction", "content": "fact-1"}]},
                {"role": "user", "content": "Go on."},
            ]
        }
        beta = {"anthropic-beta": "compact-2026-01-12"}

        async def fail_native(request: ReceivedRequest) -> Response:
            if request.format is MESSAGES:
                assert b"word word" in request.body
                return json_response({"error": {"message": "busy"}}, status=529)
            return await tell_facts(request)

        upstream.respond_with(fail_native)
        async with run_gateway(tmp_path / "b", lines) as gateway:
            answer = await gateway.post(MESSAGES, headers=beta, **body)
            assert answer.status == 200
            assert upstream.last_request.format is CHAT
            assert b"word word" not in upstream.last_request.body
            assert b"fact-1" in upstream.last_request.body
            assert not any(map(is_summary_request, upstream.requests))
