"""Hypothesis strategies: prompts that every format can express, irregular ones that clients send
nevertheless, and settings of reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

import orjson
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import Image, Part, Source, Text, ToolCall, ToolResult
from gateway.core.prompt import (
    ChoiceMode,
    OutputFormat,
    OutputKind,
    Prompt,
    Reasoning,
    Role,
    Sampling,
    Tool,
    ToolChoice,
    ToolKind,
    Turn,
)
from gateway.core.target import EFFORTS, Target, ThinkingStyle
from gateway.wire.prompt.tool_names import sanitize_name, upstream_name
from tests.wire.event_strategy import objects

_PNG = "iVBORw0KGgoAAAANSUhEUg=="  # no codec reads more of it
_NONBLANK = (
    st.text(min_size=1, max_size=10)
    | st.sampled_from(["Hello, world. ", "\n\nTwo\n\nparagraphs", '"\\', "👩‍👩‍👧", "data: [DONE]"])
).filter(lambda text: bool(text.strip()) and not re.match("Error", text))
_TEXTS = _NONBLANK.map(Text)
_STOPS = st.sampled_from([0, 0, 1, 4]).flatmap(
    lambda count: st.lists(_NONBLANK, min_size=count, max_size=count, unique=True).map(tuple)
)
_IMAGES = st.sampled_from(
    [
        Image(Source(url="https://example.org/i.png")),
        Image(Source(data=_PNG, media_type="image/png")),
    ]
)
_NAMES = st.sampled_from(["look_up", "a-b", "odd name ü", "a.b", "n" * 70, "n" * 70 + "m"])
_LEAVES = st.sampled_from(
    [{"type": "string"}, {"type": "integer"}, {"type": "boolean", "description": "Yes or no."}]
)


@st.composite
def _schemas(draw: st.DrawFn) -> dict[str, object]:
    """Closed objects, which can be enforced in every format."""
    named = st.sampled_from(["city", "unit", "odd name"])
    properties = draw(st.dictionaries(named, _LEAVES, min_size=1, max_size=2))
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


_TOOLS = st.lists(
    st.builds(
        Tool,
        kind=st.just(ToolKind.FUNCTION),
        name=_NAMES,
        description=st.none() | _NONBLANK,
        schema=_schemas(),
        strict=st.none() | st.booleans(),
    ),
    max_size=3,
    unique_by=lambda tool: tool.name,
).map(tuple)


@st.composite
def _choices(draw: st.DrawFn, tools: tuple[Tool, ...]) -> ToolChoice | None:
    mode = draw(st.sampled_from([None, "auto", "none", "required", "named"]))
    if not tools or mode is None:
        return None
    name = draw(st.sampled_from(tools)).name if mode == "named" else None
    return ToolChoice(ChoiceMode(mode), name)


def _user_turn(draw: st.DrawFn) -> Turn:
    """A turn of the user."""
    return Turn(Role.USER, tuple(draw(st.lists(_TEXTS | _IMAGES, min_size=1, max_size=3))))


def _tool_turns(draw: st.DrawFn, tools: tuple[Tool, ...], so_far: int) -> list[Turn]:
    """An assistant's turn with calls, and a user's turn with all their results."""
    calls = [
        ToolCall(
            draw(st.sampled_from(["call_", "toolu-", "functions.f:", "ü" * 70])) + f"{so_far}{at}",
            draw(st.sampled_from(tools)).name,
            draw(objects()),
        )
        for at in range(draw(st.integers(1, 2)))
    ]
    results = [
        ToolResult(call.id, tuple(draw(st.lists(_TEXTS, max_size=2))), draw(st.booleans()))
        for call in calls
    ]
    before: list[Part] = draw(st.lists(_TEXTS, max_size=1))
    after: list[Part] = draw(st.lists(_TEXTS | _IMAGES, max_size=1))
    return [Turn(Role.ASSISTANT, (*before, *calls)), Turn(Role.USER, (*results, *after))]


def _turns(draw: st.DrawFn, tools: tuple[Tool, ...]) -> tuple[Turn, ...]:
    """System turns, then a conversation that begins and ends with the user."""
    system = draw(st.lists(_TEXTS, max_size=2))
    turns = [Turn(Role.SYSTEM, (text,)) for text in system] + [_user_turn(draw)]
    for at in range(draw(st.integers(0, 3))):
        match draw(st.sampled_from(["answer", "question", "calls"])):
            case "calls" if tools:
                turns += _tool_turns(draw, tools, at)
            case "question":
                turns.append(_user_turn(draw))
            case _:
                turns.append(Turn(Role.ASSISTANT, (draw(_TEXTS),)))
    return (*turns, _user_turn(draw))


_IRREGULAR_IDS = st.sampled_from(["call_1", "call_2", "functions.f:0", "ü" * 70, "x" * 80])
_IRREGULAR_PARTS: dict[Role, st.SearchStrategy[Part]] = {
    Role.SYSTEM: _TEXTS,
    Role.DEVELOPER: _TEXTS,
    Role.USER: _TEXTS
    | _IMAGES
    | st.builds(
        ToolResult,
        _IRREGULAR_IDS,
        st.lists(_TEXTS | _IMAGES | st.just(Text("")), max_size=2).map(tuple),
        st.booleans(),
    ),
    Role.ASSISTANT: _TEXTS
    | st.just(Text(" "))
    | st.builds(
        ToolCall, _IRREGULAR_IDS, _NAMES, objects() | st.sampled_from(["", "[1]", '{"a', "1"])
    ),
}


def _irregular_turns(draw: st.DrawFn) -> tuple[Turn, ...]:
    """A history as agents trim, repeat and interrupt it."""
    roles = st.sampled_from([Role.USER, Role.ASSISTANT, Role.ASSISTANT, Role.USER, Role.SYSTEM])
    return tuple(
        Turn(role, tuple(draw(st.lists(_IRREGULAR_PARTS[role], min_size=1, max_size=3))))
        for role in draw(st.lists(roles, min_size=1, max_size=5))
    )


def _output(schema: dict[str, object] | None) -> OutputFormat | None:
    if schema is None:
        return None
    return OutputFormat(kind=OutputKind.JSON_SCHEMA, schema=schema, name="answer")


@st.composite
def prompts(draw: st.DrawFn, *, irregular: bool = False) -> Prompt:
    """A prompt that every format can express; `irregular`: or one with a damaged history."""
    tools = draw(_TOOLS)
    schema = draw(st.none() | _schemas())
    number = st.none() | st.sampled_from([0, 0.25, 0.7, 1])
    return Prompt(
        format=draw(st.sampled_from(Format)),
        model="the-model-asked-for",
        turns=_irregular_turns(draw) if irregular and draw(st.booleans()) else _turns(draw, tools),
        stream=draw(st.booleans()),
        max_tokens=draw(st.integers(16, 64_000)),
        stop=draw(_STOPS),
        tools=tools,
        tool_choice=draw(_choices(tools)),
        parallel_tool_calls=draw(st.none() | st.booleans()),
        output=_output(schema),
        sampling=Sampling(temperature=draw(number), top_p=draw(number)),
        user=draw(st.none() | st.just("somebody")),
    )


_TOKENS = st.sampled_from([0, 1, 1023, 1024, 1025, 2047, 2048, 2049, 8192, 9216, 10**6])


@st.composite
def reasoning_requests(draw: st.DrawFn) -> tuple[Reasoning, int | None]:
    """Reasoning, and a limit of tokens that is often just above or below its budget."""
    budget = draw(st.none() | _TOKENS | st.integers(1024, 70_000))
    near = st.sampled_from([-1, 0, 1, 1023, 1024, 1025]).map(lambda more: (budget or 1024) + more)
    reasoning = Reasoning(
        enabled=draw(st.sampled_from([None, True, True, False])),
        effort=draw(st.none() | st.sampled_from([*EFFORTS, "enormous"])),
        budget=budget,
        mode=draw(st.none() | st.sampled_from(["adaptive", "between_tools"])),
        summary=draw(st.none() | st.sampled_from(["auto", "omitted", "summarized"])),
    )
    return reasoning, draw(st.none() | _TOKENS | near | near | st.integers(1, 70_000))


@st.composite
def thinking_targets(draw: st.DrawFn) -> Target:
    """Models that think in any style, with any limit."""
    return Target(
        model="upstream-model",
        origin="here",
        max_output=draw(st.none() | st.integers(1, 70_000) | _TOKENS.filter(bool)),
        thinking=draw(st.sampled_from([ThinkingStyle.BUDGET] * 4 + list(ThinkingStyle))),
        efforts=tuple(draw(st.lists(st.sampled_from(EFFORTS), unique=True))),
    )


def normalize_prompt(prompt: Prompt, format: Format) -> dict[str, Any]:
    """The content of a prompt that survives in `format`: equal before and after translation.

    System texts, adjacent turns of one role and adjacent texts are joined; an error of a tool is
    part of its text; ids and names are legal; arguments and schemas are values; defaults (free
    choice, parallel calls, automatic detail) are left out.
    """
    choice = prompt.tool_choice
    single = prompt.parallel_tool_calls is False and bool(prompt.tools)
    mode = str(choice.mode) if choice else "auto"
    output = prompt.output
    return {
        "turns": _normalize_turns(prompt.turns),
        "stream": prompt.stream,
        "max_tokens": prompt.max_tokens,
        "stop": prompt.stop,
        "tools": [
            (upstream_name(tool.name), tool.description, tool.schema, bool(tool.strict))
            for tool in prompt.tools
        ],
        "choice": (mode, upstream_name(choice.name) if choice and choice.name else None),
        "single": single and not (format is Format.MESSAGES and mode == "none"),
        "schema": output.schema if output else None,
        "sampling": prompt.sampling,
        "user": prompt.user,
    }


def without_tool_errors(turns: Iterable[Turn]) -> tuple[Turn, ...]:
    """The turns without errors of tools, for which most formats have no field."""
    return tuple(
        replace(
            turn,
            parts=tuple(
                replace(part, is_error=False) if isinstance(part, ToolResult) else part
                for part in turn.parts
            ),
        )
        for turn in turns
    )


def _normalize_turns(turns: Iterable[Turn]) -> list[Any]:
    items: list[Any] = []
    for role, run in groupby(turns, key=lambda turn: _MERGED_ROLES.get(turn.role, turn.role)):
        results: list[Any] = []
        for part in (part for turn in run for part in turn.parts):
            one = _normalize_part(part)
            if results and isinstance(one, str) and isinstance(results[-1], str):
                results[-1] += f"\n\n{one}"
            else:
                results.append(one)
        items.append((str(role), results))
    return items


_MERGED_ROLES = {Role.DEVELOPER: Role.SYSTEM}


def _normalize_part(part: Part) -> Any:
    match part:
        case Text(text):
            return text
        case Image(source):
            return source
        case ToolCall(id, name, arguments):
            return "call", sanitize_name(id), upstream_name(name), orjson.loads(arguments)
        case ToolResult(call_id, parts, is_error):
            content = "\n".join(part.text for part in parts if isinstance(part, Text))
            if is_error:
                content = f"Error: {content}" if content else "Error:"
            return "result", sanitize_name(call_id), content
        case _:
            raise AssertionError(f"no part of these prompts: {part}")
