"""Each documented field and part of a request arrives at the upstream, is named as dropped, or is
refused: alone, and in requests of several.

A request with a field and one without it may be the same for the upstream only if something is
named, or if `WITHOUT_EFFECT` says why. Whole types of stock libraries: `test_type_tree.py`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pytest

from gateway.core.formats import Format
from gateway.errors import GatewayError
from gateway.wire.registry import CODECS
from tests.support.formats.fields import FIELDS, Field, request
from tests.wire.golden_files import TARGETS

PAIRS: Final = [(client, to) for client in Format for to in Format]
PROMPTS: Final = 60
"""Of several fields each, for each pair."""
WITHOUT_EFFECT: Final = {
    r"(chat|responses) to messages: prompt_cache_key": "caching needs no key there",
    r"chat to messages: schema.strict": "every schema is strict there",
    r"responses to chat: web_search\.": "the whole search is dropped by its name",
    r": output_text.logprobs": "of a text that was generated already",
}


class Outcome(NamedTuple):
    """`sent` is None where the request is refused."""

    sent: tuple[Any, ...] | None
    dropped: frozenset[str]


def outcome(client: Format, to: Format, fields: Sequence[tuple[str, Any]]) -> Outcome:
    try:
        prompt = CODECS[client].parse_prompt(request(client, *fields))
        rendering = CODECS[to].render_prompt(prompt, TARGETS[to])
    except GatewayError:
        return Outcome(None, frozenset())
    rest = rendering.stop, rendering.json_tool, rendering.fenced
    return Outcome((rendering.body, rest), rendering.dropped)


def before(field: Field) -> list[tuple[str, Any]]:
    return [] if field.before is None else [(field.where, field.before)]


@pytest.mark.parametrize(("client", "to"), PAIRS)
def test_each_field_arrives_or_is_named_or_refused(client: Format, to: Format) -> None:
    lost = [name for name, field in FIELDS[client].items() if _is_lost(client, to, field)]
    unexplained = [
        name
        for name in lost
        if not any(re.search(each, f"{client} to {to}: {name}") for each in WITHOUT_EFFECT)
    ]
    assert unexplained == []


def _is_lost(client: Format, to: Format, field: Field) -> bool:
    with_it = outcome(client, to, [(field.where, field.after)])
    without = outcome(client, to, before(field))
    return with_it.sent is not None and (
        with_it.sent == without.sent and not with_it.dropped - without.dropped
    )


@pytest.mark.parametrize(("client", "to"), PAIRS)
def test_what_is_named_alone_is_named_among_others(client: Format, to: Format) -> None:
    choose = random.Random(f"{client} to {to}")
    fields = FIELDS[client]
    for _ in range(PROMPTS):
        name, *others = choose.sample(sorted(fields), 4)
        field = fields[name]
        alone = outcome(client, to, [(field.where, field.after)])
        named = alone.dropped - outcome(client, to, before(field)).dropped
        context = [(fields[each].where, fields[each].after) for each in others]
        together = outcome(client, to, [(field.where, field.after), *context])
        if together.sent is not None and alone.sent is not None:
            assert named <= together.dropped, (name, others)
