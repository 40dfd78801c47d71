"""Decides what the simulator says: thoughts, a text, or tool calls, and what it all costs.

This room must not know which format the answer leaves in.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import orjson

from gateway.simulator.errors import RequestError
from gateway.simulator.image import describe
from gateway.simulator.request import Attachment, Image, ModelRequest, Tool, count_tokens
from gateway.simulator.schema_sample import sample_object, sample_value

MAX_ECHO = 1_000
MAX_EXCERPT = 60
MAX_TOOLS_SHOWN = 5
_THOUGHTS = {"minimal": 1, "low": 1, "medium": 2, "high": 3}


class Stop(StrEnum):
    """Why an answer ends."""

    END = "end"
    LIMIT = "limit"
    SEQUENCE = "sequence"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class Call:
    """A tool call. A tool without a schema gets free text as its arguments."""

    tool: Tool
    arguments: dict[str, Any] | str

    @property
    def text(self) -> str:
        """The arguments as they are streamed."""
        if isinstance(self.arguments, str):
            return self.arguments
        return orjson.dumps(self.arguments).decode()

    @property
    def tokens(self) -> int:
        return count_tokens(self.tool.name) + count_tokens(self.text)


@dataclass(frozen=True, slots=True)
class Usage:
    """What the exchange cost, in tokens.

    ``input`` is the whole ask. ``known`` of it came with an earlier request, so a cache would
    have it; ``lasting`` of it will come again with the next one. ``output`` includes ``thinking``.
    """

    input: int
    cached: int
    cacheable: int
    output: int
    thinking: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the simulator says; empty texts are not said at all."""

    thinking: str
    text: str
    calls: tuple[Call, ...]
    stop: Stop
    sequence: str | None
    usage: Usage


def generate(ask: ModelRequest) -> Reply:
    """The one answer to this ask, cut to its stop sequences and its token limit."""
    calls = [_call(tool) for tool in _tools_to_call(ask)]
    thinking = _reasoning(ask, calls) if ask.effort else ""
    text, sequence = _stopped("" if calls else _text(ask), ask.stops)

    left = math.inf if ask.limit is None else ask.limit
    said_thinking = _cut(thinking, left)
    left -= count_tokens(said_thinking)
    said_text = _cut(text, left)
    said_calls = _fitting(calls, left)

    said = (said_thinking, said_text, len(said_calls))
    if said != (thinking, text, len(calls)):
        stop, sequence = Stop.LIMIT, None
    elif sequence is not None:
        stop = Stop.SEQUENCE
    else:
        stop = Stop.CALLS if calls else Stop.END

    spent = count_tokens(said_thinking)
    output = spent + count_tokens(said_text) + sum(call.tokens for call in said_calls)
    return Reply(
        thinking=said_thinking,
        text=said_text,
        calls=said_calls,
        stop=stop,
        sequence=sequence,
        usage=Usage(
            input=ask.tokens,
            cached=ask.cached_tokens,
            cacheable=ask.cacheable_tokens,
            output=output,
            thinking=spent,
        ),
    )


def _tools_to_call(ask: ModelRequest) -> list[Tool]:
    """The tools to call: those that must be, or those that the question names."""
    tools = [tool for tool in ask.tools if not ask.choice.only or tool.name in ask.choice.only]
    if ask.choice.mode == "required":
        if not tools:
            message = "A tool call is required, but none of the tools can be called."
            raise RequestError(message, param="tool_choice")
        return _with_parallel(ask, tools, _named(ask, tools) or _uncalled(ask, tools) or tools[:1])
    # A result is there to be used: calling again would keep an agent in a loop.
    if ask.choice.mode == "none" or ask.results:
        return []
    return _with_parallel(ask, tools, _named(ask, tools))


def _with_parallel(ask: ModelRequest, tools: list[Tool], first: list[Tool]) -> list[Tool]:
    """One call, or at least two at once where the question speaks of "parallel"."""
    if not (ask.choice.parallel and re.search(r"\bparallel\b", ask.question, re.IGNORECASE)):
        return first[:1]
    others = [tool for tool in tools if tool not in first]
    together = [*first, *others[: max(0, 2 - len(first))]]
    return together if len(together) > 1 else first


