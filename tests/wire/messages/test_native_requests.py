"""Requests of the native lane: what is removed from histories of other formats."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.target import Target, ThinkingStyle
from gateway.wire.messages import CODEC
from gateway.wire.prompt.signatures import wrap

TARGET = Target(model="upstream-model", origin="here")
USER = {"role": "user", "content": "hi"}
TEXT = {"type": "text", "text": "Hello."}
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1"}]}
NATIVE = {"type": "thinking", "thinking": "Mine", "signature": "c2ln"}
FOREIGN = ProviderData(Format.RESPONSES, {"id": "rs_1", "encrypted_content": "E"})


def carried(signature: ProviderData | None, origin: str = "here") -> dict[str, Any]:
    return {"type": "thinking", "thinking": "Hm", "signature": wrap(signature, origin)}


def assistant(*blocks: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": list(blocks)}


def patched(*messages: Any, target: Target = TARGET, **fields: Any) -> dict[str, Any]:
    """Checked on the way: the client's own body is left as it was."""
    body = {"model": "m", "max_tokens": 9000, "messages": list(messages)} | fields
    before = orjson.dumps(body)
    result = CODEC.patch_prompt(body, CODEC.parse_prompt(body), target)
    assert orjson.dumps(body) == before
    return result


def test_ordinary_body_changes_only_its_model() -> None:
    messages = [USER, assistant(NATIVE, TEXT), USER]
    body = {"model": "m", "max_tokens": 9, "messages": messages, "thread": {"type": "create"}}
    result = CODEC.patch_prompt(body, CODEC.parse_prompt(body), TARGET)
    assert result == body | {"model": "upstream-model"}
    assert result["messages"] is messages


