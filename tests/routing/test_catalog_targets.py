"""Targets: traits of channel, model and default catalog, and their defaults."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.core.target import EFFORTS, SamplingStyle, Target, ThinkingStyle, ToolEffort
from gateway.routing.catalog import build_target

HAIKU = "alpha-haiku-4-5-20251001"


def target_of(
    model: dict[str, Any] | None = None,
    format: str = "messages",
    names: tuple[str, str] = ("main", "a1"),
    **traits: Any,
) -> Target:
    model = {"id": "alpha-own", "family": "alpha"} | (model or {})
    name, account = names
    channel = {
        "name": name,
        "format": format,
        "base_url": "http://127.0.0.1:9/x",
        "models": {model["id"]: "upstream-model"},
        "accounts": [{"name": account, "key": "k"}],
        "traits": traits,
    }
    config = parse_config(orjson.dumps({"models": [model], "channels": [channel]}).decode())
    (line,) = config.channels
    return build_target(line, line.accounts[0], config.models[0])


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize("family", ["alpha", "beta"])
def test_defaults_follow_from_the_channels_format(format: Format, family: str) -> None:
    result = target_of({"family": family}, format)
    assert result == Target(
        model="upstream-model",
        origin=result.origin,
        system_turns=format is not Format.MESSAGES,
        custom_tools=format is Format.RESPONSES,
        cache_marks=format is Format.MESSAGES,
        plain_max_tokens=(family, format) == ("alpha", Format.CHAT),
    )


def test_channel_traits_override_model_traits() -> None:
    model = {"traits": {"thinking": "budget", "efforts": ["low"], "prefill": False}}
    result = target_of(model, efforts=["high", "max"], cache_marks=False, tool_effort="none")
    assert result.thinking is ThinkingStyle.BUDGET
    assert result.efforts == ("high", "max")
    assert not result.prefill
    assert not result.cache_marks
    assert result.tool_effort is ToolEffort.NONE


def test_every_trait_reaches_the_target() -> None:
    traits = {
        "thinking": "none",
        "efforts": [],
        "sampling": "one",
        "tool_effort": "drop",
        "structured": False,
        "prefill": False,
        "system_turns": True,
        "custom_tools": True,
        "cache_marks": False,
        "reasoning_text": True,
        "plain_max_tokens": True,
        "developer": True,
    }
    result = target_of({"max_output": 7}, **traits)
    assert result == Target(
        model="upstream-model",
        origin=result.origin,
        max_output=7,
        thinking=ThinkingStyle.NONE,
        efforts=(),
        sampling=SamplingStyle.ONE,
        tool_effort=ToolEffort.DROP,
        structured=False,
        prefill=False,
        system_turns=True,
        custom_tools=True,
        cache_marks=False,
        reasoning_text=True,
        plain_max_tokens=True,
        developer=True,
    )


def test_defaults_of_the_default_catalog_by_id() -> None:
    result = target_of({"id": HAIKU})
    assert result.thinking is ThinkingStyle.BUDGET
    assert result.efforts == ()
    assert result.max_output == 64_000
    own = target_of({"id": HAIKU, "max_output": 5, "traits": {"efforts": ["low"]}})
    assert (own.efforts, own.max_output) == (("low",), 5)
    assert own.thinking is ThinkingStyle.BUDGET
    stranger = target_of({"id": HAIKU, "family": "beta"})
    assert (stranger.efforts, stranger.max_output) == (EFFORTS, None)


def test_the_origin_depends_on_channel_account_and_family_only() -> None:
    known = target_of()
    assert len(known.origin) == 8
    assert int(known.origin, 16) >= 0
    assert target_of({"id": "alpha-other"}, prefill=False).origin == known.origin
    others = [
        target_of(names=("main", "a2")),
        target_of(names=("other", "a1")),
        target_of(names=("maina", "1")),
        target_of({"family": "beta"}),
    ]
    assert len({known.origin, *(other.origin for other in others)}) == 5
