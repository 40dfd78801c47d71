"""What a client wants compacted, and what is left of a conversation once it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, Text, ToolResult, UnknownPart
from gateway.core.prompt import Prompt, Role, Turn
from gateway.core.value import replace
from gateway.server.compaction.seal import Sealer, Summary
from gateway.wire.json.fields import invalid_field, lenient_object, lenient_objects, lenient_str

ITEM: Final = "compaction"
TRIGGER: Final = "compaction_trigger"
FIELD: Final = "context_management"
_EDIT: Final = "compact_20260112"
_DEFAULT_THRESHOLD: Final = 150_000
_SYSTEM_ROLES: Final = (Role.SYSTEM, Role.DEVELOPER)
_SETTINGS: Final = ("additional_tools", "configuration_update")
"""Items that are no turns."""
_UNREADABLE: Final = "it was changed since the gateway made it"


class Compaction(NamedTuple):
    """A compaction that a client wants at `threshold` input tokens; 0: now. If it `pauses`, the
    reply is the summary alone."""

    threshold: int
    pauses: bool = False
    instructions: str = ""


def wanted_compaction(prompt: Prompt) -> Compaction | None:
    """What a trigger or `context_management` asks for. Raises `InvalidRequest`."""
    if prompt.turns and _is_trigger(prompt.turns[-1]):
        return Compaction(0, pauses=True)
    settings = prompt.extra.data.get(FIELD) if prompt.extra is not None else None
    is_list = isinstance(settings, list)
    entries = settings if is_list else lenient_object(settings).get("edits")
    for index, entry in enumerate(lenient_objects(entries)):
        if not _is_compaction(entry):
            continue
        if is_list:
            path, threshold = f"{FIELD}.{index}.compact_threshold", entry.get("compact_threshold")
        else:
            path = f"{FIELD}.edits.{index}.trigger.value"
            threshold = lenient_object(entry.get("trigger")).get("value")
        threshold = _DEFAULT_THRESHOLD if threshold is None else threshold
        if type(threshold) is not int or threshold < 1:
            raise invalid_field(path, "Input should be a positive integer")
        pauses = entry.get("pause_after_compaction") is True
        return Compaction(threshold, pauses, lenient_str(entry.get("instructions")))
    return None


def _is_compaction(entry: Any) -> bool:
    return lenient_object(entry).get("type") in (ITEM, _EDIT)


def _is_trigger(turn: Turn) -> bool:
    part = turn.parts[0] if turn.parts else None
    return type(part) is UnknownPart and part.kind == TRIGGER


def upstream_states(prompt: Prompt) -> list[str]:
    """The contents of the items that only the upstream that made them can read."""
    parts = (part for turn in prompt.turns for part in turn.parts if type(part) is UnknownPart)
    items = (ProviderData.native_fields(part.data, Format.RESPONSES) for part in parts)
    return [
        lenient_str(item.get("encrypted_content")) for item in items if item.get("type") == ITEM
    ]


def has_compactions(prompt: Prompt) -> bool:
    """Tells whether items or blocks of compactions are in the conversation."""
    if prompt.format is not Format.MESSAGES:
        return prompt.compaction
    parts = (part for turn in prompt.turns for part in turn.parts)
    return any(isinstance(part, Text) and _is_summary(part) for part in parts)


def without_request(prompt: Prompt) -> Prompt:
    """The prompt for an upstream that compacts nothing itself: without what asks for it, and with
    summaries in place of the turns that they are of."""
    turns, extra = prompt.turns, prompt.extra
    if prompt.format is Format.MESSAGES:
        turns = _after_last_summary(turns)
    elif any(map(_is_trigger, turns)):
        turns = tuple(turn for turn in turns if not _is_trigger(turn))
    if extra is not None and (settings := extra.data.get(FIELD)):
        fields = {name: value for name, value in extra.data.items() if name != FIELD}
        if kept := _without_compactions(settings):
            fields[FIELD] = kept
        extra = ProviderData(extra.format, fields)
    return replace(prompt, turns=turns, extra=extra)


def _without_compactions(settings: Any) -> Any:
    if isinstance(settings, list):
        return [entry for entry in settings if not _is_compaction(entry)]
    if not isinstance(edits := lenient_object(settings).get("edits"), list):
        return settings
    kept = [edit for edit in edits if not _is_compaction(edit)]
    return settings | {"edits": kept} if kept or not edits else None


def _after_last_summary(turns: tuple[Turn, ...]) -> tuple[Turn, ...]:
    """Turns of messages: the system's, the last summary, and what follows it."""
    for at in range(len(turns) - 1, -1, -1):
        parts = turns[at].parts
        for index in range(len(parts) - 1, -1, -1):
            part = parts[index]
            if isinstance(part, Text) and part.text and _is_summary(part):
                kept = [turn for turn in turns[:at] if turn.role in _SYSTEM_ROLES]
                kept.append(Turn(Role.USER, (Text(part.text, cache=part.cache),)))
                if rest := parts[index + 1 :]:
                    kept.append(replace(turns[at], parts=rest))
                return (*kept, *turns[at + 1 :])
    return turns


def _is_summary(part: Text) -> bool:
    return ProviderData.native_fields(part.extra, Format.MESSAGES).get("type") == ITEM


def _describe(summary: str) -> str:
    """As the summaries of messages clients are described, too."""
    return f"[Summary of the conversation so far]\n{summary}"


def compacted(prompt: Prompt, summary: str) -> Prompt:
    """The prompt with the summary in place of everything but the system's turns and a question of
    the user at the end, if there is one."""
    turns = [turn for turn in prompt.turns if turn.role in _SYSTEM_ROLES]
    turns.append(Turn(Role.USER, (Text(_describe(summary)),)))
    last = prompt.turns[-1]
    if last.role is Role.USER and not any(isinstance(part, ToolResult) for part in last.parts):
        turns.append(last)
    return replace(prompt, turns=tuple(turns))


def open_items(items: Sequence[Any], sealer: Sealer) -> list[Any]:
    """Items of a responses request, with sealed summaries as messages of the user; without
    triggers that have been followed, and without what the last summary of all covers. Raises
    `InvalidRequest`."""
    opened: list[Any] = []
    covered = 0  # from the front of it, where only settings are left: none is looked at twice
    follows_trigger = False
    for index, item in enumerate(items):
        kind = lenient_object(item).get("type")
        covers_all, follows_trigger = follows_trigger, kind == TRIGGER
        if follows_trigger and index < len(items) - 1:
            continue
        if kind == ITEM:
            if sealer.is_own(item.get("encrypted_content")):
                path = f"input.{index}.encrypted_content"
                if (summary := sealer.open(item["encrypted_content"])) is None:
                    raise invalid_field(path, _UNREADABLE)
                content = [{"type": "input_text", "text": _describe(summary.text)}]
                item = {"type": "message", "role": "user", "content": content}
                covers_all = covers_all or summary.covers_all
            if covers_all:
                left = [each for each in opened[covered:] if _is_setting(lenient_object(each))]
                opened[covered:] = left
                covered = len(opened)
        opened.append(item)
    return opened


def _is_setting(item: dict[str, Any]) -> bool:
    return item.get("role") in _SYSTEM_ROLES or item.get("type") in _SETTINGS


def compaction_part(
    format: Format, summary: Summary, seal: Callable[[Summary], str]
) -> UnknownPart:
    """The summary as the client's format has it."""
    if format is Format.MESSAGES:
        content = {"content": summary.text}
    else:
        content = {"encrypted_content": seal(summary)}
    return UnknownPart(ITEM, ProviderData(format, {"type": ITEM} | content))
