"""Reasoning in chat messages: plain text, and a list of details with signatures.

Neither is in the public format. Many servers send `reasoning_content` (or `reasoning`) and a list
`reasoning_details`, one entry per thought, which must return unchanged. Reasoning of another format
goes to clients as such an entry, its signature wrapped by `gateway.wire.signatures`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import Part, ProviderData, Thinking
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import value
from gateway.wire import signatures
from gateway.wire.json_fields import Payload, lenient_objects, lenient_str

REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""The fields of a message with its reasoning."""


def parse_reasoning(message: Payload) -> list[Part]:
    """The reasoning of an earlier reply. The fields are not in the public format, so malformed ones
    are ignored. Wrapped signatures are unwrapped; the text of the message belongs to the first
    readable thought without a text of its own."""
    text = lenient_str(message.get("reasoning_content") or message.get("reasoning"))
    details = message.get("reasoning_details")
    if not details:
        return [Thinking(text)] if text else []
    thoughts: list[Part] = []
    native: list[Any] = []
    for entry in details if isinstance(details, list) else ():
        wrapped = _wrapped_signature(entry)
        if wrapped is None:
            native.append(entry)
        elif entry.get("type") == "reasoning.text":
            own_text = entry.get("text")
            own_text = own_text if isinstance(own_text, str) else text
            thoughts.append(signatures.unwrap(wrapped, own_text))
            text = ""
        else:
            thoughts.append(signatures.unwrap(wrapped, ""))
    if not thoughts:
        return [Thinking(text, ProviderData(Format.CHAT, details), redacted=not text)]
    if native or text:
        signature = ProviderData(Format.CHAT, native) if native else None
        thoughts.insert(0, Thinking(text, signature, redacted=not text))
    return thoughts


def _wrapped_signature(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    signature = lenient_str(entry.get("signature")) or lenient_str(entry.get("data"))
    return signature if signatures.is_wrapped(signature) else None


def merge_details(details: list[Payload], more: object) -> None:
    """Merges streamed entries into `details`: the texts of entries with the same index are
    concatenated, the last value of every other field wins."""
    for entry in filter(None, lenient_objects(more)):
        key = entry.get("type"), entry.get("index")
        same = (old for old in details if (old.get("type"), old.get("index")) == key)
        old = next(same, None) if key[1] is not None else None
        if old is None:
            details.append(dict(entry))
            continue
        for name, new in entry.items():
            is_text = name in ("text", "summary") and isinstance(new, str)
            old[name] = lenient_str(old.get(name)) + new if is_text else new


def has_signature(entry: Payload) -> bool:
    """Whether an entry has more than readable text."""
    return bool(entry.get("signature") or entry.get("data"))


def render_reasoning(
    thoughts: Sequence[Thinking], target: Target, *, same_format: bool
) -> tuple[Payload, bool]:
    """The fields of a message for the target, and whether reasoning was dropped. `same_format`: the
    prompt has this format, so its plain text is the client's own."""
    texts: list[str] = []
    details: list[Any] = []
    dropped = False
    for thought in thoughts:
        signature = signatures.signature_for(thought, Format.CHAT, target)
        if signature is not None:
            details += signature if isinstance(signature, list) else [signature]
        elif not _sends_plain(thought, target, same_format=same_format):
            dropped = dropped or bool(thought.text or thought.signature)
            continue
        texts.append(thought.text)
    fields: Payload = {}
    if text := "\n\n".join(filter(None, texts)):
        fields["reasoning_content"] = text
    if details:
        fields["reasoning_details"] = details
    return fields, dropped


def _sends_plain(thought: Thinking, target: Target, *, same_format: bool) -> bool:
    if thought.signature is not None:
        return False
    if thought.origin is None:
        return same_format
    return target.reasoning_text and thought.origin == target.origin


def has_returned_reasoning(turn: Turn) -> bool:
    """Whether the turn has reasoning that came through another format."""
    return turn.role is Role.ASSISTANT and any(
        type(part) is Thinking and part.origin is not None for part in turn.parts
    )


def patch_reasoning(body: Payload, prompt: Prompt, target: Target) -> None:
    """The native lane: replaces the messages in `body` whose reasoning came through another format
    by ones with the reasoning that the target may get."""
    affected = [index for index, turn in enumerate(prompt.turns) if has_returned_reasoning(turn)]
    if not affected:
        return
    body["messages"] = messages = list(body["messages"])
    for index in affected:
        thoughts = [part for part in prompt.turns[index].parts if isinstance(part, Thinking)]
        kept = {
            name: value for name, value in messages[index].items() if name not in REASONING_FIELDS
        }
        messages[index] = kept | render_reasoning(thoughts, target, same_format=True)[0]


@value
class _Thought:
    text: str
    signature: ProviderData | None
    redacted: bool


class ReasoningDetails:
    """The `reasoning_details` of one reply for a client; `origin` is the `Target.origin` of its
    reasoning. Unsigned reasoning has none."""

    __slots__ = ("_origin", "_thoughts")

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._thoughts: list[_Thought] = []

    def add(self, text: str, signature: ProviderData | None, *, redacted: bool) -> None:
        if text or signature:
            self._thoughts.append(_Thought(text, signature, redacted))

    @property
    def entries(self) -> list[Payload]:
        """Each entry has its own index, by which client libraries merge lists. An entry has a text
        only where the text of the message comes from several thoughts."""
        if not any(thought.signature for thought in self._thoughts):
            return []
        several = sum(1 for thought in self._thoughts if thought.text) > 1
        entries: list[Payload] = []
        for thought in self._thoughts:
            if thought.signature and thought.signature.format is Format.CHAT:
                entries += filter(None, lenient_objects(thought.signature.data))
            else:
                entries.append(self._entry(thought, several))
        return [entry | {"index": index} for index, entry in enumerate(entries)]

    def _entry(self, thought: _Thought, several: bool) -> Payload:
        wrapped = signatures.wrap(thought.signature, self._origin, redacted=thought.redacted)
        if not thought.text:
            return {"type": "reasoning.encrypted", "index": 0, "data": wrapped}
        entry: Payload = {"type": "reasoning.text", "index": 0}
        if several:
            entry["text"] = thought.text
        return entry | {"signature": wrapped}
