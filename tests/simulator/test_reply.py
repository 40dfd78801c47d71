"""What the simulator decides to say, before any format writes it down."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.simulator.errors import RequestError
from gateway.simulator.reply import Stop, generate
from gateway.simulator.request import Choice, ModelRequest, Part, Text, Tool, ToolUse, Turn

TOOLS = tuple(Tool(name, {}) for name in ("get_weather", "Read", "take-note"))


def ask(*parts: Part | str, **more: Any) -> ModelRequest:
    said = tuple(Text(part) if isinstance(part, str) else part for part in parts)
    known: dict[str, Any] = {"format": "chat", "model": "m", "instructions": ""}
    return ModelRequest(**known, **{"turns": (Turn("user", said),), **more})


def names(asked: ModelRequest) -> list[str]:
    return [call.tool.name for call in generate(asked).calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("call get_weather", ["get_weather"]),
        ("what Weather is it?", ["get_weather"]),
        ("take a note", ["take-note"]),
        ("Read it", ["Read"]),
        ("I read a lot, weathered as I am", []),
        ("my_get_weather_2", []),
        ("get_weather, then Read", ["get_weather"]),
        ("get_weather and Read in parallel", ["get_weather", "Read"]),
        ("Read and another in parallel", ["Read", "get_weather"]),
        ("any two in Parallel", ["get_weather", "Read"]),
        ("unparalleled", []),
    ],
)
def test_which_tools_a_question_names(text: str, expected: list[str]) -> None:
    assert names(ask(text, tools=TOOLS)) == expected


def test_context_before_the_question_names_no_tools() -> None:
    assert names(ask("You may use get_weather.", "hello", tools=TOOLS)) == []


def test_no_call_right_after_a_result() -> None:
    asked = ask(ToolUse("Read", "done"), "call get_weather", tools=TOOLS)
    assert names(asked) == []
    assert "The tool Read returned: “done”" in generate(asked).text


def test_a_new_question_may_call_again() -> None:
    turns = (
        Turn("user", (Text("Read"),)),
        Turn("model", (ToolUse("Read", "{}"),)),
        Turn("user", (ToolUse("Read", "done"),)),
        Turn("model", (Text("There."),)),
        Turn("user", (Text("Read again"),)),
    )
    assert names(ask(turns=turns, tools=TOOLS)) == ["Read"]


def test_a_required_call_without_tools_is_refused() -> None:
    with pytest.raises(RequestError):
        generate(ask("hello", choice=Choice("required")))


def test_a_limit_spends_thinking_first() -> None:
    whole = generate(ask("hello", effort="low"))
    assert whole.stop is Stop.END
    spent = whole.usage.thinking
    cut = generate(ask("hello", effort="low", limit=spent))
    assert (cut.stop, cut.thinking, cut.text) == (Stop.LIMIT, whole.thinking, "")
    assert cut.usage.output == cut.usage.thinking == spent
    enough = generate(ask("hello", effort="low", limit=whole.usage.output))
    assert (enough.stop, enough.text) == (Stop.END, whole.text)


def test_a_call_is_whole_or_absent() -> None:
    both = "get_weather and Read in parallel"
    calls = generate(ask(both, tools=TOOLS)).calls
    cut = generate(ask(both, tools=TOOLS, limit=calls[0].tokens))
    assert (cut.stop, cut.calls) == (Stop.LIMIT, calls[:1])


def test_the_first_stop_sequence_wins() -> None:
    answer = generate(ask("hello", stops=("simulator", "am")))
    assert (answer.stop, answer.sequence, answer.text) == (Stop.SEQUENCE, "am", "I ")
    cut = generate(ask("hello", stops=("format",), limit=1))
    assert (cut.stop, cut.sequence) == (Stop.LIMIT, None)


def test_a_long_text_comes_back_shortened() -> None:
    text = generate(ask("x" * 5000)).text
    assert text.startswith("I am a simulator") and len(text) < 1200
