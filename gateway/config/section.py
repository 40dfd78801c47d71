"""What every mapping of the file has in common. It must not know any option."""

from __future__ import annotations

import ast
import inspect
from textwrap import dedent
from typing import Any

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler


class ConfigModel(BaseModel):
    """A mapping of the file: frozen, strict about types, and closed to unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: Any, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        """The docstring below an option is its description. pydantic has a setting for that, with
        which every import reads and parses the source."""
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for section in cls.__mro__:
            if issubclass(section, ConfigModel):
                for name, docstring in _attribute_docstrings(section).items():
                    if (field := cls.model_fields.get(name)) is not None:
                        properties[field.alias or name].setdefault("description", docstring)
        return schema


def _attribute_docstrings(section: type) -> dict[str, str]:
    """Of the attributes that the class defines itself: option → docstring."""
    (definition,) = ast.parse(dedent(inspect.getsource(section))).body
    found = {}
    if isinstance(definition, ast.ClassDef):
        for attribute, below in zip(definition.body, definition.body[1:], strict=False):
            match attribute, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str(text))),
                ):
                    found[name] = inspect.cleandoc(text)
                case _:
                    pass
    return found
