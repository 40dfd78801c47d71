"""How hard to think, for every kind of model that this format has."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.prompt import Prompt, Reasoning
from gateway.core.target import Target, ThinkingStyle
from gateway.wire.dropped import Dropped
from gateway.wire.messages.reasoning import (
    ThinkingParams,
    is_thinking,
    remove_clear_thinking,
    render_reasoning,
)

ADAPTIVE, ALWAYS, BUDGET, NONE = (
    ThinkingStyle.ADAPTIVE,
    ThinkingStyle.ALWAYS,
    ThinkingStyle.BUDGET,
    ThinkingStyle.NONE,
)
OFF = {"type": "disabled"}
SHOWN = {"type": "adaptive", "display": "summarized"}
LOST = {"reasoning_effort"}
EXTRA = ("low", "medium", "high", "max")


def enabled(budget: int, **more: Any) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget} | more


def thoughts(
    wish: Reasoning | None,
    style: ThinkingStyle,
    *,
    format: Format = Format.CHAT,
    max_tokens: int | None = 64_000,
    efforts: tuple[str, ...] | None = None,
    max_output: int | None = 64_000,
    off: bool = False,
    unled: bool = False,
) -> tuple[ThinkingParams, set[str]]:
    losses = Dropped(Format.MESSAGES)
    prompt = Prompt(format=format, model="m", turns=(), max_tokens=max_tokens, reasoning=wish)
    target = Target(model="m", thinking=style, max_output=max_output)
    if efforts is not None:
        target = Target(model="m", thinking=style, efforts=efforts)
    limit = 32_000 if max_tokens is None else max_tokens
    said = render_reasoning(
        prompt, target, losses, limit, tool_forced=off, missing_leading_thinking=unled
    )
    return said, losses.names


@pytest.mark.parametrize("style", list(ThinkingStyle))
@pytest.mark.parametrize("wish", [None, Reasoning(), Reasoning(summary="auto")])
def test_no_reasoning_settings(wish: Reasoning | None, style: ThinkingStyle) -> None:
    assert thoughts(wish, style) == (ThinkingParams(None, None, 64_000), set())


@pytest.mark.parametrize(
    ("effort", "word", "lost"),
    [
        ("minimal", "low", LOST),
        ("low", "low", set()),
        ("medium", "medium", set()),
        ("xhigh", "xhigh", set()),
        ("max", "max", set()),
    ],
)
@pytest.mark.parametrize("style", [ADAPTIVE, ALWAYS])
def test_effort_for_adaptive_models(
    style: ThinkingStyle, effort: str, word: str, lost: set[str]
) -> None:
    wish = Reasoning(effort=effort)
    assert thoughts(wish, style) == (ThinkingParams(SHOWN, word, 64_000), lost)


@pytest.mark.parametrize(
    ("effort", "budget"),
    [
        ("minimal", 1024),
        ("low", 1024),
        ("medium", 8192),
        ("high", 24_576),
        ("xhigh", 32_768),
        ("max", 62_976),
    ],
)
def test_effort_for_budget_models(effort: str, budget: int) -> None:
    said, _ = thoughts(Reasoning(effort=effort), BUDGET)
    assert said == ThinkingParams(enabled(budget), None, 64_000)


@pytest.mark.parametrize(
    ("style", "thinking", "lost"),
    [(ADAPTIVE, OFF, set()), (BUDGET, OFF, set()), (ALWAYS, None, LOST), (NONE, None, set())],
)
@pytest.mark.parametrize("wish", [Reasoning(enabled=False), Reasoning(effort="none")])
def test_thinking_disabled(
    wish: Reasoning, style: ThinkingStyle, thinking: Any, lost: set[str]
) -> None:
    assert thoughts(wish, style) == (ThinkingParams(thinking, None, 64_000), lost)


def test_models_without_thinking() -> None:
    assert thoughts(Reasoning(effort="high"), NONE) == (ThinkingParams(None, None, 64_000), LOST)


def test_unknown_effort() -> None:
    said, lost = thoughts(Reasoning(effort="xhigh"), ADAPTIVE, efforts=EXTRA)
    assert (said.effort, lost) == ("high", LOST)
    said, lost = thoughts(Reasoning(effort="low"), ADAPTIVE, efforts=())
    assert (said.thinking, said.effort, lost) == (SHOWN, None, LOST)
    said, lost = thoughts(Reasoning(enabled=True, effort="warp"), ADAPTIVE)
    assert (said.thinking, said.effort, lost) == (SHOWN, None, LOST)


@pytest.mark.parametrize(
    ("budget", "word"), [(1024, "low"), (8000, "medium"), (20_000, "high"), (60_000, "xhigh")]
)
def test_budget_for_adaptive_models(budget: int, word: str) -> None:
    wish = Reasoning(enabled=True, budget=budget)
    assert thoughts(wish, ADAPTIVE) == (ThinkingParams(SHOWN, word, 64_000), set())


@pytest.mark.parametrize(
    ("max_tokens", "thinking", "lost"),
    [
        (9216, enabled(8192), set()),
        (9215, enabled(8191), LOST),
        (2048, enabled(1024), LOST),
        (2047, OFF, LOST),
        (0, OFF, LOST),
    ],
)
def test_budget_leaves_room_for_the_reply(max_tokens: int, thinking: Any, lost: set[str]) -> None:
    wish = Reasoning(effort="medium")
    said = thoughts(wish, BUDGET, max_tokens=max_tokens)
    assert said == (ThinkingParams(thinking, None, max_tokens), lost)


@pytest.mark.parametrize(
    ("effort", "max_output", "expected"),
    [
        ("high", 64_000, ThinkingParams(enabled(24_576), None, 56_576)),
        ("high", 40_000, ThinkingParams(enabled(24_576), None, 40_000)),
        ("max", 64_000, ThinkingParams(enabled(62_976), None, 64_000)),
        ("xhigh", None, ThinkingParams(enabled(32_768), None, 64_768)),
    ],
)
def test_budget_is_added_to_the_default_limit(
    effort: str, max_output: int | None, expected: ThinkingParams
) -> None:
    said, _ = thoughts(Reasoning(effort=effort), BUDGET, max_tokens=None, max_output=max_output)
    assert said == expected


def test_explicit_budget_may_leave_little_room() -> None:
    wish = Reasoning(enabled=True, budget=31_999)
    for format in (Format.MESSAGES, Format.CHAT):
        said, lost = thoughts(wish, BUDGET, max_tokens=32_000, format=format)
        assert (said.thinking, lost) == (enabled(31_999), set())
    said, lost = thoughts(wish, BUDGET, max_tokens=31_999)
    assert (said.thinking, lost) == (enabled(30_975), LOST)


# clients of this format


@pytest.mark.parametrize(
    ("wish", "style", "thinking", "effort", "lost"),
    [
        (Reasoning(effort="low"), ADAPTIVE, None, "low", set()),
        (Reasoning(effort="ultra"), ADAPTIVE, None, "ultra", set()),
        (Reasoning(effort="low"), BUDGET, None, None, LOST),
        (Reasoning(enabled=False, effort="low"), ADAPTIVE, OFF, "low", set()),
        (Reasoning(enabled=True, mode="adaptive"), ADAPTIVE, {"type": "adaptive"}, None, set()),
        (
            Reasoning(enabled=True, mode="between_tools", summary="omitted"),
            ADAPTIVE,
            {"type": "between_tools", "display": "omitted"},
            None,
            set(),
        ),
        (Reasoning(enabled=True, mode="novel"), ADAPTIVE, {"type": "novel"}, None, set()),
        (Reasoning(enabled=True, mode="adaptive"), BUDGET, enabled(24_576), None, set()),
        (
            Reasoning(enabled=True, budget=2048, summary="summarized"),
            BUDGET,
            enabled(2048, display="summarized"),
            None,
            set(),
        ),
        (
            Reasoning(enabled=True, budget=2048, summary="summarized"),
            ADAPTIVE,
            SHOWN,
            "medium",
            set(),
        ),
    ],
)
def test_native_settings(
    wish: Reasoning, style: ThinkingStyle, thinking: Any, effort: str | None, lost: set[str]
) -> None:
    said = thoughts(wish, style, format=Format.MESSAGES)
    assert said == (ThinkingParams(thinking, effort, 64_000), lost)


# what rules thinking out


@pytest.mark.parametrize(
    ("style", "thinking", "effort", "lost"),
    [(ADAPTIVE, OFF, "low", LOST), (ALWAYS, SHOWN, "low", set()), (BUDGET, OFF, None, LOST)],
)
def test_forced_tool(
    style: ThinkingStyle, thinking: Any, effort: str | None, lost: set[str]
) -> None:
    wish = Reasoning(effort="low")
    assert thoughts(wish, style, off=True) == (ThinkingParams(thinking, effort, 64_000), lost)


@pytest.mark.parametrize(
    ("style", "thinking", "lost"), [(ADAPTIVE, SHOWN, set()), (BUDGET, OFF, LOST)]
)
def test_tool_loop_without_leading_thinking(
    style: ThinkingStyle, thinking: Any, lost: set[str]
) -> None:
    said, names = thoughts(Reasoning(effort="low"), style, unled=True)
    assert (said.thinking, names) == (thinking, lost)


def test_is_thinking() -> None:
    adaptive, always = (Target(model="m", thinking=style) for style in (ADAPTIVE, ALWAYS))
    assert not is_thinking(None, adaptive)
    assert is_thinking(None, always)
    assert not is_thinking({"type": "disabled"}, adaptive)
    assert is_thinking({"type": "enabled", "budget_tokens": 1024}, adaptive)


def test_remove_clear_thinking() -> None:
    clearing = {"type": "clear_thinking_20251015", "keep": "all"}
    tools = {"type": "clear_tool_uses_20250919"}
    body: dict[str, Any] = {"context_management": {"edits": [clearing, tools]}}
    before = body["context_management"]
    remove_clear_thinking(body)
    assert body == {"context_management": {"edits": [tools]}}
    assert before == {"edits": [clearing, tools]}
    for odd in ({}, {"context_management": None}, {"context_management": {"edits": "x"}}):
        kept = dict(odd)
        remove_clear_thinking(kept)
        assert kept == odd
    body = {"context_management": {"edits": [clearing]}}
    remove_clear_thinking(body)
    assert body == {}
