"""What an upstream's model can take, for prompts that are translated for it.

It must not know what follows from a trait: that is the affair of the format that is spoken to it.
"""

from __future__ import annotations

from typing import Literal

from gateway.config.section import ConfigModel
from gateway.core.target import SamplingStyle, ThinkingStyle, ToolEffort

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class Traits(ConfigModel):
    """What an upstream's model can take. All of it is optional and counts only where a prompt is
    translated. A channel's word goes before the model's; what neither states follows from the
    channel's format, as each trait says, and is otherwise the most that there is."""

    thinking: ThinkingStyle | None = None
    """How a messages channel tells the model to think: budget (a number of tokens), adaptive (at
    will, by effort), always (adaptive, and it cannot be switched off) or none; null: adaptive."""
    efforts: tuple[Effort, ...] | None = None
    """The words for how hard to think that the model takes, of none, minimal, low, medium, high,
    xhigh and max; an empty list: it takes no word at all; null: all of them."""
    sampling: SamplingStyle | None = None
    """Which of temperature and top_p the model takes: both, one (of the two in one request) or
    neither; null: both."""
    tool_effort: ToolEffort | None = None
    """What becomes of the effort where a chat channel is sent function tools: keep, drop, or none
    (the word none is sent instead); null: keep."""
    structured: bool | None = None
    """Whether the model takes a JSON schema for its answer; null: true."""
    prefill: bool | None = None
    """Whether a prompt may end with words of the assistant's that the model goes on from; null:
    true."""
    system_turns: bool | None = None
    """Whether system messages may stand in the middle of a conversation; null: true on chat and
    responses channels, false on messages channels."""
    custom_tools: bool | None = None
    """Whether the model takes tools whose input is free text; null: true on responses channels."""
    cache_marks: bool | None = None
    """Whether the model takes marks up to which a prompt is to be cached; null: true on messages
    channels."""
    reasoning_text: bool | None = None
    """Whether a chat channel wants its own plain reasoning_content back with the history; null:
    false."""
    plain_max_tokens: bool | None = None
    """Whether a chat channel is sent max_tokens and not max_completion_tokens; null: true for
    alpha models."""
    developer: bool | None = None
    """Whether a chat channel is sent system prompts as role developer; null: false."""
