"""Collects what a prompt loses on its way into another format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, UnknownPart
from gateway.core.prompt import Prompt
from gateway.errors import UnsupportedField
from gateway.wire.json.fields import Payload, lenient_object, lenient_objects, lenient_str
from gateway.wire.prompt.json_schema import SchemaBudget

_GATEWAY_FIELDS: Final = ("stream_options",)
"""Fields for the gateway, not for the model."""
_DEFAULTS: Final = {
    "modalities": ["text"],
    "prompt_cache_retention": "in_memory",
    "speed": "standard",
    "truncation": "disabled",
}
"""Values of fields that change nothing."""
_INCLUDED: Final = {"reasoning.encrypted_content", "web_search_call.action.sources"}
"""Values of `include` (responses) that replies have wherever they are known."""
_METADATA_FIELDS: Final = ("id", "status", "caller", "clear_at", "output_config")
"""Fields of a part or a message that no model reads, or that its parser has applied."""
_APPLIED_PARTS: Final = ("tool_addition", "tool_removal", "configuration_update")
"""Parts whose effect is in the fields of the prompt, except on the tools of MCP servers."""
_READ_FIELDS: Final = {
    "text": ("type", "text", "cache_control"),
    "document": ("type", "source", "title", "context", "cache_control"),
    "search_result": ("type", "source", "title", "content", "cache_control"),
    "compaction": ("type", "content", "tool_changes", "cache_control"),
}
"""The fields that are read of parts that are texts in other formats, by the part's type."""
_UNREADABLE_PARTS: Final = {
    "item_reference": "only its own upstream knows what it refers to",
    "compaction": "only its own upstream can read what it summarizes",
    "container_upload": "a file kept by one vendor is not known to another",
    "image": "this upstream knows no such source",
    "file": "this upstream knows no such source",
    "document": "this upstream knows no such source",
}
"""Parts with content that only their own upstream can read."""


class Dropped:
    """Names of what one prompt loses in `format`: a field (`top_k`), or the kind of a part
    (`audio`); and what its schemas may cost."""

    __slots__ = ("_schema_budget", "format", "names")

    def __init__(self, format: Format) -> None:
        self.format = format
        self.names: set[str] = set()
        self._schema_budget: SchemaBudget | None = None

    @property
    def schema_budget(self) -> SchemaBudget:
        if self._schema_budget is None:
            self._schema_budget = SchemaBudget()
        return self._schema_budget

    def drop(self, name: str) -> None:
        self.names.add(name)

    def drop_set(self, **fields: Any) -> None:
        """Every field that is not None and not empty."""
        for name, value in fields.items():
            if value is not None and value not in ({}, [], ()):
                self.names.add(name)

    def native_value(self, extra: ProviderData | None, name: str) -> Any | None:
        """The data where they are of this format; else they are dropped as `name`."""
        if extra is None:
            return None
        if extra.format is self.format:
            return extra.data
        self.drop(name)
        return None

    def native_fields(self, extra: ProviderData | None, prefix: str = "") -> Payload:
        """The fields where they are of this format; else each is dropped by its own name."""
        if extra is None or not isinstance(extra.data, dict):
            return {}
        if extra.format is self.format:
            return extra.data
        self.names.update(
            prefix + name
            for name, value in extra.data.items()
            if value or type(value) in (int, float)  # 0 is significant
        )
        return {}

    def request_fields(self, prompt: Prompt, shared: Sequence[str] = ()) -> Payload:
        """A request's fields without a counterpart in `Prompt`, where they are of this format; else
        each is dropped, except those that the prompt has under another name and those that are
        `shared` by this format."""
        extra = prompt.extra
        if prompt.format is not self.format:
            self._drop_settings(prompt)
        if extra is None or extra.format is self.format:
            return self.native_fields(extra)
        expressed = {"safety_identifier": prompt.user, **_DEFAULTS}
        rest = {
            name: value
            for name, value in extra.data.items()
            if name not in (*_GATEWAY_FIELDS, *shared)
            and (name not in expressed or expressed[name] != value)
        }
        return self.native_fields(ProviderData(extra.format, rest))

    def _drop_settings(self, prompt: Prompt) -> None:
        """Settings of what is stored and shown, where they are not the default of other formats."""
        if not _INCLUDED.issuperset(prompt.include):
            self.drop("include")
        if prompt.store and prompt.format is Format.CHAT:
            self.drop("store")
        summary = prompt.reasoning.summary if prompt.reasoning is not None else None
        if summary in ("concise", "detailed") and self.format is not Format.RESPONSES:
            self.drop("reasoning.summary")
        elif summary == "omitted" and self.format is Format.CHAT:
            self.drop("thinking.display")

    def remaining_fields(self, extra: ProviderData | None) -> Payload:
        """The other fields of a part or a message, where they are of this format; else they are
        dropped, except for mere metadata. Fields with a type are the whole part, of which the
        `_READ_FIELDS` have been read already."""
        if extra is None:
            return {}
        if extra.format is self.format:
            return self.native_fields(extra)
        fields = extra.data
        if lenient_object(fields.get("caller")).get("type") not in (None, "direct"):
            self.drop("content.caller")
        if "type" not in fields:
            self._drop_rest(extra, fields, _METADATA_FIELDS)
        elif (read := _READ_FIELDS.get(fields["type"])) is not None:
            self._drop_rest(extra, fields, read)
            for change in lenient_objects(fields.get("tool_changes")):
                self.drop_rest_of_change(change)
            source = lenient_object(fields.get("source"))
            for block in lenient_objects(source.get("content") or fields.get("content")):
                self._drop_rest(extra, block, _READ_FIELDS["text"])
                self.drop_set(cache_marks=block.get("cache_control"))
        return {}

    def drop_rest_of_change(self, change: Payload) -> None:
        """Names what the fields of the prompt do not have of one of the `_APPLIED_PARTS`."""
        self.drop_set(cache_marks=change.get("cache_control"))
        if "server_name" in lenient_object(change.get("tool")):
            self.drop(lenient_str(change.get("type")))

    def _drop_rest(self, extra: ProviderData, fields: Payload, read: Sequence[str]) -> None:
        rest = {name: fields[name] for name in fields if name not in read}
        self.native_fields(ProviderData(extra.format, rest), "content.")

    def native_part(self, part: UnknownPart) -> Any | None:
        """A part of unknown kind, where it is of this format; else it is dropped by its kind.
        Raises `UnsupportedField` where content would be missing unnoticed."""
        if part.data.format is not self.format:
            if part.kind in _APPLIED_PARTS:
                self.drop_rest_of_change(part.data.data)
                return None
            if reason := _UNREADABLE_PARTS.get(part.kind):
                raise UnsupportedField(part.kind, reason)
        return self.native_value(part.data, part.kind)
