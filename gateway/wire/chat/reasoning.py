"""Reasoning in chat messages: plain text, and a list of details with signatures.

Neither is in the public format. Many servers send `reasoning_content` (or `reasoning`) and a list
`reasoning_details`, which must return unchanged. Each thinking part of another format goes to
clients as such an entry, its signature wrapped by `gateway.wire.prompt.signatures`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from typing import Any

from gateway.core.formats import Format
from gateway.core.parts import Part, ProviderData, Thinking
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.target import Target
from gateway.core.value import replace
from gateway.wire.json.fields import (
    Payload,
    dump_json,
    lenient_object,
    lenient_objects,
    lenient_str,
)
from gateway.wire.prompt import signatures

REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})
"""The fields of a message with its reasoning."""
CALL_EXTRA = "extra_content"
"""The field of a call with its thought signature (Gemini, "OpenAI compatibility"), which has to
return with the call. Clients of other formats return no field of a call that they do not know, but
reasoning: for them it is an entry of this type in the reasoning right before the call."""


def parse_reasoning(message: Payload) -> list[Part]:
    """The reasoning of an earlier reply. Malformed fields are ignored, as the public format has
    none. Wrapped signatures are unwrapped; the text of the message belongs to the first of their
    readable entries that has no text."""
    text = lenient_str(message.get("reasoning_content") or message.get("reasoning"))
    details = message.get("reasoning_details")
    if not details:
        return [Thinking(text)] if text else []
    unwrapped: list[Part] = []
    native: list[Any] = []
    for entry in details if isinstance(details, list) else ():
        wrapped = _wrapped_signature(entry)
        if wrapped is None:
            native.append(entry)
            continue
        entry_text = ""
        if entry.get("type") == "reasoning.text":
            entry_text = entry["text"] if isinstance(entry.get("text"), str) else text
            text = ""
        unwrapped.append(signatures.unwrap(wrapped, entry_text))
    if not unwrapped:
        return [Thinking(text, ProviderData(Format.CHAT, details), redacted=not text)]
    if native or text:
        signature = ProviderData(Format.CHAT, native) if native else None
        unwrapped.insert(0, Thinking(text, signature, redacted=not text))
    return unwrapped


def _wrapped_signature(entry: object) -> str | None:
    if not isinstance(entry, dict):
        return None
    signature = lenient_str(entry.get("signature")) or lenient_str(entry.get("data"))
    return signature if signatures.is_wrapped(signature) else None


_PLACEHOLDER = "skip_thought_signature_validator"
"""Stands for a thought signature that there is not (Gemini, "Thought signatures")."""


def sign_calls(body: Payload) -> Payload:
    """The body with a placeholder in the first call of each message without a thought signature: of
    parallel calls only the first has one."""
    return _edited(body, lambda message: _sign_calls(message, "".__eq__))


def without_proofs(body: Payload, is_lost: Callable[[str], bool]) -> Payload:
    """See `Codec.without_proofs`. Calls get a placeholder instead of a thought signature."""

    def edit(message: Payload) -> Payload:
        details = message.get("reasoning_details")
        is_signed = details and any(map(has_signature, lenient_objects(details)))
        if is_signed and is_lost(dump_json(details)):
            message = {name: message[name] for name in message if name != "reasoning_details"}
        return _sign_calls(message, lambda signature: bool(signature) and is_lost(signature))

    return _edited(body, edit)


def _edited(body: Payload, edit: Callable[[Payload], Payload]) -> Payload:
    """The body with its edited messages, the same object where none is another."""
    before = body["messages"]
    after = [edit(each) if isinstance(each, dict) else each for each in before]
    return body if all(map(operator.is_, after, before)) else body | {"messages": after}


def _sign_calls(message: Payload, is_lost: Callable[[str], bool]) -> Payload:
    calls = lenient_objects(message.get("tool_calls"))
    if not calls:
        return message
    google = lenient_object(lenient_object(calls[0].get(CALL_EXTRA)).get("google"))
    signature = lenient_str(google.get("thought_signature"))
    if signature == _PLACEHOLDER or not is_lost(signature):
        return message
    extra = {CALL_EXTRA: {"google": {"thought_signature": _PLACEHOLDER}}}
    return message | {"tool_calls": [calls[0] | extra, *calls[1:]]}


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


def detail_text(details: object) -> str:
    """The readable text of the entries."""
    entries = lenient_objects(details)
    texts = [lenient_str(entry.get("text") or entry.get("summary")) for entry in entries]
    return "".join(texts)


def has_signature(entry: Payload) -> bool:
    """Tells whether an entry has more than readable text."""
    return bool(entry.get("signature") or entry.get("data"))


def call_extra_entry(extra: object) -> Payload:
    """The entry of `reasoning_details` that carries the extra content of the next call."""
    return {"type": CALL_EXTRA, "data": extra}


def split_call_extra(thinking: Thinking, target: Target) -> tuple[Thinking | None, Any | None]:
    """The reasoning without what belongs to the next call, None if nothing is left of it; and the
    call's extra content, None where it has none, or it is another upstream's."""
    signature = thinking.signature
    if signature is None or signature.format is not Format.CHAT:
        return thinking, None
    entries = lenient_objects(signature.data)
    carried = [entry for entry in entries if entry.get("type") == CALL_EXTRA]
    if not carried or signatures.signature_for(thinking, Format.CHAT, target) is None:
        return thinking, None
    others = [entry for entry in entries if entry not in carried]
    rest = ProviderData(Format.CHAT, others) if others else None
    kept = thinking if rest is None and not thinking.text else replace(thinking, signature=rest)
    return (None if kept is thinking else kept), carried[-1].get("data")


def render_reasoning(
    parts: Iterable[Part], target: Target, *, same_format: bool
) -> tuple[Payload, bool]:
    """The fields of a message for the target, and whether reasoning was dropped. `same_format`: the
    prompt has this format, so its plain text is the client's own."""
    texts: list[str] = []
    details: list[Any] = []
    dropped = False
    for part in parts:
        if not isinstance(part, Thinking):
            continue
        signature = signatures.signature_for(part, Format.CHAT, target)
        if signature is not None:
            details += signature if isinstance(signature, list) else [signature]
        elif not _sends_plain(part, target, same_format=same_format):
            dropped = dropped or bool(part.text or part.signature)
            continue
        texts.append(part.text)
    fields: Payload = {}
    if text := "\n\n".join(filter(None, texts)):
        fields["reasoning_content"] = text
    if details:
        fields["reasoning_details"] = details
    return fields, dropped


