"""What is known of earlier bodies changes nothing but the time that the next one takes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.target import Target, ThinkingStyle
from gateway.errors import GatewayError
from gateway.wire.json.edit import edit_object
from gateway.wire.json.limits import count_values
from gateway.wire.json.numbers import parse_json
from gateway.wire.prompt import known_turns, recent_bodies
from gateway.wire.prompt.recent_bodies import MAX_BYTES_OF_KEY, RecentBodies
from gateway.wire.registry import CODECS
from gateway.wire.token_estimate import estimate_tokens
from tests.bench.agent_turns import agent_body
from tests.support.cases import in_one_test
from tests.wire.golden_files import PROMPTS, TARGETS
from tests.wire.prompt_strategy import prompts

TOKEN = "a text that no client knows"
KEY = "key"
STRONG = Target(
    model="m",
    thinking=ThinkingStyle.BUDGET,
    system_turns=True,
    custom_tools=True,
    cache_marks=True,
    developer=True,
)
MARK = {"cache_control": {"type": "ephemeral"}}
LIST = {Format.CHAT: "messages", Format.MESSAGES: "messages", Format.RESPONSES: "input"}


@pytest.fixture(autouse=True)
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the smallest ones are continued."""
    monkeypatch.setattr(recent_bodies, "_LEAST_SHARED", 1)
    monkeypatch.setattr(recent_bodies, "_FIRST_PROBE", 16)
    monkeypatch.setattr(recent_bodies, "_PROBE_SIZE", 8)


