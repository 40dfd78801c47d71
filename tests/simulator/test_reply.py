"""What the simulator replies."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.simulator.reply import Stop, generate
from gateway.simulator.request import ModelRequest, Part, RequestError, Tool, ToolChoice, Turn

TOOLS = tuple(Tool(name, {}) for name in ("get_weather", "Read", "take-note"))


def request(*parts: Part | str, **fields: Any) -> ModelRequest:
    turn = Turn("user", tuple(text(part) if isinstance(part, str) else part for part in parts))
    defaults: dict[str, Any] = {"model": "m", "instructions": ""}
    return ModelRequest(**defaults, **{"turns": (turn,), **fields})


def text(content: str) -> Part:
    return Part("text", content)


def called_tools(model_request: ModelRequest) -> list[str]:
    return [call.tool_name for call in generate(model_request).calls]


@pytest.mark.parametrize(
    ("question", "expected"),
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
def test_a_question_names_tools(question: str, expected: list[str]) -> None:
    assert called_tools(request(question, tools=TOOLS)) == expected


def test_context_before_the_question_names_no_tools() -> None:
    assert called_tools(request("You may use get_weather.", "hello", tools=TOOLS)) == []


def test_no_call_right_after_a_result() -> None:
    after_result = request(Part("result", "done", "Read"), "call get_weather", tools=TOOLS)
    assert called_tools(after_result) == []
    assert "The tool Read returned: “done”" in generate(after_result).text


def test_a_new_question_may_call_again() -> None:
    turns = (
        Turn("user", (text("Read"),)),
        Turn("assistant", (Part("call", "{}", "Read"),)),
        Turn("user", (Part("result", "done", "Read"),)),
        Turn("assistant", (text("There."),)),
        Turn("user", (text("Read again"),)),
    )
    assert called_tools(request(turns=turns, tools=TOOLS)) == ["Read"]


def test_the_notice_that_a_sub_agent_has_finished_starts_no_other() -> None:
    """As Claude Code sends it, after the turn that started the sub-agent has ended."""
    notice = (
        "<system-reminder>\n[SYSTEM NOTIFICATION - NOT USER INPUT]\n<task-notification>\n"
        '<summary>Agent "parallel description" finished</summary>\n'
        "<result>Name a tool and I call it: Agent, Read.</result>\n"
        "</task-notification>\n</system-reminder>"
    )
    turns = (
        Turn("user", (text("Use the tool Agent"),)),
        Turn("assistant", (Part("call", "{}", "Agent"),)),
        Turn("user", (Part("result", "Async agent launched.", "Agent"),)),
        Turn("assistant", (text("It is running."),)),
        Turn("user", (text(notice),)),
    )
    agents = (Tool("Agent", {}), Tool("Read", {}))
    after_notice = request(turns=turns, tools=agents)
    assert called_tools(after_notice) == []
    assert 'Agent "parallel description" finished' in generate(after_notice).text


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("<system-reminder>Agent</system-reminder>\nRead it", ["Read"]),
        ("Read it\n<task-notification>Agent</task-notification>", ["Read"]),
        ("Read it\n<system-reminder>Agent", ["Read"]),
        ("Read <file>Agent</file>", ["Agent"]),
    ],
)
def test_a_question_beside_a_notice_names_tools(question: str, expected: list[str]) -> None:
    agents = (Tool("Agent", {}), Tool("Read", {}))
    assert called_tools(request(question, tools=agents))[:1] == expected


def test_many_unclosed_notices_are_searched_in_linear_time() -> None:
    started = time.perf_counter()
    called_tools(request("<system-reminder>" * 100_000, tools=TOOLS))
    assert time.perf_counter() - started < 2


def test_a_required_call_needs_tools() -> None:
    with pytest.raises(RequestError):
        generate(request("hello", tool_choice=ToolChoice("required")))


def test_a_limit_cuts_thinking_first() -> None:
    complete = generate(request("hello", effort="low"))
    assert complete.stop is Stop.END
    limit = complete.thinking_tokens
    cut = generate(request("hello", effort="low", limit=limit))
    assert (cut.stop, cut.thinking, cut.text) == (Stop.LIMIT, complete.thinking, "")
    assert cut.output_tokens == cut.thinking_tokens == limit
    enough = generate(request("hello", effort="low", limit=complete.output_tokens))
    assert (enough.stop, enough.text) == (Stop.END, complete.text)


def test_a_call_is_complete_or_absent() -> None:
    question = "get_weather and Read in parallel"
    calls = generate(request(question, tools=TOOLS)).calls
    cut = generate(request(question, tools=TOOLS, limit=calls[0].tokens))
    assert (cut.stop, cut.calls) == (Stop.LIMIT, calls[:1])


def test_the_first_stop_sequence_wins() -> None:
    reply = generate(request("hello", stops=("simulator", "am")))
    assert (reply.stop, reply.text) == (Stop.END, "I ")
    cut = generate(request("hello", stops=("standing",), limit=1))
    assert cut.stop is Stop.LIMIT


def test_a_long_text_is_quoted_in_part() -> None:
    reply = generate(request("x" * 5000)).text
    assert reply.startswith("I am a simulator") and len(reply) < 1200
