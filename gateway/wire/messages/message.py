"""The message object of a reply: how it opens and how it ends. It must not know its blocks.

Public format: Messages, "The message object".
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import Prompt
from gateway.core.usage import Usage
from gateway.wire.codec import ReplyMetadata
from gateway.wire.fields import Payload
from gateway.wire.lenient import lenient_object
from gateway.wire.messages.stream import STOP_REASONS
from gateway.wire.messages.usage import render_usage

_STOP_NAMES: Final = {stop: word for word, stop in STOP_REASONS.items()}
_NATIVE_END_FIELDS: Final = ("stop_details", "container")
"""What this format's own upstream may say at the end beside the reason."""


def opening_message(prompt: Prompt, stamp: ReplyMetadata, usage: Usage | None) -> Payload:
    return {
        "id": f"msg_{stamp.reply_id}",
        "type": "message",
        "role": "assistant",
        "model": prompt.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": reported_usage(usage, stamp),
    }


def reported_usage(usage: Usage | None, stamp: ReplyMetadata) -> Payload:
    """The counts, or what is known before there are any."""
    return render_usage(usage or Usage(input_tokens=stamp.input_tokens))


def reported_stop(
    stop: StopReason, stop_sequence: str | None, *, has_calls: bool, has_refusal: bool
) -> StopReason:
    """Agents go on by this alone, so it must fit what they have been told: whether a tool was
    called, and whether the model has declined in words."""
    if stop is StopReason.STOP_SEQUENCE and stop_sequence is None:
        stop = StopReason.END_TURN
    if has_calls and stop in (StopReason.END_TURN, StopReason.STOP_SEQUENCE):
        return StopReason.TOOL_CALL
    if not has_calls and stop is StopReason.TOOL_CALL:
        stop = StopReason.END_TURN
    if has_refusal and stop is StopReason.END_TURN:
        return StopReason.REFUSAL
    return stop


def render_end(
    stop: StopReason, stop_sequence: str | None, refusal: str, extra: ProviderData | None = None
) -> Payload:
    """The fields that are known at the end, besides the usage; `refusal` is what the model has
    declined with."""
    ended: Payload = {
        "stop_reason": _STOP_NAMES[stop],
        "stop_sequence": stop_sequence if stop is StopReason.STOP_SEQUENCE else None,
    }
    if stop is StopReason.REFUSAL:
        ended["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": refusal or None,
        }
    if extra is not None and extra.format is Format.MESSAGES:
        delta = lenient_object(extra.data.get("delta"))
        ended |= {name: delta[name] for name in _NATIVE_END_FIELDS if delta.get(name) is not None}
    return ended
