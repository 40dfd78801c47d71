"""Reasoning settings for every thinking style."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.prompt import Prompt, Reasoning
from gateway.core.target import Target, ThinkingStyle
from gateway.wire.messages.reasoning import (
    ThinkingParams,
    is_thinking,
    remove_clear_thinking,
    render_reasoning,
)
from gateway.wire.prompt.dropped import Dropped

ADAPTIVE, ALWAYS, BUDGET, NONE = (
    ThinkingStyle.ADAPTIVE,
    ThinkingStyle.ALWAYS,
    ThinkingStyle.BUDGET,
    ThinkingStyle.NONE,
)
OFF = {"type": "disabled"}
SUMMARIZED = {"type": "adaptive", "display": "summarized"}
LOST = {"reasoning_effort"}
EXTRA = ("low", "medium", "high", "max")


def enabled(budget: int, **more: Any) -> dict[str, Any]:
    return {"type": "enabled", "budget_tokens": budget} | more


def render(
    reasoning: Reasoning | None,
    style: ThinkingStyle | None,
    *,
    format: Format = Format.CHAT,
    max_tokens: int | None = 64_000,
    efforts: tuple[str, ...] | None = None,
    max_output: int | None = 64_000,
    off: bool = False,
    missing_thinking: bool = False,
) -> tuple[ThinkingParams, set[str]]:
    dropped = Dropped(Format.MESSAGES)
    prompt = Prompt(format=format, model="m", turns=(), max_tokens=max_tokens, reasoning=reasoning)
    target = Target(model="m", thinking=style, max_output=max_output)
    if efforts is not None:
        target = Target(model="m", thinking=style, efforts=efforts)
    limit = 32_000 if max_tokens is None else max_tokens
    params = render_reasoning(
        prompt, target, dropped, limit, tool_forced=off, missing_leading_thinking=missing_thinking
    )
    return params, dropped.names


@pytest.mark.parametrize("style", list(ThinkingStyle))
@pytest.mark.parametrize("reasoning", [None, Reasoning(), Reasoning(summary="auto")])
def test_no_reasoning_settings(reasoning: Reasoning | None, style: ThinkingStyle) -> None:
    assert render(reasoning, style) == (ThinkingParams(None, None, 64_000), set())


@pytest.mark.parametrize(
    ("effort", "word", "dropped_names"),
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
    style: ThinkingStyle, effort: str, word: str, dropped_names: set[str]
) -> None:
    reasoning = Reasoning(effort=effort)
    assert render(reasoning, style) == (ThinkingParams(SUMMARIZED, word, 64_000), dropped_names)


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
    params, _ = render(Reasoning(effort=effort), BUDGET)
    assert params == ThinkingParams(enabled(budget), None, 64_000)


@pytest.mark.parametrize(
    ("style", "thinking", "dropped_names"),
    [(ADAPTIVE, OFF, set()), (BUDGET, OFF, set()), (ALWAYS, None, LOST), (NONE, None, set())],
)
@pytest.mark.parametrize("reasoning", [Reasoning(enabled=False), Reasoning(effort="none")])
def test_thinking_disabled(
    reasoning: Reasoning, style: ThinkingStyle, thinking: Any, dropped_names: set[str]
) -> None:
    assert render(reasoning, style) == (ThinkingParams(thinking, None, 64_000), dropped_names)


def test_models_without_thinking() -> None:
    assert render(Reasoning(effort="high"), NONE) == (ThinkingParams(None, None, 64_000), LOST)


def test_unknown_effort() -> None:
    params, dropped_names = render(Reasoning(effort="xhigh"), ADAPTIVE, efforts=EXTRA)
    assert (params.effort, dropped_names) == ("high", LOST)
    params, dropped_names = render(Reasoning(effort="low"), ADAPTIVE, efforts=())
    assert (params.thinking, params.effort, dropped_names) == (SUMMARIZED, None, LOST)
    params, dropped_names = render(Reasoning(enabled=True, effort="warp"), ADAPTIVE)
    assert (params.thinking, params.effort, dropped_names) == (SUMMARIZED, None, LOST)


@pytest.mark.parametrize(
    ("budget", "word"), [(1024, "low"), (8000, "medium"), (20_000, "high"), (60_000, "xhigh")]
)
def test_budget_for_adaptive_models(budget: int, word: str) -> None:
    reasoning = Reasoning(enabled=True, budget=budget)
    assert render(reasoning, ADAPTIVE) == (ThinkingParams(SUMMARIZED, word, 64_000), set())


@pytest.mark.parametrize(
    ("max_tokens", "thinking", "dropped_names"),
    [
        (9216, enabled(8192), set()),
        (9215, enabled(8191), LOST),
        (2048, enabled(1024), LOST),
        (2047, OFF, LOST),
        (0, OFF, LOST),
    ],
)
def test_budget_leaves_room_for_the_reply(
    max_tokens: int, thinking: Any, dropped_names: set[str]
) -> None:
    reasoning = Reasoning(effort="medium")
    params = render(reasoning, BUDGET, max_tokens=max_tokens)
    assert params == (ThinkingParams(thinking, None, max_tokens), dropped_names)


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
    params, _ = render(Reasoning(effort=effort), BUDGET, max_tokens=None, max_output=max_output)
    assert params == expected


def test_explicit_budget_may_leave_little_room() -> None:
    reasoning = Reasoning(enabled=True, budget=31_999)
    for format in (Format.MESSAGES, Format.CHAT):
        params, dropped_names = render(reasoning, BUDGET, max_tokens=32_000, format=format)
        assert (params.thinking, dropped_names) == (enabled(31_999), set())
    params, dropped_names = render(reasoning, BUDGET, max_tokens=31_999)
    assert (params.thinking, dropped_names) == (enabled(30_975), LOST)


# clients of this format


@pytest.mark.parametrize(
    ("reasoning", "style", "thinking", "effort", "dropped_names"),
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
            SUMMARIZED,
            "medium",
            set(),
        ),
    ],
)
def test_native_settings(
    reasoning: Reasoning,
    style: ThinkingStyle,
    thinking: Any,
    effort: str | None,
    dropped_names: set[str],
) -> None:
    params = render(reasoning, style, format=Format.MESSAGES)
    assert params == (ThinkingParams(thinking, effort, 64_000), dropped_names)


@pytest.mark.parametrize(
    ("reasoning", "thinking", "effort"),
    [
        (Reasoning(enabled=True, mode="adaptive"), {"type": "adaptive"}, None),
        (Reasoning(effort="low"), None, "low"),
        (Reasoning(enabled=True, mode="novel", effort="max"), {"type": "novel"}, "max"),
        (Reasoning(enabled=True, budget=2048), enabled(2048), None),
        (Reasoning(enabled=False), OFF, None),
    ],
)
def test_native_settings_of_a_model_of_unknown_style(
    reasoning: Reasoning, thinking: Any, effort: str | None
) -> None:
    params = render(reasoning, None, format=Format.MESSAGES)
    assert params == (ThinkingParams(thinking, effort, 64_000), set())


@pytest.mark.parametrize(
    ("effort", "budget"), [("minimal", 1024), ("medium", 8192), ("high", 24_576), ("max", 62_976)]
)
def test_an_effort_is_a_budget_of_a_model_of_unknown_style(effort: str, budget: int) -> None:
    params = render(Reasoning(effort=effort), None)
    assert params == (ThinkingParams(enabled(budget), None, 64_000), set())


# what rules thinking out


@pytest.mark.parametrize(
    ("style", "thinking", "effort", "dropped_names"),
    [(ADAPTIVE, OFF, "low", LOST), (ALWAYS, SUMMARIZED, "low", set()), (BUDGET, OFF, None, LOST)],
)
def test_forced_tool(
    style: ThinkingStyle, thinking: Any, effort: str | None, dropped_names: set[str]
) -> None:
    reasoning = Reasoning(effort="low")
    assert render(reasoning, style, off=True) == (
        ThinkingParams(thinking, effort, 64_000),
        dropped_names,
    )


@pytest.mark.parametrize(
    ("style", "thinking", "dropped_names"), [(ADAPTIVE, SUMMARIZED, set()), (BUDGET, OFF, LOST)]
)
def test_tool_loop_without_leading_thinking(
    style: ThinkingStyle, thinking: Any, dropped_names: set[str]
) -> None:
    params, names = render(Reasoning(effort="low"), style, missing_thinking=True)
    assert (params.thinking, names) == (thinking, dropped_names)


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
    for malformed in ({}, {"context_management": None}, {"context_management": {"edits": "x"}}):
        kept = dict(malformed)
        remove_clear_thinking(kept)
        assert kept == malformed
    body = {"context_management": {"edits": [clearing]}}
    remove_clear_thinking(body)
    assert body == {}
