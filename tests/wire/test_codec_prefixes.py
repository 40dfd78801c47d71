"""Prompt caches hit only where an earlier prompt is the beginning of a later one.

What is rendered of the first turns of a conversation is the beginning of what is rendered of more
of them, in all pairs of formats: the form of a turn does not depend on those that follow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.formats import Format
from gateway.core.parts import (
    CacheBreakpoint,
    Document,
    Image,
    Part,
    Source,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from gateway.core.prompt import OutputFormat, OutputKind, Prompt, Role, Tool, ToolKind, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.registry import CODECS

PAIRS = [(client, upstream) for client in Format for upstream in Format]
TOOL = Tool(kind=ToolKind.FUNCTION, name="f", schema={"type": "object"})

_texts = st.builds(
    Text,
    st.sampled_from(["Hello.", "Two\n\nparagraphs", " blank ends ", "in JSON", ""]),
    cache=st.sampled_from([None, None, None, CacheBreakpoint()]),
)
_media = st.sampled_from(
    [
        Image(Source(url="https://example.org/i.png")),
        Document(Source(data="JVBERi0x", media_type="application/pdf"), title="a.pdf"),
        Document(None, text="A text.", title="b.txt"),
    ]
)


def _has_content(parts: list[Part]) -> bool:
    return any(not isinstance(part, Text) or part.text.strip() for part in parts)


_user = st.builds(
    Turn,
    st.just(Role.USER),
    st.lists(_texts | _media, min_size=1, max_size=3).filter(_has_content).map(tuple),
    name=st.sampled_from([None, None, "Ann", "Bob"]),
)
_assistant = st.builds(
    Turn,
    st.just(Role.ASSISTANT),
    st.lists(_texts | st.builds(Thinking, st.just("Hm.")), min_size=1, max_size=2).map(tuple),
)
_system = st.builds(Turn, st.just(Role.SYSTEM), _texts.map(lambda text: (text,)))


@st.composite
def _loops(draw: st.DrawFn) -> list[Turn]:
    """A call, its result, and what else the user adds."""
    id = f"call_{draw(st.integers(1, 10**6))}"
    before: list[Part] = draw(st.lists(_texts, max_size=1))
    result = ToolResult(id, tuple(draw(st.lists(_texts | _media, max_size=2))))
    after: list[Part] = draw(st.lists(_texts | _media, max_size=1))
    return [Turn(Role.ASSISTANT, (*before, ToolCall(id, "f"))), Turn(Role.USER, (result, *after))]


@st.composite
def conversations(draw: st.DrawFn) -> list[list[Turn]]:
    """Steps of a conversation: after each of them a client may send what it has."""
    opening = [*draw(st.lists(_system, max_size=2)), draw(_user)]
    step = (
        _user.map(lambda turn: [turn])
        | st.tuples(_assistant, _user).map(list)
        | st.tuples(_system, _assistant, _user).map(list)
        | _loops()
    )
    return [opening, *draw(st.lists(step, min_size=1, max_size=4))]


def _rendered(prompt: Prompt, upstream: Format, target: Target) -> list[Any]:
    """The prompt as its upstream reads it, piece by piece."""
    body = CODECS[upstream].render_prompt(prompt, target).body
    leading = [*_pieces([{"content": body.get("system")}]), body.get("instructions")]
    return [leading, *_pieces(body.get("messages", body.get("input")))]


def _pieces(messages: list[dict[str, Any]]) -> Iterator[Any]:
    """Without the moving marks of caches; adjacent messages of one role are told apart."""
    for message in messages:
        content = message.get("content")
        yield {name: value for name, value in message.items() if name != "content"}
        yield type(content).__name__
        for piece in content or ():
            yield (
                piece
                if isinstance(piece, str)
                else {name: value for name, value in piece.items() if name != "cache_control"}
            )


@pytest.mark.parametrize(("client", "upstream"), PAIRS)
@given(conversations(), st.data())
def test_earlier_prompts_are_the_beginning_of_later_ones(
    client: Format, upstream: Format, steps: list[list[Turn]], data: st.DataObject
) -> None:
    target = Target(
        model="m", system_turns=data.draw(st.booleans()), cache_marks=data.draw(st.booleans())
    )
    output = data.draw(st.sampled_from([None, OutputFormat(kind=OutputKind.JSON_OBJECT)]))
    before: list[Any] = []
    for count in range(1, len(steps) + 1):
        turns = [turn for step in steps[:count] for turn in step]
        if client is not Format.CHAT:  # only that has names
            turns = [replace(turn, name=None) for turn in turns]
        prompt = Prompt(format=client, model="m", turns=tuple(turns), tools=(TOOL,), output=output)
        rendered = _rendered(prompt, upstream, target)
        assert rendered[: len(before)] == before
        before = rendered
