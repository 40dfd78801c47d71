"""Turns to `system` and `messages`: order, roles and content that must not be empty."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.parts import (
    Document,
    Image,
    Part,
    ProviderData,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.wire.messages.render_prompt import (
    end_with_user,
    missing_leading_thinking,
    render_messages,
)
from gateway.wire.prompt.dropped import Dropped

SYSTEM, DEVELOPER, USER, ASSISTANT = Role
CALL = ToolCall("c1", "f")
ANSWER = ToolResult("c1", (Text("4"),))
USE = {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "c1", "content": "4"}


def turn(role: Role, *parts: Part | str, name: str | None = None) -> Turn:
    return Turn(role, tuple(Text(p) if isinstance(p, str) else p for p in parts), name=name)


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


def message(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": [text(b) if isinstance(b, str) else b for b in blocks]}


def rendered(
    *turns: Turn, format: Format = Format.CHAT, system_turns: bool = False
) -> tuple[list[Any], list[Any], set[str]]:
    dropped = Dropped(Format.MESSAGES)
    prompt = Prompt(format=format, model="m", turns=turns)
    target = Target(model="m", system_turns=system_turns)
    system, messages = render_messages(prompt, target, dropped)
    return system, messages, dropped.names


def test_leading_system_texts_become_system_blocks() -> None:
    assert rendered(
        turn(SYSTEM, "Be brief.", "And kind."), turn(DEVELOPER, "Use tools."), turn(USER, "Hi")
    ) == (
        [text("Be brief."), text("And kind."), text("Use tools.")],
        [message("user", "Hi")],
        set(),
    )


def test_system_text_alone_becomes_a_user_message() -> None:
    system, messages, _ = rendered(turn(SYSTEM, "Be brief."), turn(SYSTEM, "Say hello."))
    assert system == [text("Be brief.")]
    assert messages == [message("user", "Say hello.")]


def test_empty_prompt() -> None:
    assert rendered(turn(SYSTEM)) == ([], [message("user", ".")], set())


def test_roles_alternate() -> None:
    _, messages, _ = rendered(
        turn(USER, "a"), turn(USER, "b"), turn(ASSISTANT, "c"), turn(ASSISTANT, CALL)
    )
    assert messages == [
        message("user", "a", "b"),
        message("assistant", "c", USE),
        message(
            "user",
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": "No result was provided.",
                "is_error": True,
            },
        ),
    ]


def test_first_message_is_from_the_user() -> None:
    _, messages, _ = rendered(turn(ASSISTANT, "Hello!"), turn(USER, "Hi"))
    assert messages[:2] == [message("user", "."), message("assistant", "Hello!")]


def test_results_come_first() -> None:
    _, messages, _ = rendered(
        turn(USER, "go"), turn(ASSISTANT, CALL), turn(USER, "wait"), turn(USER, "now", ANSWER)
    )
    assert messages[1:] == [
        message("assistant", USE),
        message("user", RESULT, "wait", "now"),
    ]


def test_result_without_call_becomes_text() -> None:
    _, messages, _ = rendered(turn(USER, ANSWER))
    assert messages == [message("user", "[tool result for c1]", "4")]


def test_duplicate_call_ids_are_made_unique() -> None:
    _, messages, _ = rendered(
        turn(USER, "go"), turn(ASSISTANT, CALL), turn(USER, ANSWER), turn(ASSISTANT, CALL)
    )
    uses = [b for m in messages for b in m["content"] if b["type"] == "tool_use"]
    results = [b for m in messages for b in m["content"] if b["type"] == "tool_result"]
    assert uses[0]["id"] != uses[1]["id"]
    assert [use["id"] for use in uses] == [result["tool_use_id"] for result in results]


def test_empty_turns() -> None:
    _, messages, dropped_names = rendered(
        turn(USER, ""),
        turn(ASSISTANT, "a"),
        turn(USER, " "),
        turn(ASSISTANT, Thinking("gone")),
        turn(USER, "b"),
    )
    assert messages == [
        message("user", "(empty)"),
        message("assistant", "a"),
        message("user", "b"),
    ]
    assert dropped_names == {"thinking"}


def test_documents_get_text_beside_them() -> None:
    document = Document(text="x")
    block = {
        "type": "document",
        "source": {"type": "text", "media_type": "text/plain", "data": "x"},
    }
    _, messages, _ = rendered(turn(USER, document, document))
    assert messages == [message("user", block, block, ".")]
    _, messages, _ = rendered(turn(USER, document, "Read this."))
    assert messages == [message("user", block, "Read this.")]


def test_native_message_fields_round_trip() -> None:
    turn = Turn(USER, (Text("Hi"),), extra=ProviderData(Format.MESSAGES, {"mood": "good"}))
    _, messages, _ = rendered(turn, format=Format.MESSAGES)
    assert messages == [message("user", "Hi") | {"mood": "good"}]
    foreign = Turn(
        USER, (Text("Hi"),), extra=ProviderData(Format.RESPONSES, {"id": 1, "phase": "x"})
    )
    assert rendered(foreign)[1:] == ([message("user", "Hi")], {"content.phase"})


LATE = turn(DEVELOPER, "Mind the tone.")
REMINDER = "<system-reminder>Mind the tone.</system-reminder>"


def test_late_system_turn_where_supported() -> None:
    turns = (turn(USER, "a"), LATE, turn(SYSTEM, "Now."), turn(ASSISTANT, "b"), turn(USER, "c"))
    _, messages, dropped_names = rendered(*turns, LATE, system_turns=True)
    assert messages == [
        message("user", "a"),
        message("system", "Mind the tone.", "Now."),
        message("assistant", "b"),
        message("user", "c"),
        message("system", "Mind the tone."),
    ]
    assert dropped_names == set()


def test_late_system_turn_where_unsupported() -> None:
    _, messages, dropped_names = rendered(
        turn(USER, "a"), LATE, turn(ASSISTANT, CALL), LATE, turn(USER, ANSWER)
    )
    assert messages == [
        message("user", "a", REMINDER),
        message("assistant", USE),
        message("user", RESULT, REMINDER),
    ]
    assert dropped_names == set()


@pytest.mark.parametrize(
    "turns",
    [
        (turn(USER, "a"), turn(ASSISTANT, "b"), LATE, turn(ASSISTANT, "c"), turn(USER, "d")),
        (turn(USER, "a"), LATE, turn(USER, "b")),
        (
            turn(USER, "a"),
            turn(DEVELOPER, "Mind the tone.", Image(Source(url="u"))),
            turn(ASSISTANT, "b"),
            turn(USER, "c"),
        ),
    ],
)
def test_misplaced_system_turn_becomes_a_user_message(turns: tuple[Turn, ...]) -> None:
    _, messages, _ = rendered(*turns, system_turns=True)
    assert all(rendered_message["role"] != "system" for rendered_message in messages)
    assert sum(text(REMINDER) in rendered_message["content"] for rendered_message in messages) == 1


ANN, BOB = turn(USER, "hi", name="ann"), turn(USER, "hello", name="bob")


def test_several_users_are_named() -> None:
    _, messages, dropped_names = rendered(ANN, BOB)
    assert messages == [message("user", "ann: hi", "bob: hello")]
    assert dropped_names == set()


def test_names_of_functions_are_those_of_their_calls() -> None:
    function = Turn(USER, (ANSWER,), name="f")
    turns = (turn(USER, "go"), turn(ASSISTANT, CALL), function)
    assert rendered(*turns)[2] == set()


def test_prefill_is_stripped() -> None:
    messages = [message("user", "a"), message("assistant", "It is \n")]
    dropped = Dropped(Format.MESSAGES)
    end_with_user(messages, dropped, prefill=True)
    assert messages == [message("user", "a"), message("assistant", "It is")]
    end_with_user(messages, dropped, prefill=False)
    assert messages[1:] == [message("assistant", "It is"), message("user", "Continue.")]
    assert dropped.names == {"prefill"}
    end_with_user(messages, dropped, prefill=False)
    assert len(messages) == 3


THINKING = {"type": "thinking", "thinking": "", "signature": "s"}
HIDDEN = {"type": "redacted_thinking", "data": "d"}


@pytest.mark.parametrize(
    ("messages", "lacks"),
    [
        ([message("user", "a")], False),
        ([message("user", "a"), message("assistant", "b"), message("user", "c")], False),
        ([message("user", "a"), message("assistant", USE), message("user", RESULT)], True),
        (
            [message("user", "a"), message("assistant", THINKING, USE), message("user", RESULT)],
            False,
        ),
        ([message("user", "a"), message("assistant", HIDDEN, USE), message("user", RESULT)], False),
        (
            [
                *(message("user", "a"), message("assistant", THINKING, USE)),
                *(message("user", RESULT), message("assistant", USE), message("user", RESULT)),
            ],
            False,
        ),
        (
            [
                *(message("user", "a"), message("assistant", USE)),
                *(message("user", RESULT), message("assistant", THINKING, USE)),
                message("user", RESULT, "and?"),
            ],
            True,
        ),
        (
            [
                *(message("user", "a"), message("assistant", USE), message("user", RESULT)),
                *(message("assistant", "b"), message("user", "c")),
            ],
            False,
        ),
        (
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "content": "text"},
                message("user", RESULT),
                message("system", "x"),
            ],
            True,
        ),
    ],
)
def test_missing_leading_thinking(messages: Any, lacks: bool) -> None:
    assert missing_leading_thinking(messages) is lacks
