"""One upstream's model: its name there and the features that it supports."""

from __future__ import annotations

from typing import Final

from gateway.core.value import FastStrEnum, value

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""The reasoning efforts, from lowest to highest."""
COMPACTION: Final = "compaction"
"""The value that an upstream refuses, or ignores, that does not compact conversations itself."""


class ThinkingStyle(FastStrEnum):
    """The way to request thinking from a messages upstream: a token budget, an effort with optional
    thinking (ADAPTIVE) or mandatory thinking (ALWAYS), or not at all."""

    BUDGET = "budget"
    ADAPTIVE = "adaptive"
    ALWAYS = "always"
    NONE = "none"


class SamplingStyle(FastStrEnum):
    """The parameters `temperature` and `top_p` that a model accepts."""

    BOTH = "both"
    ONE = "one"
    NEITHER = "neither"


class ToolEffort(FastStrEnum):
    """The reasoning effort in chat requests with function tools: sent, left out, or sent as `none`
    (some chat models reject any other)."""

    KEEP = "keep"
    DROP = "drop"
    NONE = "none"


@value(kw_only=True)
class Target:
    """`model` is the upstream's name for it, `max_output` is in tokens, `origin` is a hash of
    account and family: signed reasoning is accepted only by its own origin. An upstream of the
    responses format refuses requests for `encrypted_reasoning`, once it has refused one. The other
    fields are described at `Traits` of the configuration."""

    model: str
    origin: str = ""
    max_output: int | None = None
    encrypted_reasoning: bool = True
    thinking: ThinkingStyle | None = None
    efforts: tuple[str, ...] = EFFORTS
    sampling: SamplingStyle = SamplingStyle.BOTH
    tool_effort: ToolEffort = ToolEffort.KEEP
    structured: bool = True
    prefill: bool = True
    system_turns: bool = False
    custom_tools: bool = False
    cache_marks: bool = False
    reasoning_text: bool = False
    plain_max_tokens: bool = False
    developer: bool = False
    threads: bool = False
    web_search: bool | int | None = None
    compaction: bool = True
    refuses: tuple[str, ...] = ()
