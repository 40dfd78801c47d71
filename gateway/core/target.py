"""Who is asked, as far as a prompt's rendering depends on it. It must not know any wire format.

A target is one upstream's model as the configuration describes it: what it is called there, and
which of the things that a prompt may ask for it can take.
"""

from __future__ import annotations

from typing import Final

from gateway.core.value import FastStrEnum, value

EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
"""Every word for how hard to think, from least to most."""


class ThinkingStyle(FastStrEnum):
    """How a messages-native model is told to think: by a budget of tokens, by an effort and at will
    (`adaptive`), the same without being able to do otherwise (`always`), or not at all."""

    BUDGET = "budget"
    ADAPTIVE = "adaptive"
    ALWAYS = "always"
    NONE = "none"


class SamplingStyle(FastStrEnum):
    """Which of `temperature` and `top_p` a model takes: both, one of them, or neither."""

    BOTH = "both"
    ONE = "one"
    NEITHER = "neither"


class ToolEffort(FastStrEnum):
    """What becomes of the reasoning effort where function tools are sent on chat: it goes along, is
    left out, or is sent as `none` (some chat-native models refuse anything else)."""

    KEEP = "keep"
    DROP = "drop"
    NONE = "none"


@value(kw_only=True)
class Target:
    """`model` is the upstream's own name for it.

    `origin` names, without telling, the account and family that signed reasoning must have come
    from to be accepted back; `max_output` is in tokens. `efforts` are the words of `EFFORTS` that
    the model takes. `structured`: JSON schemas for answers. `prefill`: a prompt may end with the
    assistant's words. `system_turns`: system messages within the conversation. `custom_tools`:
    tools that take free text. `cache_marks`: breakpoints for prompt caching. `reasoning_text`: its
    own plain reasoning comes back with the history. `plain_max_tokens`: chat's older `max_tokens`
    instead of `max_completion_tokens`. `developer`: system prompts as role `developer` on chat.
    """

    model: str
    origin: str = ""
    max_output: int | None = None
    thinking: ThinkingStyle = ThinkingStyle.ADAPTIVE
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