def _named(ask: ModelRequest, tools: list[Tool]) -> list[Tool]:
    return [
        tool for tool in tools if _names(ask.question, tool.name) and tool.name not in ask.called
    ]


def _uncalled(ask: ModelRequest, tools: list[Tool]) -> list[Tool]:
    """A client that always requires a call is done when it sees the last of its tools."""
    return [tool for tool in tools if tool.name not in ask.called][:1]


def _names(text: str, name: str) -> bool:
    """Whether a text names a tool, as in "get_weather" or, for short, "weather"."""
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
        return True
    *verb, noun = re.split(r"[_-]+", name)
    return bool(verb and noun) and bool(re.search(rf"\b{re.escape(noun)}\b", text, re.IGNORECASE))


def _call(tool: Tool) -> Call:
    if tool.schema is None:
        return Call(tool, f"simulated input for {tool.name}")
    return Call(tool, sample_object(tool.schema))


def _reasoning(ask: ModelRequest, calls: list[Call]) -> str:
    """More thoughts with more effort."""
    if calls:
        plan = f"I shall call {_listed([call.tool.name for call in calls])}."
    elif ask.schema is not None:
        plan = "I shall fill the schema."
    else:
        plan = "I shall say what reached me."
    thoughts = (
        f"The user said {_quoted(ask.question, MAX_EXCERPT)}.",
        f"I am a simulator, so there is little to ponder. {plan}",
        f"With {ask.effort} effort I look at it once more, and I stay with that.",
    )
    return " ".join(thoughts[: _THOUGHTS.get(ask.effort or "", len(thoughts))])


def _text(ask: ModelRequest) -> str:
    if ask.schema is not None:
        return orjson.dumps(sample_value(ask.schema)).decode()
    return "\n".join(_sentences(ask))


def _sentences(ask: ModelRequest) -> list[str]:
    """Says what reached the simulator, so that a newcomer sees what the gateway sent on."""
    said = [
        f"I am a simulator standing in for {ask.model}, reached through the {ask.format} format."
    ]
    if ask.question:
        said.append(f"You said: {_quoted(ask.question, MAX_ECHO)}")
    for use in ask.results:
        said.append(f"The tool {use.name} returned: {_quoted(use.text, MAX_ECHO)}")
    for part in ask.new_parts:
        if isinstance(part, Image):
            said.append(f"I see {describe(part.url)}.")
        elif isinstance(part, Attachment):
            said.append(f"I was given {part.name}, which I do not open.")
    if ask.instructions:
        said.append(f"My instructions begin: {_quoted(ask.instructions, MAX_EXCERPT)}")
    if ask.earlier_turns:
        said.append(f"Before that I read {ask.earlier_turns} earlier turns.")
    if ask.tools and ask.choice.mode != "none" and not ask.results:
        names = _listed([tool.name for tool in ask.tools[:MAX_TOOLS_SHOWN]])
        said.append(f"Name a tool and I call it: {names}.")
    return said


def _quoted(text: str, longest: int) -> str:
    return f"“{text}”" if len(text) <= longest else f"“{text[:longest]}…”"


def _listed(names: list[str]) -> str:
    return ", ".join(names)


def _stopped(text: str, stops: tuple[str, ...]) -> tuple[str, str | None]:
    """The text before whichever stop sequence comes first, and that sequence."""
    found = [(text.index(stop), stop) for stop in stops if stop in text]
    if not found:
        return text, None
    end, stop = min(found)
    return text[:end], stop


def _cut(text: str, tokens: float) -> str:
    return text if count_tokens(text) <= tokens else text[: int(tokens) * 4]


def _fitting(calls: list[Call], tokens: float) -> tuple[Call, ...]:
    """A call is whole or absent: client libraries cannot read half of one's arguments."""
    fitting: list[Call] = []
    for call in calls:
        tokens -= call.tokens
        if tokens < 0:
            break
        fitting.append(call)
    return tuple(fitting)
