"""Immutable values and string enumerations at low cost.

A frozen dataclass assigns every field through a call, so creating a value with many fields is slow.
Here the type checker alone enforces immutability.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

if TYPE_CHECKING:  # it checks the field names
    from dataclasses import replace as replace

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def value(cls: type[Any] | None = None, *, kw_only: bool = False) -> Any:
    """The class as a dataclass with slots; its fields define equality and hash."""
    return dataclass(cls, slots=True, unsafe_hash=True, kw_only=kw_only)


if not TYPE_CHECKING:

    def replace(value: T, /, **changes: Any) -> T:
        """Copies a value like `dataclasses.replace`, at less than half of its cost."""
        kind = type(value)
        copied = (_COPIERS.get(kind) or _compile_copier(kind))(value)
        for name, content in changes.items():
            setattr(copied, name, content)
        return copied


_COPIERS: Final[dict[type, Callable[[Any], Any]]] = {}


def _compile_copier(kind: type[Any]) -> Callable[[Any], Any]:
    """Compiled code, as in dataclasses: a loop over the fields would be slower than `__init__`."""
    assignments = "".join(f"    new.{each.name} = old.{each.name}\n" for each in fields(kind))
    source = f"def copy(old):\n    new = make(kind)\n{assignments}    return new\n"
    names: dict[str, Any] = {"make": object.__new__, "kind": kind}
    exec(source, names)  # noqa: S102 - the source has field names only
    copier: Callable[[Any], Any] = names["copy"]
    _COPIERS[kind] = copier
    return copier


class FastStrEnum(StrEnum):
    """Hashes as a string does: the hash of an enumeration is a Python call."""

    __hash__ = str.__hash__
