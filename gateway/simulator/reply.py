"""Decides what the simulator replies: thinking, and a text or tool calls."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import orjson

from gateway.simulator.image import describe_image
from gateway.simulator.request import ModelRequest, RequestError, Tool, count_tokens
from gateway.simulator.schema_sample import sample_object, sample_value

_MAX_QUOTE = 1_000
_MAX_EXCERPT = 60
_MAX_LISTED_TOOLS = 5
_SENTENCES_BY_EFFORT = {"minimal": 1, "low": 1, "medium": 2}

_NOTICE = re.compile(r"<(system-reminder|task-notification)>.*?(?:</\1>|\Z)", re.DOTALL)
"""Text that an agent, not the user, has written. Unclosed, it goes on to the end: a linear
search."""


class Stop(StrEnum):
    """Why a reply ends."""

    END = "end"
    LIMIT = "limit"
    CALLS = "calls"


@dataclass(frozen=True, slots=True)
class Block:
    """A content block. The text of a call is its arguments: JSON, or free text if ``custom``."""

    kind: Literal["thinking", "text", "function", "custom"]
    text: str
    tool_name: str = ""

    @property
    def is_call(self) -> bool:
        return self.kind in ("function", "custom")

    @property
    def tokens(self) -> int:
        return count_tokens(self.tool_name) + count_tokens(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The content blocks, none of them empty, and the end."""

    request: ModelRequest
    blocks: tuple[Block, ...]
    stop: Stop

    @property
    def thinking(self) -> str:
        return "".join(block.text for block in self.blocks if block.kind == "thinking")

    @property
    def text(self) -> str:
        return "".join(block.text for block in self.blocks if block.kind == "text")

    @property
    def calls(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.is_call)

    @property
    def thinking_tokens(self) -> int:
        return count_tokens(self.thinking)

    @property
    def output_tokens(self) -> int:
        """Counts the output tokens, including thinking."""
        return sum(block.tokens for block in self.blocks)


def generate(request: ModelRequest) -> Reply:
    """The reply, cut at a stop sequence and at the token limit."""
    blocks = [_call(tool) for tool in _tools_to_call(request)]
    stop = Stop.CALLS if blocks else Stop.END
    if not blocks and (text := _cut_at_stop(_text(request), request.stops)):
        blocks = [Block("text", text)]
    if request.effort not in (None, "", "none"):
        tool_names = [block.tool_name for block in blocks if block.is_call]
        blocks.insert(0, Block("thinking", _thinking(request, tool_names)))
    fitting = blocks if request.limit is None else _cut_at_limit(blocks, request.limit)
    if fitting != blocks:
        stop = Stop.LIMIT
    return Reply(request=request, blocks=tuple(fitting), stop=stop)


def _tools_to_call(request: ModelRequest) -> list[Tool]:
    """The tools that are required or that the question names."""
    choice = request.tool_choice
    required = choice.mode == "required"
    tools = [tool for tool in request.tools if not choice.only or tool.name in choice.only]
    if required and not tools:
        message = "A tool call is required, but none of the tools can be called."
        raise RequestError(message, param="tool_choice")
    # A call right after a tool result would keep an agent in a loop.
    if choice.mode == "none" or (request.tool_results and not required):
        return []
    uncalled = [tool for tool in tools if tool.name not in request.called_tools]
    # The notice that a sub-agent has finished names the tool: a call would start the next one.
    question = _NOTICE.sub("", request.question)
    calls = [tool for tool in uncalled if _is_named(tool, question)]
    if required:
        # A client that always requires a call is done when it sees the last of its tools.
        calls = calls or uncalled[:1] or tools[:1]
    if not (request.parallel_calls and re.search(r"\bparallel\b", question, re.I)):
        return calls[:1]
    remaining = [tool for tool in tools if tool not in calls]
    parallel = [*calls, *remaining[: max(0, 2 - len(calls))]]
    return parallel if len(parallel) > 1 else calls


def _is_named(tool: Tool, question: str) -> bool:
    """Whether a question names a tool, as in "get_weather" or, for short, "weather"."""
    if re.search(rf"(?<!\w){re.escape(tool.name)}(?!\w)", question):
        return True
    *verb, noun = re.split(r"[_-]+", tool.name)
    return bool(verb and noun and re.search(rf"\b{re.escape(noun)}\b", question, re.I))


def _call(tool: Tool) -> Block:
    if tool.schema is None:
        return Block("custom", f"simulated input for {tool.name}", tool.name)
    arguments = orjson.dumps(sample_object(tool.schema)).decode()
    return Block("function", arguments, tool.name)


def _thinking(request: ModelRequest, tool_names: list[str]) -> str:
    """Writes more sentences with more effort."""
    if tool_names:
        plan = f"I shall call {', '.join(tool_names)}."
    elif request.schema is not None:
        plan = "I shall fill the schema."
    else:
        plan = "I shall say what reached me."
    sentences = (
        f"The user said {_quote(request.question, _MAX_EXCERPT)}.",
        f"I am a simulator, so there is little to ponder. {plan}",
        f"With {request.effort} effort I look at it once more, and I stay with that.",
    )
    return " ".join(sentences[: _SENTENCES_BY_EFFORT.get(request.effort or "")])


def _text(request: ModelRequest) -> str:
    """A value of the output schema, or what the simulator has received."""
    if request.schema is not None:
        return orjson.dumps(sample_value(request.schema)).decode()
    sentences = [f"I am a simulator standing in for {request.model}."]
    if request.question:
        sentences.append(f"You said: {_quote(request.question)}")
    for result in request.tool_results:
        sentences.append(f"The tool {result.tool_name} returned: {_quote(result.text)}")
    for part in request.new_parts:
        if part.kind == "image":
            sentences.append(f"I see {describe_image(part.text)}.")
        elif part.kind == "attachment":
            sentences.append(f"I was given {part.text}, which I do not open.")
    if request.instructions:
        sentences.append(f"My instructions begin: {_quote(request.instructions, _MAX_EXCERPT)}")
    if request.earlier_turns:
        sentences.append(f"Before that I read {request.earlier_turns} earlier turns.")
    if request.tools and request.tool_choice.mode != "none" and not request.tool_results:
        names = ", ".join(tool.name for tool in request.tools[:_MAX_LISTED_TOOLS])
        sentences.append(f"Name a tool and I call it: {names}.")
    return "\n".join(sentences)


def _quote(text: str, max_length: int = _MAX_QUOTE) -> str:
    return f"“{text}”" if len(text) <= max_length else f"“{text[:max_length]}…”"


def _cut_at_stop(text: str, stops: tuple[str, ...]) -> str:
    """Return the text before the first stop sequence in it."""
    return text[: min((text.index(stop) for stop in stops if stop in text), default=None)]


def _cut_at_limit(blocks: list[Block], limit: int) -> list[Block]:
    """Texts are cut. Calls are complete or absent: client libraries cannot parse half a call."""
    fitting: list[Block] = []
    for block in blocks:
        if block.tokens > limit:
            if limit and not block.is_call:
                fitting.append(replace(block, text=block.text[: limit * 4]))
            break
        fitting.append(block)
        limit -= block.tokens
    return fitting
