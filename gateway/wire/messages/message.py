"""The message object of a reply: how it opens and how it ends. It must not know its blocks.

Public format: Messages, "The message object".
"""

from __future__ import annotations

from typing import Final

from gateway.core.events import StopReason
from gateway.core.formats import Format
from gateway.core.parts import Opaque
from gateway.core.prompt import Prompt
from gateway.core.usage import Usage
from gateway.wire.codec import Stamp
from gateway.wire.fields import Payload
from gateway.wire.lenient import read_object
from gateway.wire.messages.stream import STOPS
from gateway.wire.messages.usage import render_usage

_WORDS: Final = {stop: word for word, stop in STOPS.items()}
_LAST_DETAILS: Final = ("stop_details", "container")
"""What this format's own upstream may say at the end beside the reason."""


def opening_message(prompt: Prompt, stamp: Stamp, usage: Usage | None) -> Payload:
    return {
        "id": f"msg_{stamp.reply_id}",
        "type": "message",
        "role": "assistant",
        "model": prompt.model,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": told_usage(usage, stamp),
    }


def told_usage(usage: Usage | None, stamp: Stamp) -> Payload:
    """The counts, or what is known before there are any."""
    return render_usage(usage or Usage(input_tokens=stamp.input_tokens))


def told_stop(
    stop: StopReason, stop_sequence: str | None, *, called: bool, refused: bool
) -> StopReason:
    """Agents go on by this alone, so it must fit what they have been told: whether a tool was
    called, and whether the model has declined in words."""
    if stop is StopReason.STOP_SEQUENCE and stop_sequence is None:
        stop = StopReason.END_TURN
    if called and stop in (StopReason.END_TURN, StopReason.STOP_SEQUENCE):
        return StopReason.TOOL_CALL
    if not called and stop is StopReason.TOOL_CALL:
        stop = StopReason.END_TURN
    if refused and stop is StopReason.END_TURN:
        return StopReason.REFUSAL
    return stop


def ending(
    stop: StopReason, stop_sequence: str | None, refusal: str, extra: Opaque | None = None
) -> Payload:
    """The fields that are known at the end, besides the usage; `refusal` is what the model has
    declined with."""
    ended: Payload = {
        "stop_reason": _WORDS[stop],
        "stop_sequence": stop_sequence if stop is StopReason.STOP_SEQUENCE else None,
    }
    if stop is StopReason.REFUSAL:
        ended["stop_details"] = {
            "type": "refusal",
            "category": None,
            "explanation": refusal or None,
        }
    if extra is not None and extra.format is Format.MESSAGES:
        delta = read_object(extra.data.get("delta"))
        ended |= {name: delta[name] for name in _LAST_DETAILS if delta.get(name) is not None}
    return ended
