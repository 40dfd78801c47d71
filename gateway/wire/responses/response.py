"""The response object: what was asked, echoed, and what became of it. It must not know items.

Public format: Responses, "The response object". What the client left out is told by its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.core.events import End, StopReason
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.responses.asked import echo_settings
from gateway.wire.responses.outgoing import native_fields
from gateway.wire.responses.toolset import echo_tool_choice, echo_tools
from gateway.wire.responses.usage import render_usage

_INCOMPLETE_REASONS: Final = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.REFUSAL: "content_filter",
}
_DEFAULTS: Final[Payload] = {
    "background": False,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": None,
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
    "user": None,
}


def opening_response(prompt: Prompt, metadata: ReplyMetadata) -> Payload:
    """The response while nothing of it is there; `prompt` is the client's."""
    response: Payload = {
        "id": f"resp_{metadata.reply_id}",
        "object": "response",
        "created_at": metadata.created,
        "status": "in_progress",
        "model": prompt.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        **_DEFAULTS,
        "usage": None,
    }
    for name, asked in _requested_fields(prompt).items():
        if name in _DEFAULTS:
            response[name] = _merge_default(_DEFAULTS[name], asked)
    return response


def incomplete_reason(stop: StopReason, *, refused: bool) -> str | None:
    """Why a response is not complete; None where it is. A model that has declined in words has
    said all it has to say."""
    return None if stop is StopReason.REFUSAL and refused else _INCOMPLETE_REASONS.get(stop)


def finished_response(
    opening: Payload, items: Sequence[Payload], end: End, reason: str | None
) -> Payload:
    """The response once it is over; `reason` as in `reason_of`."""
    ended = opening.copy()
    ended["status"] = "incomplete" if reason else "completed"
    ended["output"] = list(items)
    if reason:
        ended["incomplete_details"] = {"reason": reason}
    else:
        ended["completed_at"] = opening["created_at"]
    if end.usage is not None:
        ended |= render_usage(end.usage)
    if tier := native_fields(end.extra).get("service_tier"):
        ended["service_tier"] = tier
    return ended


def _requested_fields(prompt: Prompt) -> Payload:
    """What the client asked for, as far as responses repeat it."""
    asked = echo_settings(prompt)
    if (instructions := _instructions(prompt.turns)) is not None:
        asked["instructions"] = instructions
    if prompt.tools:
        asked["tools"] = echo_tools(prompt.tools)
    if prompt.tool_choice is not None:
        asked["tool_choice"] = echo_tool_choice(prompt.tool_choice)
    if prompt.parallel_tool_calls is not None:
        asked["parallel_tool_calls"] = prompt.parallel_tool_calls
    return asked


def _merge_default(unsaid: Any, asked: Any) -> Any:
    return unsaid | asked if isinstance(unsaid, dict) and isinstance(asked, dict) else asked


def _instructions(turns: Sequence[Turn]) -> str | None:
    first = turns[0] if turns else None
    if first is None or first.role is not Role.SYSTEM or first.extra or len(first.parts) != 1:
        return None
    part = first.parts[0]
    return part.text if type(part) is Text else None
