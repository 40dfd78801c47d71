"""What a prompt loses on its way into another format. It must not know any single format."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, UnknownPart
from gateway.core.prompt import Prompt
from gateway.errors import UnsupportedField
from gateway.wire.json_fields import Payload

_GATEWAY_FIELDS: Final = ("stream_options",)
"""Fields that are said to the gateway, not to the model."""
_METADATA_FIELDS: Final = ("id", "status", "caller")
"""What formats write beside a part or a message for their own use: nothing that a model reads."""
_STATEFUL_PARTS: Final = ("item_reference",)
"""Parts that stand for words which their own upstream alone has kept."""


class Dropped:
    """Names of what one prompt could not take along into `format`, in the hub's words where it
    has any: a field (`top_k`), or the kind of a part (`audio`)."""

    __slots__ = ("_format", "names")

    def __init__(self, format: Format) -> None:
        self._format = format
        self.names: set[str] = set()

    def drop(self, name: str) -> None:
        self.names.add(name)

    def drop_set(self, **fields: Any) -> None:
        """Every field that says anything at all."""
        for name, value in fields.items():
            if value is not None and _is_set(value):
                self.names.add(name)

    def native_value(self, pocket: ProviderData | None, name: str) -> Any | None:
        """What is in a side pocket where it belongs to this format; else it is lost by `name`."""
        if pocket is None:
            return None
        if pocket.format is self._format:
            return pocket.data
        self.drop(name)
        return None

    def native_fields(self, pocket: ProviderData | None, prefix: str = "") -> Payload:
        """The same for a pocket full of fields, each of which is lost by its own name."""
        if pocket is None or not isinstance(pocket.data, dict):
            return {}
        if pocket.format is self._format:
            return pocket.data
        self.names.update(
            prefix + name for name, value in pocket.data.items() if _is_significant(value)
        )
        return {}

    def request_fields(self, prompt: Prompt, shared: Sequence[str] = ()) -> Payload:
        """A request's fields that the hub has no word for, where they are this format's; else each
        is lost, but for those that were heeded and those that are `alike` here."""
        pocket = prompt.extra
        if pocket is None or pocket.format is self._format:
            return self.native_fields(pocket)
        heeded = {"safety_identifier": prompt.user, "modalities": ["text"]}
        more = {
            name: value
            for name, value in pocket.data.items()
            if name not in (*_GATEWAY_FIELDS, *shared)
            and (name not in heeded or heeded[name] != value)
        }
        return self.native_fields(ProviderData(pocket.format, more))

    def remaining_fields(self, pocket: ProviderData | None) -> Payload:
        """What a part or a message says beyond the hub's words, where it is this format's; else it
        is lost but for the format's book-keeping. A pocket with a type is no rest but all of a
        part, of which the hub has what there is to know."""
        if pocket is None or pocket.format is self._format:
            return self.native_fields(pocket)
        if "type" not in pocket.data:
            more = {name: pocket.data[name] for name in pocket.data if name not in _METADATA_FIELDS}
            self.native_fields(ProviderData(pocket.format, more), "content.")
        return {}

    def native_part(self, part: UnknownPart) -> Any | None:
        """A part that the hub has no word for, where it is this format's; else it is lost by its
        kind. Raises `CannotConvert` where it stands for words that would be missing unseen."""
        if part.data.format is not self._format and part.kind in _STATEFUL_PARTS:
            raise UnsupportedField(part.kind, "only its own upstream knows what it refers to")
        return self.native_value(part.data, part.kind)


def _is_set(value: Any) -> bool:
    return value not in ({}, [], ())


def _is_significant(value: Any) -> bool:
    """Whether a client's own field tells anything: 0 does, what is empty or off does not."""
    return bool(value) or type(value) in (int, float)