def _sends_plain(thinking: Thinking, target: Target, *, same_format: bool) -> bool:
    if thinking.signature is not None:
        return False
    if thinking.origin is None:
        return same_format
    return target.reasoning_text and thinking.origin == target.origin


def patch_reasoning(body: Payload, prompt: Prompt, target: Target) -> None:
    """The native lane: replaces the messages in `body` whose reasoning came through another format
    by ones with the reasoning that the target may get."""
    turns = prompt.turns
    affected = [index for index, turn in enumerate(turns) if _has_returned_reasoning(turn)]
    if not affected:
        return
    body["messages"] = messages = list(body["messages"])
    for index in affected:
        message = messages[index].items()
        fields, _ = render_reasoning(turns[index].parts, target, same_format=True)
        messages[index] = {k: v for k, v in message if k not in REASONING_FIELDS} | fields


def _has_returned_reasoning(turn: Turn) -> bool:
    """Tells whether the turn has reasoning that came through another format."""
    return turn.role is Role.ASSISTANT and any(
        type(part) is Thinking and part.origin is not None for part in turn.parts
    )


def render_details(reasoning: Iterable[Thinking], origin: str) -> list[Payload]:
    """The `reasoning_details` of a reply for a client; `origin` is the `Target.origin` of the
    reasoning. Unsigned reasoning has none.

    Each entry has its own index, by which client libraries merge lists. It has a text only where
    the text of the message comes from several parts.
    """
    parts = [part for part in reasoning if part.text or part.signature]
    if not any([part.signature for part in parts]):
        return []
    has_several = len([part for part in parts if part.text]) > 1
    entries: list[Payload] = []
    for part in parts:
        if part.signature and part.signature.format is Format.CHAT:
            own = lenient_objects(part.signature.data)
            entries += [entry for entry in own if entry and entry.get("type") != CALL_EXTRA]
            continue
        wrapped = signatures.wrap(part.signature, origin, redacted=part.redacted)
        if part.text:
            text = {"text": part.text} if has_several else {}
            entries.append({"type": "reasoning.text", "index": 0, **text, "signature": wrapped})
        else:
            entries.append({"type": "reasoning.encrypted", "index": 0, "data": wrapped})
    return [entry | {"index": index} for index, entry in enumerate(entries)]
