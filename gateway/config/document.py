"""YAML text to plain data that knows its lines, and the problems found in it.

Stricter than YAML: no anchors, no repeated keys (PyYAML would silently keep the last), no tags, no
dates. A problem never contains a value of the file: a value may be a secret in the wrong place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

import yaml

KeyPath = tuple[str | int, ...]
"""Keys and indexes that lead to a place in the file."""

MAX_SIZE: Final = 2**20
_MAX_DEPTH: Final = 16  # the composer recurses in C: deeper nesting could crash the process
_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_QUOTED_KEY: Final = re.compile(r"[A-Za-z0-9._:/@+-]{1,64}")
_PLAIN_TAGS: Final = frozenset(
    f"tag:yaml.org,2002:{tag}" for tag in ("str", "int", "float", "bool", "null", "seq", "map")
)
_TEXT_TAG: Final = "tag:yaml.org,2002:str"
_UNSAFE_YAML: Final = (
    "anchors (&), aliases (*) and tags (!) are not accepted: put such text in quotes"
)
_TOO_DEEP: Final = "nested too deeply"
_LIBYAML_TOO_DEEP: Final = "exceeded maximum nesting depth"
_TABS: Final = "tabs are not allowed as indentation: use spaces"
_INDENTATION: Final = re.compile(r"(?:\s|-(?=\s))*")
_BARE_REFERENCE: Final = re.compile(r"[:,\[]\s*\$\{")


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """`path` is written like `channels[0].accounts[1].key`, and empty if the file could not be
    read that far. `line` and `column` count from 1; 0: the whole file, or no column."""

    path: str
    file: str
    line: int
    text: str
    column: int = 0

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line, self.column) if part)
        return ": ".join(part for part in (place, self.path, self.text) if part)


class ConfigError(Exception):
    """All problems of the configuration, in the order of the file."""

    def __init__(self, problems: Iterable[ConfigProblem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda problem: (problem.line, problem.column)))
        super().__init__("\n".join(map(str, self.problems)))

    @classmethod
    def at(cls, file: str, line: int, text: str, column: int = 0) -> Self:
        return cls([ConfigProblem("", file, line, text, column)])


@dataclass(slots=True)
class Document:
    """The data of a file, the line of every place in it, and the problems found so far. `unparsed`
    places are None in the data because their form is wrong."""

    file: str
    data: Any = None
    lines: dict[KeyPath, int] = field(default_factory=dict)
    problems: list[ConfigProblem] = field(default_factory=list)
    unparsed: set[KeyPath] = field(default_factory=set)

    def line(self, path: KeyPath) -> int:
        """The line of `path`, or of its nearest ancestor that has one."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)

    def add_problem(self, path: KeyPath, text: str, line: int | None = None) -> None:
        line = line or self.line(path)
        self.problems.append(ConfigProblem(_format_path(path), self.file, line, text))

    def parse(self, node: yaml.Node, path: KeyPath = ()) -> Any:
        """The data of a node; records the line of every place in it."""
        self.lines.setdefault(path, node.start_mark.line + 1)
        if node.tag not in _PLAIN_TAGS:
            return self._add_unparsed(path, "neither text nor a number: put it in quotes")
        if isinstance(node, yaml.MappingNode):
            return self._parse_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self.parse(item, (*path, index)) for index, item in enumerate(node.value)]
        try:
            return yaml.constructor.SafeConstructor().construct_object(node)
        except ValueError:  # 0b_, for example, is a number to YAML
            return self._add_unparsed(path, "not a number")

    def _parse_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key, line = key_node.value, key_node.start_mark.line + 1
            if key_node.tag != _TEXT_TAG:
                self.add_problem(path, "a key must be text: put it in quotes", line)
            elif key in mapping:
                first = self.lines[*path, key]
                self.add_problem((*path, key), f"repeated key, first on line {first}", line)
            else:
                self.lines[*path, key] = line
                mapping[key] = self.parse(value_node, (*path, key))
        return mapping

    def _add_unparsed(self, path: KeyPath, text: str) -> None:
        self.add_problem(path, text)
        self.unparsed.add(path)


def read_document(raw: bytes, file: str) -> Document:
    """Raises ConfigError if the file cannot be read to its end; other problems, such as repeated
    keys, are in the document's `problems`."""
    document = Document(file)
    node = compose(decode(raw, file), file)
    if node is not None:
        document.data = document.parse(node)
    return document


def compose(text: str, file: str) -> yaml.Node | None:
    """The nodes of a text, which know their places in it. Raises ConfigError."""
    try:
        _reject_unsafe_yaml(text, file)
        return yaml.compose(text, Loader=yaml.CSafeLoader)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text, file) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        raise ConfigError.at(file, line, f"not YAML: {error.reason}") from None


def decode(raw: bytes, file: str) -> str:
    """The text of a file. Raises ConfigError."""
    if len(raw) > MAX_SIZE:
        raise ConfigError.at(file, 0, "the file is larger than 1 MiB")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigError.at(file, line, "not UTF-8 text") from None


def _syntax_error(error: yaml.MarkedYAMLError, text: str, file: str) -> ConfigError:
    line, column = _position(error.problem_mark or error.context_mark)
    if error.problem == _LIBYAML_TOO_DEEP:
        return ConfigError.at(file, line, _TOO_DEEP, column)
    problem = ", ".join(part for part in (error.context, error.problem) if part)
    if (tab := _tab_column(text, line)) is not None:
        return ConfigError.at(file, line, _TABS, tab)
    if any(map(_BARE_REFERENCE.search, text.splitlines()[max(0, line - 2) : line])):
        problem += ' (write "${NAME}" in quotes)'
    return ConfigError.at(file, line, f"not YAML: {problem}", column)


def _tab_column(text: str, line: int) -> int | None:
    """The column of a tab in the indentation of the line (of the item, if it is a list's)."""
    lines = text.splitlines()
    indentation = _INDENTATION.match(lines[line - 1]) if line <= len(lines) else None
    column = indentation[0].find("\t") if indentation else -1
    return None if column < 0 else column + 1


def _position(mark: Any) -> tuple[int, int]:
    return (mark.line + 1, mark.column + 1) if mark else (1, 1)


def _reject_unsafe_yaml(text: str, file: str) -> None:
    """Rejects anchors, aliases, tags and too deep nesting before any node is built."""
    problems = []
    depth = 0
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        line, column = _position(event.start_mark)
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if getattr(event, "anchor", None) or getattr(event, "tag", None):
            problems.append(ConfigProblem("", file, line, _UNSAFE_YAML, column))
        if depth > _MAX_DEPTH:
            problems.append(ConfigProblem("", file, line, _TOO_DEEP, column))
            break
    if problems:
        raise ConfigError(problems)


def _format_path(path: KeyPath) -> str:
    """`("channels", 0, "name")` as `channels[0].name`; what looks like a pasted key is masked."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        elif step.startswith("sk-") or not _QUOTED_KEY.fullmatch(step):
            text += "[…]"
        elif _PLAIN_KEY.fullmatch(step):
            text += f".{step}" if text else step
        else:
            text += f'["{step}"]'
    return text
