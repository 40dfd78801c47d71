"""Clients that can be replayed: the files of this folder, one for each.

A file has `headers`, `credential` (the name of the header, and what precedes the key in it), and
steps of one or several requests: `once` for a run, `steps` for each model, both in this order.
`fragments` are for YAML references alone. In bodies these strings stand for values:

    $model, $hello, $count, $file, $path_schema, $word_schema
    $id, $history, $results   id and content of the reply before, and the results of its calls
    $call_id                  in `result` (of the call that was asked for) and `cancelled` (others)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final

import yaml

from gateway.core.formats import Format
from gateway.core.value import value

CLIENTS: Final = ("claude-code", "codex", "opencode", "aider", "openai", "anthropic")
_OUTPUT_LIMITS: Final = ("max_tokens", "max_completion_tokens", "max_output_tokens")
_STEP_FIELDS: Final = ("name", "requests")


def _schema(name: str, **options: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": "string", **options}},
        "required": [name],
        "additionalProperties": False,
    }


TEXTS: Final[dict[str, Any]] = {
    "$hello": "Say hello in one word.",
    "$count": "Count from 1 to 20, with a comma and a space between the numbers, nothing else.",
    "$file": "1\thello from notes.txt",
    "$path_schema": _schema("path", description="Path of the file."),
    "$word_schema": _schema("word"),
}


@value(kw_only=True)
class Request:
    """`what` names the features of the request, the likeliest to fail first. `expect` is a check of
    `checks`, which uses `tool`, `words`, `warning` and `remedy`. An error whose code is `tolerated`
    ends the step."""

    path: str
    result: Mapping[str, Any]
    cancelled: Mapping[str, Any]
    method: str = "POST"
    what: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    expect: str = "text"
    tool: str = ""
    words: tuple[str, ...] = ()
    warning: str = ""
    remedy: str = ""
    tolerated: tuple[str, ...] = ()

    @property
    def max_output(self) -> int:
        return sum((self.body or {}).get(name, 0) for name in _OUTPUT_LIMITS)


@value
class Step:
    name: str
    requests: tuple[Request, ...]


@value(kw_only=True)
class Profile:
    """The profile of a client: what identifies it, and what it sends."""

    name: str
    format: Format
    source: str
    headers: Mapping[str, str]
    credential: tuple[str, str]
    once: tuple[Step, ...]
    steps: tuple[Step, ...]

    def cost(self, models: int) -> tuple[int, int]:
        """Count the requests, and the output tokens at most; those of `once` are refused."""
        once = sum(len(step.requests) for step in self.once)
        sent = [request for step in self.steps for request in step.requests] * models
        return once + len(sent), sum(request.max_output for request in sent)


def load_profile(name: str) -> Profile:
    text = Path(__file__).with_name(f"{name}.yaml").read_bytes()
    data = yaml.load(text, Loader=yaml.CSafeLoader)
    defaults = {key: data.get(key, {}) for key in ("path", "result", "cancelled")}
    return Profile(
        name=name,
        format=Format(data["format"]),
        source=data["source"],
        headers=data["headers"],
        credential=tuple(data["credential"]),
        once=tuple(_step(each, defaults) for each in data["once"]),
        steps=tuple(_step(each, defaults) for each in data["steps"]),
    )


def _step(data: dict[str, Any], defaults: dict[str, Any]) -> Step:
    """Read a step; what it says beside its requests holds for all of them."""
    shared = defaults | {key: each for key, each in data.items() if key not in _STEP_FIELDS}
    requests = (Request(**shared | each) for each in data.get("requests", [{}]))
    return Step(data["name"], tuple(requests))


def fill(template: Any, values: Mapping[str, Any]) -> Any:
    """Put values into a template. A list in place of an item becomes several items."""
    if isinstance(template, str):
        return values.get(template, template)
    if isinstance(template, Mapping):
        return {name: fill(each, values) for name, each in template.items()}
    if not isinstance(template, list):
        return template
    filled: list[Any] = []
    for each in template:
        item = fill(each, values)
        if isinstance(each, str) and isinstance(item, list):
            filled += item
        else:
            filled.append(item)
    return filled