def test_reasoning_returns_to_its_origin() -> None:
    signed = ProviderData(Format.MESSAGES, "c2ln")
    hidden = {"type": "redacted_thinking", "data": wrap(signed, "here", redacted=True)}
    last = assistant(NATIVE, USE)
    messages = patched(*(USER, assistant(carried(signed), hidden, TEXT), USER, last, RESULT))[
        "messages"
    ]
    assert messages[1]["content"] == [
        {"type": "thinking", "thinking": "Hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "c2ln"},
        TEXT,
    ]
    assert messages[3] is last


@pytest.mark.parametrize(
    "thinking",
    [
        carried(FOREIGN),
        carried(None),
        carried(ProviderData(Format.MESSAGES, "c2ln"), "elsewhere"),
        {"type": "thinking", "thinking": "Hm", "signature": "gw1.!"},
        {"type": "redacted_thinking", "data": wrap(FOREIGN, "here", redacted=True)},
    ],
)
def test_foreign_reasoning_is_removed(thinking: Any) -> None:
    body = patched(USER, assistant(thinking, TEXT), USER, assistant(thinking), USER)
    assert body["messages"] == [USER, assistant(TEXT), USER, USER]


def test_foreign_searches_are_removed() -> None:
    id = "srvtoolu_gw1_ws_1"
    call = {"type": "server_tool_use", "id": id, "name": "web_search", "input": {"query": "x"}}
    search_result = {"type": "web_search_tool_result", "tool_use_id": id, "content": []}
    native = call | {"id": "srvtoolu_01"}
    body = patched(USER, assistant(call, search_result, TEXT, native), USER)
    assert body["messages"][1] == assistant(TEXT, native)


FIXED = {"type": "enabled", "budget_tokens": 2048}


def test_thinking_budget_is_disabled_without_leading_thinking() -> None:
    clearing = {"edits": [{"type": "clear_thinking_20251015"}]}
    loop = (USER, assistant(carried(FOREIGN), USE), RESULT)
    body = patched(*loop, thinking=FIXED, context_management=clearing)
    assert body["thinking"] == {"type": "disabled"}
    assert "context_management" not in body
    assert patched(*loop, thinking={"type": "adaptive"})["thinking"] == {"type": "adaptive"}
    assert "thinking" not in patched(*loop)
    kept = patched(USER, assistant(NATIVE, carried(FOREIGN), USE), RESULT, thinking=FIXED)
    assert kept["thinking"] == FIXED
    over = patched(*loop, assistant(TEXT), USER, thinking=FIXED)
    assert over["thinking"] == FIXED


def test_system_prompt_does_not_shift_the_messages() -> None:
    for system in (None, "Be brief.", [], [TEXT]):
        body = patched(USER, assistant(carried(FOREIGN), TEXT), system=system)
        assert body["messages"] == [USER, assistant(TEXT)]


ON = {"type": "enabled", "budget_tokens": 2000}
ADAPTIVE = {"type": "adaptive"}
OFF = {"type": "disabled"}


@pytest.mark.parametrize(
    ("style", "sent", "effort", "thinking", "new_effort"),
    [
        ("adaptive", ON, None, ADAPTIVE, "medium"),
        ("adaptive", ON | {"display": "omitted"}, "low", ADAPTIVE | {"display": "omitted"}, "low"),
        ("adaptive", OFF, None, OFF, None),
        (
            "adaptive",
            {"type": "between_tools", "x": 1},
            "high",
            {"type": "between_tools", "x": 1},
            "high",
        ),
        ("adaptive", None, "xhigh", None, "high"),
        ("always", ON, None, ADAPTIVE, "medium"),
        ("always", OFF, None, None, None),
        ("budget", ADAPTIVE, "low", {"type": "enabled", "budget_tokens": 1024}, None),
        ("budget", ON | {"x": 1}, None, ON | {"x": 1}, None),
        ("budget", None, "low", None, None),
        ("none", ON, "low", None, None),
        (None, ON, "low", ON, "low"),
        (None, ADAPTIVE, "xhigh", ADAPTIVE, "xhigh"),
        (
            None,
            {"type": "enabled", "budget_tokens": 500},
            None,
            {"type": "enabled", "budget_tokens": 500},
            None,
        ),
    ],
)
def test_thinking_in_a_form_that_the_model_accepts(
    style: str | None, sent: Any, effort: str | None, thinking: Any, new_effort: str | None
) -> None:
    """A form that it accepts stays; a model of unknown style gets what is sent."""
    target = Target(
        model="m", thinking=style and ThinkingStyle(style), efforts=("low", "medium", "high")
    )
    config = {"output_config": {"effort": effort, "y": 2}} if effort else {}
    body = patched(USER, target=target, **({"thinking": sent} if sent else {}), **config)
    assert body.get("thinking") == thinking
    new_config = {"effort": new_effort} if new_effort else {}
    assert body.get("output_config", {}) == ({"y": 2} if effort else {}) | new_config


def test_what_clears_thinking_goes_with_it() -> None:
    target = Target(model="m", thinking=ThinkingStyle.NONE)
    clearing = {"edits": [{"type": "clear_thinking_20251015"}]}
    body = patched(USER, target=target, thinking=ON, context_management=clearing)
    assert body.keys() == {"model", "max_tokens", "messages"}


def test_generated_citations_are_left_out() -> None:
    """Upstreams refuse one without an encrypted index of their own."""
    location = {"type": "web_search_result_location", "url": "https://a.example", "title": "A"}
    generated = location | {"cited_text": "x", "encrypted_index": ""}
    own = generated | {"encrypted_index": "aWR4"}
    turn = assistant(TEXT | {"citations": [generated, own]}, TEXT | {"citations": [generated]})
    messages = patched(USER, turn, USER)["messages"]
    assert messages[1]["content"] == [TEXT | {"citations": [own]}, TEXT]
    body = {"model": "m", "max_tokens": 9, "messages": [USER, turn, USER]}
    rendered = CODEC.render_prompt(CODEC.parse_prompt(body), TARGET).body["messages"]
    assert rendered[1]["content"] == [TEXT | {"citations": [own]}, TEXT]
