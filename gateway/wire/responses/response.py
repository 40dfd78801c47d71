"""The response object: what was asked, echoed, and what became of it. It must not know items.

Public format: Responses, "The response object". What the client left out is told by its default.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.core.events import End, StopReason
from gateway.core.parts import Text
from gateway.core.prompt import Prompt, Role, Turn
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload
from gateway.wire.responses.asked import own_settings
from gateway.wire.responses.outgoing import own_fields
from gateway.wire.responses.toolset import own_choice, own_tools
from gateway.wire.responses.usage import render_usage

_REASONS: Final = {
    StopReason.MAX_TOKENS: "max_output_tokens",
    StopReason.CONTEXT_WINDOW: "max_output_tokens",
    StopReason.REFUSAL: "content_filter",
}
_UNSAID: Final[Payload] = {
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


def opening_response(prompt: Prompt, stamp: Stamp) -> Payload:
    """The response while nothing of it is there; `prompt` is the client's."""
    response: Payload = {
        "id": f"resp_{stamp.reply_id}",
        "object": "response",
        "created_at": stamp.created,
        "status": "in_progress",
        "model": prompt.model,
        "output": [],
        "error": None,
        "incomplete_details": None,
        **_UNSAID,
        "usage": None,
    }
    for name, asked in _asked(prompt).items():
        if name in _UNSAID:
            response[name] = _told(_UNSAID[name], asked)
    return response


def reason_of(stop: StopReason, *, refused: bool) -> str | None:
    """Why a response is not complete; None where it is. A model that has declined in words has
    said all it has to say."""
    return None if stop is StopReason.REFUSAL and refused else _REASONS.get(stop)


def ended_response(
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
    if tier := own_fields(end.extra).get("service_tier"):
        ended["service_tier"] = tier
    return ended


def _asked(prompt: Prompt) -> Payload:
    """What the client asked for, as far as responses repeat it."""
    asked = own_settings(prompt)
    if (instructions := _instructions(prompt.turns)) is not None:
        asked["instructions"] = instructions
    if prompt.tools:
        asked["tools"] = own_tools(prompt.tools)
    if prompt.tool_choice is not None:
        asked["tool_choice"] = own_choice(prompt.tool_choice)
    if prompt.parallel_tool_calls is not None:
        asked["parallel_tool_calls"] = prompt.parallel_tool_calls
    return asked


def _told(unsaid: Any, asked: Any) -> Any:
    return unsaid | asked if isinstance(unsaid, dict) and isinstance(asked, dict) else asked


def _instructions(turns: Sequence[Turn]) -> str | None:
    first = turns[0] if turns else None
    if first is None or first.role is not Role.SYSTEM or first.extra or len(first.parts) != 1:
        return None
    part = first.parts[0]
    return part.text if type(part) is Text else None
