"""docs/mapping.md against the codecs: every cell says what they do, and they do nothing else.

A cell's `names` after "dropped:" and "refused:" are all that is lost and refused there; its other
`expected_words` are traits, or occur in what the upstream or the client gets. Each row is tested
with the requests or replies of `mapping_cases.py`, and with every value of its traits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any, NamedTuple

import orjson
import pytest

from gateway.core.events import Fail
from gateway.core.formats import Format
from gateway.core.target import SamplingStyle, Target, ThinkingStyle, ToolEffort
from gateway.errors import UnsupportedField
from gateway.wire.codec import Rendering
from gateway.wire.registry import CODECS
from tests.conformance.mapping_cases import (
    OF_THE_UPSTREAM,
    REPLIES,
    ROWS,
    THINKING_PARTS,
    ClientRequest,
    chat,
)
from tests.support.paths import FIXTURES, ROOT
from tests.wire.golden_files import (
    METADATA,
    PROMPTS,
    TARGETS,
    client,
    error_for,
    prompts_of,
    with_usage,
)
from tests.wire.stream_cases import decode

PAGE = (ROOT / "docs" / "mapping.md").read_text()
OF_REPLIES = "Replies"
BILLING = "x-anthropic-billing-header"
TRAITS: dict[str, tuple[Any, ...]] = {
    "thinking": (*ThinkingStyle, None),
    "efforts": (("low", "high"), ()),
    "sampling": tuple(SamplingStyle),
    "tool_effort": tuple(ToolEffort),
    "max_output": (None, 16000),
    "web_search": (None, True, False),
} | {field.name: (True, False) for field in fields(Target) if field.type in (bool, "bool")}
"""The values that a trait is tried with."""


class Cell(NamedTuple):
    text: str
    to: Format

    def names(self, verdict: str) -> set[str]:
        """What stands after "dropped:" or "refused:"."""
        lists = re.findall(rf"{verdict}: ((?:`[^`]+`(?:, )?)+)", self.text)
        return {name for each in lists for name in re.findall("`([^`]+)`", each)}

    @property
    def expected_words(self) -> set[str]:
        marked = set(re.findall("`([^`]+)`", self.text))
        return marked - self.names("dropped") - self.names("refused") - self.traits

    @property
    def traits(self) -> set[str]:
        return set(re.findall("trait `([^`]+)`", self.text))


class Row(NamedTuple):
    section: str
    what: str
    cells: tuple[Cell, ...]


def _rows() -> Iterator[Row]:
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        for line in text.splitlines():
            what, *cells = (cell.strip() for cell in line.strip("|").split(" | "))
            if line.startswith("| ") and len(cells) == 3 and what != "What":
                texts = [cells[0] if cell == "the same" else cell for cell in cells]
                yield Row(title, what, tuple(map(Cell, texts, Format)))


TABLE = [*_rows()]
REQUEST_ROWS = [row for row in TABLE if row.section != OF_REPLIES]
REPLY_ROWS = [row for row in TABLE if row.section == OF_REPLIES]


class Outcome(NamedTuple):
    sent: list[Rendering]
    dropped: set[str]
    refused: set[str]


def _outcome(items: list[ClientRequest], to: Format, targets: list[Target]) -> Outcome:
    outcome = Outcome([], set(), set())
    for format, body in items:
        prompt = CODECS[format].parse_prompt(orjson.loads(orjson.dumps(body)))
        for target in targets:
            try:
                rendering = CODECS[to].render_prompt(prompt, target)
            except UnsupportedField as refused:
                outcome.refused.add(str(refused.param))
            else:
                outcome.sent.append(rendering)
                outcome.dropped.update(rendering.dropped)
    return outcome


def _foreign(what: str, to: Format) -> list[ClientRequest]:
    """What clients of other formats ask; their own where no others can."""
    if what == OF_THE_UPSTREAM:
        return [THINKING_PARTS[to]]
    return [each for each in ROWS[what] if each[0] is not to] or [*ROWS[what]]


def _targets(to: Format, traits: set[str]) -> list[Target]:
    targets = [TARGETS[to]]
    for trait in sorted(traits):
        targets += [replace(TARGETS[to], **{trait: value}) for value in TRAITS[trait]]
    return targets


def _name(row: Row) -> str:
    return row.what.replace("`", "")


def _fits(names: set[str], patterns: set[str]) -> bool:
    """Whether they are the same names; `<…>` in one stands for any word."""
    forms = [re.sub("<[^>]+>", r"[\\w.]+", pattern) for pattern in patterns]
    all_matched = all(any(re.fullmatch(form, name) for form in forms) for name in names)
    return all_matched and all(any(re.fullmatch(form, name) for name in names) for form in forms)


@pytest.mark.parametrize("row", REQUEST_ROWS, ids=_name)
def test_upstream_requests_match_the_page(row: Row) -> None:
    for cell in row.cells:
        request = _foreign(row.what, cell.to)
        outcome = _outcome(request, cell.to, _targets(cell.to, cell.traits))
        assert _fits(outcome.dropped, cell.names("dropped")), (cell, outcome.dropped)
        assert _fits(outcome.refused, cell.names("refused")), (cell, outcome.refused)
        assert outcome.sent or cell.text.startswith("refused"), cell
        raw = b"".join(orjson.dumps(sent.body) for sent in outcome.sent).decode()
        assert [word for word in cell.expected_words if word not in raw] == [], cell
        if "watched" in cell.text:
            assert any(sent.stop for sent in outcome.sent), cell
        if "code fence" in cell.text:
            assert all(sent.fenced for sent in outcome.sent), cell
        if BILLING in str(request):
            assert (BILLING in raw) is (cell.text == "kept"), cell


@pytest.mark.parametrize("row", REPLY_ROWS, ids=_name)
def test_client_replies_match_the_page(row: Row) -> None:
    for cell in row.cells:
        raw, dropped = b"", set[str]()
        for case in REPLIES[row.what]:
            result, lost = _encoded(case, cell.to, deprecated="functions" in row.what)
            raw += result
            dropped |= lost
        assert _fits(dropped, cell.names("dropped")), (cell, dropped)
        assert [word for word in cell.expected_words if word.encode() not in raw] == [], cell


def _encoded(case: str, to: Format, *, deprecated: bool) -> tuple[bytes, set[str]]:
    """A case as upstreams of other formats stream it, or of the client's own where no others can,
    and what the client hears and misses."""
    paths = sorted((FIXTURES / "streams" / case).glob("[!c]*.sse"))
    paths += sorted((FIXTURES / "streams" / case).glob("chat.sse"))
    received, lost = b"", set[str]()
    prompt = client(to)
    if deprecated and to is Format.CHAT:
        _, body = chat(functions=[{"name": "get_weather", "parameters": {}}])
        prompt = CODECS[to].parse_prompt(body)
    for path in [path for path in paths if path.stem != to] or paths:
        encoder = CODECS[to].encoder(prompt, METADATA)
        for event in with_usage(decode(CODECS[Format(path.stem)].decoder(), path.read_bytes())):
            if isinstance(event, Fail):
                received += encoder.encode_error(error_for(event))
            else:
                received += encoder.encode(event)
        lost |= encoder.dropped
    return received, lost


def test_rows_and_cases_match() -> None:
    assert [row.what for row in REQUEST_ROWS] == [*ROWS]
    assert [row.what for row in REPLY_ROWS] == [*REPLIES]


def test_traits_match_the_configuration() -> None:
    named = {trait for row in REQUEST_ROWS for cell in row.cells for trait in cell.traits}
    assert named <= {field.name for field in fields(Target)}
    untested = {"model", "origin", "encrypted_reasoning"}
    untested |= {"threads", "compaction"}  # resolved before anything is rendered
    untested |= {"refuses"}  # is left out of what was rendered
    assert {field.name for field in fields(Target)} - untested == named


@pytest.mark.parametrize("format", list(Format))
def test_same_format_losses_match_the_page(format: Format) -> None:
    own = [each for rows in ROWS.values() for each in rows if each[0] is format]
    outcome = _outcome(own, format, [TARGETS[format]])
    (result,) = re.findall(r"^If both have the same.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    result = result.replace("\n", " ")
    assert outcome.dropped <= Cell(result, format).names("dropped")
    assert outcome.refused <= {*Cell(result, format).names("refused"), "tool_choice"}


def test_names_in_the_code_are_on_the_page() -> None:
    listed = set(re.findall("`([^`\n]+)`", PAGE))
    missing = {name for name in _names_in_code() if name not in listed}
    assert missing == set()


def _names_in_code() -> Iterator[str]:
    """Every literal name of a loss, or of a field that is refused."""
    for path in sorted((ROOT / "gateway" / "wire").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="lose"), args=[ast.Constant(value=str(name))]
                ):
                    yield name
                case ast.Call(func=ast.Attribute(attr="lose_all")):
                    yield from (each.arg for each in node.keywords if each.arg is not None)
                case ast.Call(
                    func=ast.Attribute(attr="own"), args=[_, ast.Constant(value=str(name))]
                ):
                    yield name
                case ast.Call(
                    func=ast.Attribute(attr="add", value=heap), args=[ast.Constant(value=str(name))]
                ) if ast.unparse(heap).endswith(("dropped", "lost")):
                    yield name
                case ast.Call(
                    func=ast.Name(id="CannotConvert"), args=[ast.Constant(value=str(name)), _]
                ):
                    yield name
                case _:
                    pass


def test_losses_of_fixtures_are_on_the_page() -> None:
    listed = set(re.findall("`([^`\n]+)`", PAGE))
    for case in PROMPTS:
        for source, prompt in prompts_of(case).items():
            expected_words = set(re.findall(r'"([\w.]+)"', (case / f"{source}.json").read_text()))
            for to, target in TARGETS.items():
                try:
                    dropped = CODECS[to].render_prompt(prompt, target).dropped
                except UnsupportedField as refused:
                    assert refused.param in listed, (case.name, refused.message)
                    continue
                bare = {name.removeprefix("tools.").removeprefix("content.") for name in dropped}
                assert bare <= listed | expected_words, (case.name, source, to)
