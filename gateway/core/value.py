"""Immutable values and string enumerations at low cost.

A frozen dataclass assigns every field through a call, so creating a value with many fields is slow.
Here the type checker alone enforces immutability.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeVar, dataclass_transform

if TYPE_CHECKING:  # it checks the field names
    from dataclasses import replace as replace

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])


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
    """Compiles code, as in dataclasses: a loop over the fields would be slower than `__init__`."""
    assignments = "".join(f"    new.{each.name} = old.{each.name}\n" for each in fields(kind))
    source = f"def copy(old):\n    new = make(kind)\n{assignments}    return new\n"
    names: dict[str, Any] = {"make": object.__new__, "kind": kind}
    exec(source, names)  # noqa: S102 - the source has field names only
    copier: Callable[[Any], Any] = names["copy"]
    _COPIERS[kind] = copier
    return copier


def by_position(kind: type[tuple[Any, ...]]) -> Callable[[Function], Function]:
    """Compile a function so that its call of the named tuple `kind`, or of `_replace` of one, by
    keywords, is one by position: with 50 fields keywords take four times as long. Without its
    source the function stays as it is."""

    def compile_function(function: Function) -> Function:
        try:
            tree = ast.parse(inspect.getsource(function))
        except OSError:
            return function
        ast.increment_lineno(tree, function.__code__.co_firstlineno - 1)
        tree.body[0].decorator_list = []  # type: ignore[attr-defined]  # a function's
        code = compile(_ByPosition(kind).visit(tree), inspect.getfile(function), "exec")
        names: dict[str, Any] = {}
        exec(code, function.__globals__, names)  # noqa: S102 - the function's own source
        compiled: Function = names[function.__name__]
        return compiled

    return compile_function


class _ByPosition(ast.NodeTransformer):
    """Writes `kind._make((…))` for `kind(field=…)`, and `row._make((…))` for `row._replace(…)`."""

    def __init__(self, kind: Any) -> None:
        self._kind = kind

    def visit_Call(self, node: ast.Call) -> ast.AST:
        others: dict[str, ast.expr]
        match node.func:
            case ast.Name(id=self._kind.__name__) as owner:
                defaults = self._kind._field_defaults
                others = {name: ast.Constant(default) for name, default in defaults.items()}
            case ast.Attribute(value=ast.Name() as owner, attr="_replace"):
                load = ast.Load()
                others = {name: ast.Attribute(owner, name, load) for name in self._kind._fields}
            case _:
                return self.generic_visit(node)
        given = others | {str(each.arg): each.value for each in node.keywords}
        fields = ast.Tuple([given.pop(name) for name in self._kind._fields], ast.Load())
        if given:
            raise TypeError(f"{self._kind.__name__} has no {', '.join(given)}")
        make = ast.Attribute(owner, "_make", ast.Load())
        call = ast.copy_location(ast.Call(make, [fields], []), node)
        return ast.fix_missing_locations(call)


class FastStrEnum(StrEnum):
    """Hashes as a string does: the hash of an enumeration is a Python call."""

    __hash__ = str.__hash__
