"""Every request of the fixtures, parsed and rendered in all formats.

Every folder of fixtures is a test. The files of a case are written by
`python -m tests.wire.golden_files` and reviewed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from gateway.core.formats import Format
from gateway.wire.registry import CODECS
from tests.conformance.request_types import violations
from tests.conformance.rules import chat, messages, responses
from tests.conformance.rules.ids import IssuedIds
from tests.support.cases import in_one_test
from tests.support.fixture_json import expected_file, write_prompt
from tests.wire.golden_files import PROMPTS, files_of_prompt, prompts_of, rendered, targets

RULES: dict[Format, Callable[[Any, IssuedIds], Iterator[str]]] = {
    Format.CHAT: chat.refusals,
    Format.MESSAGES: messages.refusals,
    Format.RESPONSES: responses.refusals,
}
SIGNED = {"c2ln": "Hm.", "cmVk": "", "ZW5j": "Hm.", "b25l": "One.", "dHdv": "Two."}
"""The signatures in the fixtures that are of the upstream `here`."""
DOUBTFUL = {
    ("audio", Format.RESPONSES): "input",  # taken by the endpoint, unknown to the stock types
    ("refusal", Format.CHAT): "neither content nor tool_calls",  # as vendors themselves reply
}
"""Requests that the rules refuse and vendors accept."""


def _name(value: object) -> str | None:
    return value.name if isinstance(value, Path) else None


each_case = in_one_test("case", PROMPTS, ids=_name)


def test_there_are_enough_cases() -> None:
    in_every_format = [case for case in PROMPTS if len(prompts_of(case)) == len(Format)]
    assert len(in_every_format) >= 60


@each_case
def test_prompts_are_equal_in_every_format(case: Path) -> None:
    for format, prompt in prompts_of(case).items():
        expected = expected_file(case / f"{format}.json", format, "prompt")
        assert write_prompt(prompt) == expected.read_bytes(), expected


@each_case
def test_upstream_bodies_match_the_golden_files(case: Path) -> None:
    for path, content in files_of_prompt(case):
        written = path.read_bytes() if path.exists() else None
        assert content == written, f"{path} is another one now: python -m tests.wire.golden_files"


@each_case
def test_rendering_is_deterministic(case: Path) -> None:
    """Rendering does not change the prompt, so that prompt caches see equal prompts."""
    for source, prompt in prompts_of(case).items():
        before = write_prompt(prompt)
        for format, target in targets(case).items():
            first = orjson.dumps(rendered(prompt, format, target))
            again = CODECS[source].parse_prompt(
                orjson.loads((case / f"{source}.json").read_bytes())
            )
            assert orjson.dumps(rendered(prompt, format, target)) == first
            assert orjson.dumps(rendered(again, format, target)) == first
        assert write_prompt(prompt) == before


@each_case
def test_upstreams_accept_the_bodies(case: Path) -> None:
    """The client libraries accept it, and the vendors' rules hold."""
    for source, prompt in prompts_of(case).items():
        for format, target in targets(case).items():
            output = rendered(prompt, format, target)
            if "body" in output and source is not format:
                refused = list(_refusals(format, output["body"]))
                expected = DOUBTFUL.get((case.name, format))
                assert [text for text in refused if expected is None or expected not in text] == []


def _refusals(format: Format, body: dict[str, Any]) -> Iterator[str]:
    raw = orjson.dumps(body)
    yield from violations(format, raw, streamed=bool(body.get("stream")), old=True, extended=True)
    issued = IssuedIds(signed_thinking=SIGNED, items={"rs_1": "ZW5j", "rs_9": "ZW5j"})
    yield from RULES[format](body, issued)