@pytest.fixture
def settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much as possible of short conversations is known."""
    monkeypatch.setattr(known_turns, "UNSETTLED", 1)
    monkeypatch.setattr("gateway.wire.token_estimate.UNSETTLED", 1)


def read(recent: RecentBodies, raw: bytes, key: str = KEY) -> tuple[dict[str, Any], bool]:
    """The body, and whether it has continued another one."""
    parsed = recent.parse(key, raw)
    body = parse_json(raw) if parsed is None else parsed.body
    assert parsed is None or parsed.values == count_values(raw)
    recent.add(key, raw, body, count_values(raw), parsed)
    return body, parsed is not None


def outcomes(client: Format, raw: bytes, body: dict[str, Any]) -> Iterator[object]:
    """Everything that is made of a body, for upstreams of all formats; or the error."""
    codec = CODECS[client]
    try:
        prompt = codec.parse_prompt(body)
    except GatewayError as error:
        yield error.code, str(error)
        return
    yield prompt, estimate_tokens(prompt)
    for target in (TARGETS[client], STRONG):
        patched = codec.patch_prompt(body, prompt, target)
        yield edit_object(raw, body, patched), orjson.dumps(patched)
    for upstream in Format:
        for target in (TARGETS[upstream], STRONG):
            try:
                rendering = CODECS[upstream].render_prompt(prompt, target)
            except GatewayError as error:
                yield error.code, str(error)
                continue
            yield orjson.dumps(rendering.body), rendering.dropped, rendering.stop
            yield rendering.json_tool, rendering.fenced


def check(client: Format, bodies: list[dict[str, Any]]) -> int:
    """The number of bodies that have continued others."""
    recent, continued, kept = RecentBodies(TOKEN), 0, []
    for number, written in enumerate(bodies):
        raw = json.dumps(written).encode() if number % 5 == 4 else orjson.dumps(written)
        body, is_known = read(recent, raw)
        kept.append((raw, body))
        continued += is_known
        expected = list(outcomes(client, raw, parse_json(raw)))
        assert list(outcomes(client, raw, body)) == expected
        if written is bodies[-1]:  # another attempt
            assert list(outcomes(client, raw, body)) == expected
    for raw, body in kept:  # nothing that is shared was changed
        assert orjson.dumps(body) == orjson.dumps(parse_json(raw))
    return continued


def growing(body: dict[str, Any], list: str = "messages") -> list[dict[str, Any]]:
    """The body after each of its messages, with the other fields after them and before."""
    messages = body[list]
    rest = {name: value for name, value in body.items() if name != list}
    counts = [*range(1, len(messages) + 1), len(messages) - 1, len(messages)]
    last = [{list: messages[:count]} | rest for count in counts]
    return last + [rest | {list: messages[:count]} for count in counts[-2:]]


def _name(value: object) -> str | None:
    return value.name if isinstance(value, Path) else None


@pytest.mark.usefixtures("settled_at_once")
@pytest.mark.parametrize("client", LIST)
@in_one_test("case", PROMPTS, ids=_name)
def test_requests_of_the_fixtures_are_the_same(case: Path, client: Format) -> None:
    if (file := case / f"{client}.json").exists():
        body, name = orjson.loads(file.read_bytes()), LIST[client]
        if isinstance(body.get(name), list) and body[name]:
            check(client, growing(body, name))


@pytest.mark.usefixtures("settled_at_once")
@pytest.mark.parametrize("client", LIST)
@given(st.lists(prompts(irregular=True), min_size=1, max_size=3), st.data())
def test_generated_conversations_are_the_same(
    client: Format, parts: list[Any], data: st.DataObject
) -> None:
    """Histories of several prompts, whose last messages change: marks move, and calls repeat."""
    bodies: list[dict[str, Any]] = []
    for prompt in parts:
        try:
            bodies.append(CODECS[client].render_prompt(prompt, STRONG).body)
        except GatewayError:
            continue
    name = LIST[client]
    messages = [message for body in bodies for message in body[name]]
    written = []
    for count in range(1, len(messages) + 1):
        sent = messages[:count]
        if data.draw(st.booleans()):
            content = sent[-1].get("content")
            blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
            if blocks and all(isinstance(block, dict) for block in blocks):
                sent[-1] = sent[-1] | {"content": [*blocks[:-1], blocks[-1] | MARK]}
        written.append((bodies[0] if data.draw(st.booleans()) else bodies[-1]) | {name: sent})
    check(client, written)


@pytest.mark.parametrize("client", LIST)
def test_turns_of_an_agent_are_read_once(client: str) -> None:
    format, recent, turns = Format(client), RecentBodies(TOKEN), 12
    bodies = [orjson.loads(agent_body(client, "m", turn, "a")) for turn in range(turns)]
    assert check(format, bodies) >= turns - 4  # some are written with spaces
    before: Prompt | None = None
    for turn in range(turns):
        body, _ = read(recent, agent_body(client, "m", turn, "a"))
        prompt = CODECS[format].parse_prompt(body)
        if before is not None:
            assert prompt.tools is before.tools
            assert len({*map(id, prompt.turns)} - {*map(id, before.turns)}) <= 4
        before = prompt
    assert len(recent._bodies) == 1


CALL = {"id": "again", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USE = {"type": "tool_use", "id": "again", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "again", "content": "Done."}
ITEM = {"type": "function_call", "call_id": "again", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "again", "output": "Done."}
LOOPS: dict[Format, list[dict[str, Any]]] = {
    Format.CHAT: [
        {"role": "assistant", "content": "So.", "tool_calls": [CALL, CALL]},
        {"role": "tool", "tool_call_id": "again", "content": "Done."},
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "again", "content": "Done."},
        {"role": "system", "content": "Be brief."},
        {"role": "user", "name": "Ann", "content": "Go on."},
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "Yes."},
    ],
    Format.MESSAGES: [
        {"role": "assistant", "content": [{"type": "text", "text": "So."}, USE]},
        {"role": "user", "content": [RESULT]},
        {"role": "assistant", "content": [USE, USE | MARK]},
        {"role": "user", "content": [RESULT, RESULT, {"type": "text", "text": "Go on."}]},
        {"role": "system", "content": "Be brief.", "clear_at": "next_user_message"},
        {"role": "assistant", "content": " "},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Once more."},
    ],
    Format.RESPONSES: [
        {"type": "message", "role": "assistant", "content": "So."},
        ITEM,
        ITEM,
        OUTPUT,
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "sealed"},
        ITEM | {"type": "custom_tool_call", "input": "x"},
        OUTPUT | {"type": "custom_tool_call_output"},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "message", "role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "Go on."}]},
        {"type": "additional_tools", "tools": [{"type": "function", "name": "more"}]},
        {"type": "tool_search_output", "tools": [{"type": "function", "name": "found"}]},
        {"type": "item_reference", "id": "msg_1"},
        {"type": "compaction", "encrypted_content": "sealed"},
        {"type": "message", "role": "assistant", "content": "Yes."},
    ],
}
"""Calls repeat the ids of earlier ones, which are replaced."""
TOOLS: dict[Format, list[dict[str, Any]]] = {
    Format.CHAT: [{"type": "function", "function": {"name": "f"}}, {"type": "web_search"}],
    Format.MESSAGES: [
        {"name": "f", "input_schema": {"type": "object"}},
        {"name": "web_search", "type": "web_search_20250305"},
    ],
    Format.RESPONSES: [{"type": "function", "name": "f"}, {"type": "web_search"}],
}
CHOICES: dict[Format, list[Any]] = {
    Format.CHAT: [
        "auto",
        "none",
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"type": "function", "function": {"name": "f"}},
    ],
    Format.MESSAGES: [{"type": "auto"}, {"type": "none"}, {"type": "tool", "name": "f"}],
    Format.RESPONSES: ["auto", "none", {"type": "function", "name": "f"}],
}


@pytest.mark.usefixtures("settled_at_once")
@pytest.mark.parametrize("client", LOOPS)
def test_histories_that_branch_are_the_same(client: Format) -> None:
    """Each of the messages becomes another one, the rest follows, and the original comes back."""
    name = LIST[client]
    messages = [{"role": "user", "content": "Begin."}, *LOOPS[client], *LOOPS[client]]
    rest = {"model": "m", "max_tokens": 99, "tools": TOOLS[client]}
    bodies = growing({name: messages} | rest, name)
    for at in range(1, len(messages)):
        other = {"role": "user", "content": f"Another way, {at}."}
        for sent in (messages[:at], [*messages[:at], other, *messages[at + 1 :]], messages):
            choice = CHOICES[client][at % len(CHOICES[client])]
            bodies.append({name: sent} | rest | {"tool_choice": choice})
    assert check(client, bodies) > len(messages)


FIRST = b'{"model":"m","messages":[{"role":"user","content":"one"},{"role":"user","content":"two"}'
SIMILAR = {
    "the key again, later": FIRST + b',{"role":"user","content":"3"}],"messages":[{"role":"x"}]}',
    "the key again, escaped": FIRST
    + b',{"role":"user","content":"3"}],"m\\u0065ssages":[{"role":"x"}]}',
    "no list any more": FIRST + b',{"role":"user","content":"3"}],"messages":7}',
    "no object": FIRST + b',{"role":"user","content":"3"}]]',
    "cut off": FIRST + b',{"role":"user","content":',
    "nothing follows": FIRST + b"]}",
    "fewer": FIRST.rpartition(b",{")[0] + b"]}",
    "a longer last message": FIRST[:-1] + b',"name":"n"},{"role":"user","content":"3"}]}',
    "not an object": FIRST + b",7]}",
    "tools that are no list": FIRST + b',{"role":"user","content":"3"}],"tools":"none"}',
    "another key": FIRST.replace(b'"messages"', b'"messagez"') + b"]}",
    "large numbers": FIRST + b',{"role":"user","content":"3","n":123456789012345678901234567890}]}',
    "the token": FIRST + b',"%b"]}' % TOKEN.encode(),
}
BEFORE = {
    "twice": b'{"messages":[{"role":"user","content":"zero"}],' + FIRST[1:] + b"]}",
    "nested": b'{"a":{"messages":[{"role":"user","content":"zero"}]},' + FIRST[1:] + b"]}",
    "within a text": b'{"a":"\\"messages\\":[",' + FIRST[1:] + b"]}",
    "nested messages": FIRST[:-1] + b',"m":[{"role":"x"},{"role":"y"}]}]}',
    "tools that are no list": FIRST + b'],"tools":"none"}',
    "spaces": json.dumps(orjson.loads(FIRST + b"]}"), indent=1).encode(),
    "numbers": FIRST + b',{"role":"user","n":1.0},{"role":"user","n":98765432109876543210}]}',
}


@in_one_test("before", [FIRST + b"]}", *BEFORE.values()], ids=repr)
@in_one_test("after", SIMILAR, ids=str)
def test_similar_bodies_are_other_bodies(before: bytes, after: str) -> None:
    recent = RecentBodies(TOKEN)
    read(recent, before)
    similar = SIMILAR[after]
    more = b',{"role":"assistant","content":"3"}]'
    longer = before.removesuffix(b"]}") + more + b',"tools":[]}'
    for raw in (similar, before, longer, similar.replace(FIRST, before.removesuffix(b"]}"))):
        try:
            expected = orjson.dumps(parse_json(raw))
        except orjson.JSONDecodeError:
            assert recent.parse(KEY, raw) is None
            continue
        if isinstance(parse_json(raw), dict):
            assert orjson.dumps(read(recent, raw)[0]) == expected


def test_a_conversation_that_branches_goes_on() -> None:
    """Agents begin others with the same messages."""
    recent = RecentBodies(TOKEN)
    long = orjson.loads(agent_body("chat", "m", 30, "a"))
    read(recent, orjson.dumps(long))
    question = {"role": "user", "content": "A title, please."}
    short = long | {"messages": [*long["messages"][:3], question]}
    assert read(recent, orjson.dumps(short))[1]
    parsed = recent.parse(KEY, agent_body("chat", "m", 31, "a"))
    assert parsed is not None
    assert parsed.checked.known == len(long["messages"])


def test_other_keys_know_nothing_and_memory_is_bounded() -> None:
    recent = RecentBodies(TOKEN)
    raw, longer = (agent_body("chat", "m", turn, "a") for turn in (10, 11))
    read(recent, raw)
    assert recent.parse("another", longer) is None
    assert recent.parse(KEY, longer) is not None
    for key in range(4):
        for number in range(20):
            read(recent, agent_body("chat", "m", 75, f"b-{key}-{number}"), f"key-{key}")
            assert 0 < recent.bytes <= recent_bodies.MAX_BYTES
            own = recent._of_key[f"key-{key}"]
            assert sum(each.size for each in own) <= MAX_BYTES_OF_KEY
    assert recent.parse(KEY, longer) is None
    recent.clear()
    assert recent.bytes == 0
    assert not (recent._bodies or recent._of_key or recent._by_probe)
