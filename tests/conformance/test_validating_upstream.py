"""The validating upstream itself: it takes what vendors take, and refuses what they refuse."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from aiohttp import ClientSession

from gateway.core.formats import Format
from tests.conformance.neutral_reply import make_reply
from tests.conformance.request_types import violations
from tests.conformance.rules.ids import IssuedIds
from tests.conformance.rules.responses import ENCRYPTED, WITHOUT_REASONING
from tests.conformance.validating_upstream import RULES, validating_upstream

ISSUED = IssuedIds({"SEAL": "Hm.", "BLACK": ""}, {"rs_1": "SEAL"}, {"msg_1"})
USER = {"role": "user", "content": "Hello"}
CLOCK = {"name": "clock", "input_schema": {"type": "object"}}
FUNCTION = {"name": "clock", "parameters": {"type": "object"}}
CALLS = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": "{}"}}
CALL = {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "noon"}
REASONING_ITEM = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "SEAL",
}
USE = {"type": "tool_use", "id": "c1", "name": "clock", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "noon"}
PICTURE = {"type": "base64", "media_type": "image/png", "data": "AAAA"}


def refusals(format: Format, fields: dict[str, Any]) -> list[str]:
    match format:
        case Format.CHAT:
            body: dict[str, Any] = {"model": "m", "messages": [USER]}
        case Format.MESSAGES:
            body = {"model": "m", "max_tokens": 100, "messages": [USER]}
        case Format.RESPONSES:
            body = {"model": "m", "input": [USER]}
    body |= fields
    raw = orjson.dumps(body)
    streamed = body.get("stream") is True
    wrong = violations(format, raw, streamed=streamed, old=True, extended=False)
    return wrong or [*RULES[format](body, ISSUED)]


def chat(*turns: Any, **fields: Any) -> tuple[Format, dict[str, Any]]:
    return Format.CHAT, {"messages": [*turns]} | fields


def messages(*turns: Any, **fields: Any) -> tuple[Format, dict[str, Any]]:
    return Format.MESSAGES, {"messages": [*turns]} | fields


def responses(*items: Any, **fields: Any) -> tuple[Format, dict[str, Any]]:
    return Format.RESPONSES, {"input": [*items]} | fields


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": [*blocks]}


def user_turn(*blocks: Any) -> dict[str, Any]:
    return {"role": "user", "content": [*blocks]}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def thinking(signature: str, words: str = "Hm.") -> dict[str, Any]:
    return {"type": "thinking", "thinking": words, "signature": signature}


TOOL_TURN = {"role": "assistant", "tool_calls": [CALLS]}
TOOL_RESULT = {"role": "tool", "tool_call_id": "c1", "content": "noon"}
FUNCTIONS = {"tools": [{"type": "function", "function": FUNCTION}]}
FLAT = {"tools": [{"type": "function", "strict": False, **FUNCTION}]}
CLOCKS = {"tools": [CLOCK]}
BUDGET = {"max_tokens": 3000, "thinking": {"type": "enabled", "budget_tokens": 2000}}


@pytest.mark.parametrize(
    ("format", "fields"),
    [
        chat(USER, TOOL_TURN, TOOL_RESULT, **FUNCTIONS, tool_choice="auto"),
        chat(USER, stream=True, stream_options={"include_usage": True}),
        messages(USER, assistant(thinking("SEAL"), USE), user_turn(RESULT, text("and?")), **CLOCKS),
        messages(USER, assistant(thinking("SEAL"), USE), user_turn(RESULT), **CLOCKS, **BUDGET),
        messages(USER, assistant({"type": "redacted_thinking", "data": "BLACK"}, text("a")), USER),
        responses(USER, REASONING_ITEM, CALL, OUTPUT, **FLAT),
        responses(USER, {"role": "assistant", "content": "Hi", "type": "message"}, USER),
    ],
)
def test_accepted_requests(format: Format, fields: dict[str, Any]) -> None:
    assert refusals(format, fields) == []


@pytest.mark.parametrize(
    ("case", "reason"),
    [
        (chat(), "must not be empty"),
        (chat(USER, unknown=1), "unknown: Extra inputs"),
        (chat(user_turn(text("a") | {"cache_control": {}})), "0.cache_control: Extra inputs"),
        (chat({"role": "assistant", "content": "a", "reasoning_content": "b"}), "Extra inputs"),
        (chat(USER, TOOL_TURN, USER, TOOL_RESULT, **FUNCTIONS), "must be followed"),
        (chat(USER, TOOL_RESULT), "no call 'c1'"),
        (chat(USER, TOOL_TURN), "must be followed"),
        (chat(USER, {"role": "assistant", "content": ""}), "neither content nor"),
        (chat(USER, TOOL_TURN | {"tool_calls": []}), "must not be empty"),
        (chat(USER, tool_choice="auto"), "tool_choice: only with tools"),
        (chat(USER, tools=[]), "tools: must not be empty"),
        (chat(USER, **FUNCTIONS, parallel_tool_calls="yes"), "valid boolean"),
        (chat(USER, stream_options={"include_usage": True}), "only with stream"),
        (chat(USER, stop=["a"] * 5), "at most 4"),
        (chat(USER, max_tokens=1, max_completion_tokens=1), "not together"),
        (chat(USER, response_format={"type": "json_object"}), "the word 'json'"),
        (chat(USER, user="x" * 65), "at most 64"),
        (
            chat(USER, tools=[{"type": "function", "function": FUNCTION | {"strict": True}}]),
            "strict wants additionalProperties false",
        ),
        (
            chat(user_turn({"type": "image_url", "image_url": {"url": "AAAA"}})),
            "neither an address",
        ),
        (messages(), "first message must be"),
        (messages(USER, USER), "in a row"),
        (messages(assistant(text("a"))), "first message must be"),
        (messages(user_turn(text(" "))), "non-empty"),
        (messages(USER, assistant(text("a "))), "ends with whitespace"),
        (messages(user_turn(text("a") | {"x": 1})), "0.x: Extra inputs"),
        (messages(USER, system=[text("")]), "non-empty"),
        (messages(USER, top_k=-1), "greater than or equal"),
        (messages(USER, temperature=1.7), "less than or equal to 1"),
        (messages(USER, assistant(USE), user_turn(text("b"), RESULT), **CLOCKS), "must come first"),
        (
            messages(USER, assistant(USE), user_turn(text("b")), **CLOCKS),
            "are answered by results []",
        ),
        (messages(user_turn(RESULT), **CLOCKS), "calls [] are answered"),
        (messages(USER, assistant(USE), user_turn(RESULT)), "required where the history"),
        (messages(USER, assistant(USE | {"id": "a.b"}), **CLOCKS), "characters that ids"),
        (messages(USER, assistant(thinking("FAKE"), text("a")), USER), "Invalid `signature`"),
        (messages(USER, assistant(thinking("SEAL", "Hm")), USER), "Invalid `signature`"),
        (messages(USER, assistant({"type": "redacted_thinking", "data": "x"})), "Invalid `data`"),
        (
            messages(USER, assistant(USE), user_turn(RESULT), **CLOCKS, **BUDGET),
            "start with a thinking",
        ),
        (messages(USER, **BUDGET | {"max_tokens": 2000}), "less than max_tokens"),
        (messages(USER, **BUDGET, temperature=0.5), "may only be 1"),
        (messages(USER, **BUDGET, **CLOCKS, tool_choice={"type": "any"}), "when it forces a tool"),
        (messages(USER, tool_choice={"type": "auto"}), "there are no tools"),
        (messages(USER, **CLOCKS, tool_choice={"type": "tool", "name": "x"}), "no tool 'x'"),
        (messages(user_turn({"type": "image", "source": PICTURE})), "is not of type image/png"),
        (
            messages(user_turn(*[text("a") | {"cache_control": {"type": "ephemeral"}}] * 5)),
            "at most 4 blocks",
        ),
        (
            messages(
                USER,
                assistant(USE),
                user_turn(
                    RESULT | {"content": [text("a") | {"cache_control": {"type": "ephemeral"}}]}
                ),
                **CLOCKS,
            ),
            "belongs to the tool_result",
        ),
        (
            messages(
                USER,
                output_config={"format": {"type": "json_schema", "schema": {"type": "object"}}},
            ),
            "additionalProperties must be false",
        ),
        (responses(), "must not be empty"),
        (responses(USER, max_output_tokens=1), "at least 16"),
        (responses(USER, CALL, **FLAT), "no output for call"),
        (responses(USER, OUTPUT, **FLAT), "no call 'c1'"),
        (responses(USER, CALL | {"id": "fc_9"}, OUTPUT, **FLAT), "'fc_9' is not known"),
        (responses(USER, REASONING_ITEM), "the item that must follow"),
        (responses(USER, REASONING_ITEM, USER), "the item that must follow"),
        (responses(USER, REASONING_ITEM | {"id": "rs_2"}, CALL, OUTPUT), "does not belong"),
        (responses(USER, REASONING_ITEM | {"encrypted_content": "x"}, CALL, OUTPUT), "be verified"),
        (responses(USER, tools=[{"type": "function", "strict": None, **FUNCTION}]), "strict wants"),
        (responses(USER, stop=["a"]), "stop: Extra inputs"),
        (responses({"role": "assistant", "content": []}), "must not be empty"),
        (
            responses({"role": "assistant", "content": [{"type": "input_text", "text": "a"}]}),
            "no input_text from the assistant",
        ),
    ],
)
def test_refused_requests(case: tuple[Format, dict[str, Any]], reason: str) -> None:
    assert any(reason in user_turn for user_turn in refusals(*case)), refusals(*case)


async def test_replies_to_clients() -> None:
    """Over HTTP: an answer, or 400 with a reason that stays on record."""
    fields = {"json": chat(USER, model="m")[1], "headers": {"authorization": "Bearer k"}}
    async with validating_upstream() as upstream, ClientSession(upstream.address) as http:
        upstream.play(make_reply("Hello."), make_reply("Never said."))
        answer = await http.post("/v1/chat/completions", **fields)
        assert (await answer.json())["choices"][0]["message"]["content"] == "Hello."
        assert upstream.violations == []

        answer = await http.post("/v1/chat/completions", json=fields["json"])
        assert answer.status == 400
        fields["json"]["surprise"] = 1
        answer = await http.post("/v1/chat/completions", **fields)
        assert (answer.status, len(upstream.received)) == (400, 1)
        body = (await answer.json())["error"]["message"]
        assert body.startswith("surprise: Extra inputs")
        assert upstream.violations == [
            "/v1/chat/completions: no credential",
            f"/v1/chat/completions: {body}",
        ]


async def test_the_rules_of_vendors_can_be_switched_off() -> None:
    headers = {
        "anthropic-version": "2023-06-01",
        "x-api-key": "k",
        "anthropic-beta": "x-2020-01-01",
    }
    _, body = messages(USER, assistant(thinking("FAKE"), text("a")), USER, model="m", max_tokens=9)
    plain = {"model": WITHOUT_REASONING, "input": "Hi", "include": [ENCRYPTED]}
    async with validating_upstream() as upstream, ClientSession(upstream.address) as http:
        for path, refused in (("/v1/messages", body), ("/v1/responses", plain)):
            upstream.play(make_reply("Hello."))
            answer = await http.post(path, json=refused, headers=headers)
            assert answer.status == 400
            if path == "/v1/messages":
                assert "Unexpected value 'x-2020-01-01'" in upstream.violations[0]
                assert "Invalid `signature`" in upstream.violations[1]
            else:
                assert "Encrypted content is not supported" in upstream.violations[0]
            upstream.play(make_reply("Hello."), strict=False)
            answer = await http.post(path, json=refused, headers=headers)
            assert (answer.status, upstream.violations) == (200, [])


async def test_an_unscripted_request_is_refused() -> None:
    version = {"anthropic-version": "2023-06-01", "x-api-key": "k"}
    body = {"model": "m", "max_tokens": 1, "messages": [USER]}
    async with validating_upstream() as upstream, ClientSession(upstream.address) as http:
        upstream.play()
        answer = await http.post("/v1/messages", json=body, headers=version)
        assert answer.status == 500
        assert upstream.violations == ["/v1/messages: asked once too often"]
