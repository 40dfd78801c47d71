"""Reasoning as chat carries it: plain text, and details that prove it. It must not know streams.

Neither is in the public format; many servers send `reasoning_content` (or `reasoning`), and a list
`reasoning_details` with one entry a thought, which must come back unchanged. Reasoning of another
format goes to clients as such an entry, its proof packed by `gateway.wire.signatures`.
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
"""Where a message keeps its reasoning."""


def parse_reasoning(message: Payload) -> list[Part]:
    """The thoughts of a former reply. The fields are not the format's own, so what does not fit is
    left alone. What was packed for the client is taken apart; the text belongs to the first thought
    that can be read and has none of its own."""
    text = lenient_str(message.get("reasoning_content") or message.get("reasoning"))
    details = message.get("reasoning_details")
    if not details:
        return [Thinking(text)] if text else []
    thoughts: list[Part] = []
    own: list[Any] = []
    for entry in details if isinstance(details, list) else ():
        packed = _wrapped_signature(entry)
        if packed is None:
            own.append(entry)
        elif entry.get("type") == "reasoning.text":
            said = entry.get("text")
            thoughts.append(signatures.unwrap(packed, said if isinstance(said, str) else text))
            text = ""
        else:
            thoughts.append(signatures.unwrap(packed, ""))
    if not thoughts:
        return [Thinking(text, ProviderData(Format.CHAT, details), redacted=not text)]
    if own or text:
        signature = ProviderData(Format.CHAT, own) if own else None
        thoughts.insert(0, Thinking(text, signature, redacted=not text))
    return thoughts


def _wrapped_signature(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    code = lenient_str(entry.get("signature")) or lenient_str(entry.get("data"))
    return code if signatures.is_wrapped(code) else None


def merge_details(details: list[Payload], more: object) -> None:
    """Adds to the details of a stream so far: texts of entries with one index grow, the rest of
    their fields is what came last."""
    for entry in filter(None, lenient_objects(more)):
        index = entry.get("index")
        same = (one for one in details if one.get("type") == entry.get("type"))
        known = next((one for one in same if index is not None and one.get("index") == index), None)
        if known is None:
            details.append(dict(entry))
            continue
        for name, said in entry.items():
            grows = name in ("text", "summary") and isinstance(said, str)
            known[name] = lenient_str(known.get(name)) + said if grows else said


def has_signature(entry: Payload) -> bool:
    """Whether an entry holds more than the text that can be read anyway."""
    return bool(entry.get("signature") or entry.get("data"))


def render_reasoning(
    thoughts: Sequence[Thinking], target: Target, *, same_format: bool
) -> tuple[Payload, bool]:
    """The fields of a message for the target, and whether thoughts had to stay behind. `own`: the
    prompt speaks this format itself, so its plain text is as the client has it."""
    texts: list[str] = []
    details: list[Any] = []
    lost = False
    for thought in thoughts:
        proof = signatures.signature_for(thought, Format.CHAT, target)
        if proof is not None:
            details += proof if isinstance(proof, list) else [proof]
        elif not _sends_plain(thought, target, same_format=same_format):
            lost = lost or bool(thought.text or thought.signature)
            continue
        texts.append(thought.text)
    fields: Payload = {}
    if text := "\n\n".join(filter(None, texts)):
        fields["reasoning_content"] = text
    if details:
        fields["reasoning_details"] = details
    return fields, lost


def _sends_plain(thought: Thinking, target: Target, *, same_format: bool) -> bool:
    if thought.signature is not None:
        return False
    if thought.origin is None:
        return same_format
    return target.reasoning_text and thought.origin == target.origin


def has_returned_reasoning(turn: Turn) -> bool:
    """Whether the turn holds reasoning that went through another format."""
    return turn.role is Role.ASSISTANT and any(
        type(part) is Thinking and part.origin is not None for part in turn.parts
    )


def patch_reasoning(body: Payload, prompt: Prompt, target: Target) -> None:
    """The native lane: in a body that may be changed, each message whose reasoning went through
    another format is replaced by one with what the target may have of it."""
    concerned = [index for index, turn in enumerate(prompt.turns) if has_returned_reasoning(turn)]
    if not concerned:
        return
    body["messages"] = messages = list(body["messages"])
    for index in concerned:
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
    reasoning. A reply whose reasoning nobody signed has none."""

    __slots__ = ("_origin", "_thoughts")

    def __init__(self, origin: str) -> None:
        self._origin = origin
        self._thoughts: list[_Thought] = []

    def add(self, text: str, signature: ProviderData | None, *, redacted: bool) -> None:
        if text or signature:
            self._thoughts.append(_Thought(text, signature, redacted))

    @property
    def entries(self) -> list[Payload]:
        """Every entry has an index of its own, for client libraries put lists together by it. The
        text stands in an entry only where the message's text is that of several thoughts."""
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
        packed = signatures.wrap(thought.signature, self._origin, redacted=thought.redacted)
        if not thought.text:
            return {"type": "reasoning.encrypted", "index": 0, "data": packed}
        entry: Payload = {"type": "reasoning.text", "index": 0}
        if several:
            entry["text"] = thought.text
        return entry | {"signature": packed}
