"""The hinge between the formats: events and prompts as JSON, one event a line, for the files
`events.json` and `prompt.json` in fixtures.

A value is an object whose `is` names its class; fields that stand at their default are left out.
What is one format's own affair is left out too: `extra`, a tool's `definition`, the estimate that
`Begin` may carry, and what a failure says beside its kind, status and message. Independent of any
wire format.

    python -m tests.support.fixture_json chat tests/fixtures/quirks/chat/crlf/upstream.sse

prints what a stream decodes to, for a person to check and to save.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, get_args, get_type_hints

import orjson

from gateway.core import events as core_events
from gateway.core import events as core_failure
from gateway.core import events as core_usage
from gateway.core import parts as core_parts
from gateway.core.events import Begin, Event, Failure
from gateway.core.formats import Format
from gateway.core.parts import ProviderData
from gateway.core.prompt import Prompt, Tool

_OMITTED = {
    Begin: {"usage"},
    Failure: {"type", "code", "param", "body", "retry_after"},
    Prompt: {"format"},
    Tool: {"definition"},
}

_FIXTURE_NAMES = {
    "CacheBreakpoint": "CacheMark",
    "ProviderData": "Opaque",
    "UnknownPart": "OpaquePart",
    "cached_tokens": "cache_read_tokens",
    "client_executable": "handed_back",
}
"""Classes and fields that the files know by older names."""
_CODE_NAMES = {old: new for new, old in _FIXTURE_NAMES.items()}


def to_json(value: Any) -> Any:
    """The JSON form of an event, a part, a prompt, or a tuple of them."""
    if isinstance(value, ProviderData):
        return {"is": "Opaque", "format": str(value.format), "data": value.data}
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if not is_dataclass(value):
        return str(value) if isinstance(value, StrEnum) else value
    left_out = _OMITTED.get(type(value), set()) | {"extra"}
    return {"is": _fixture_name(type(value).__name__)} | {
        _fixture_name(field.name): to_json(item)
        for field in fields(value)
        if field.name not in left_out and (item := getattr(value, field.name)) != field.default
    }


def from_json(value: Any) -> Any:
    """The value that a JSON form stands for."""
    if isinstance(value, list):
        return tuple(from_json(item) for item in value)
    if not isinstance(value, dict):
        return value
    if value["is"] == "Opaque":
        return ProviderData(Format(value["format"]), value["data"])
    cls = _CLASSES.get(value["is"]) or _CLASSES[_CODE_NAMES[value["is"]]]
    words, known = _enum_fields(cls), {field.name for field in fields(cls)}
    named = {
        name if name in known else _CODE_NAMES[name]: item
        for name, item in value.items()
        if name != "is"
    }
    return cls(
        **{
            name: words[name](item) if name in words else from_json(item)
            for name, item in named.items()
        }
    )


def write_events(events: Iterable[Event]) -> bytes:
    """The text of an `events.json`."""
    return b"[\n%b\n]\n" % b",\n".join(orjson.dumps(to_json(event)) for event in events)


def read_events(path: Path) -> list[Any]:
    """The JSON forms of an `events.json`, to compare with those of decoded events."""
    forms: list[Any] = orjson.loads(path.read_bytes())
    assert to_json(from_json(forms)) == forms, f"{path} is not in its shortest form"
    return forms


def write_prompt(prompt: Prompt) -> bytes:
    """The text of a `prompt.json`."""
    return orjson.dumps(to_json(prompt), option=orjson.OPT_INDENT_2) + b"\n"


def expected_file(path: Path, format: Format, stem: str = "events") -> Path:
    """The hinge of a stream, or with `prompt` that of a request: the case's own, unless this format
    cannot say all of it and has an `events.<format>.json` that shows what is left."""
    own = path.with_name(f"{stem}.{format}.json")
    return own if own.exists() else path.with_name(f"{stem}.json")


def _fixture_name(name: str) -> str:
    return _FIXTURE_NAMES.get(name, name)


def _classes(*modules: ModuleType) -> dict[str, type[Any]]:
    return {
        name: value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, type) and is_dataclass(value)
    }


_CLASSES = _classes(core_events, core_parts, core_usage, core_failure)


@cache
def _enum_fields(cls: type[Any]) -> dict[str, type[StrEnum]]:
    """The fields of a class whose values come from a closed set of names."""
    found: dict[str, type[StrEnum]] = {}
    for name, hint in get_type_hints(cls).items():
        for option in (hint, *get_args(hint)):
            if isinstance(option, type) and issubclass(option, StrEnum):
                found[name] = option
    return found


if __name__ == "__main__":
    from gateway.wire.registry import CODECS
    from tests.wire.stream_cases import decode

    for path in sys.argv[2:]:
        decoded = decode(CODECS[Format(sys.argv[1])].decoder(), Path(path).read_bytes())
        sys.stdout.write(write_events(decoded).decode())
