"""What is lost is named, and nothing else is."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.core.parts import Opaque, OpaquePart
from gateway.core.prompt import Prompt
from gateway.errors import CannotConvert
from gateway.wire.crossing import Losses


@pytest.fixture
def losses() -> Losses:
    return Losses(Format.CHAT)


def test_fields_that_said_something(losses: Losses) -> None:
    losses.lose("audio")
    losses.lose_all(top_k=5, seed=0, logprobs=False, user="", verbosity=None, metadata={})
    assert losses.names == {"audio", "top_k", "seed", "logprobs", "user"}


def test_what_is_at_home_is_kept(losses: Losses) -> None:
    assert losses.own(Opaque(Format.CHAT, 0), "x") == 0
    fields = {"a": None, "b": 1}
    assert losses.own_fields(Opaque(Format.CHAT, fields)) is fields
    assert losses.own(None, "x") is None
    assert losses.own_fields(None) == {}
    assert losses.names == set()


def test_what_is_foreign_is_lost_by_its_names(losses: Losses) -> None:
    assert losses.own(Opaque(Format.MESSAGES, {"x": 1}), "citations") is None
    fields = {"container": "c", "unset": None, "edits": [], "caller": {"type": "direct"}}
    assert losses.own_fields(Opaque(Format.MESSAGES, fields), "tools.") == {}
    assert losses.names == {"citations", "tools.container", "tools.caller"}


@pytest.mark.parametrize("format", [Format.CHAT, Format.MESSAGES])
def test_a_pocket_that_holds_no_fields_is_none(losses: Losses, format: Format) -> None:
    assert losses.own_fields(Opaque(format, "text")) == {}
    assert losses.names == set()


def test_what_a_part_says_beyond_the_hubs_words(losses: Losses) -> None:
    own = {"id": "x", "phase": "final_answer"}
    assert losses.rest(Opaque(Format.CHAT, own)) is own
    assert losses.rest(None) == {}
    assert losses.names == set()
    told = {"id": "x", "status": "completed", "caller": {"type": "direct"}, "phase": "commentary"}
    assert losses.rest(Opaque(Format.RESPONSES, told)) == {}
    whole = {"type": "local_shell_call", "action": {"command": ["ls"]}}
    assert losses.rest(Opaque(Format.RESPONSES, whole)) == {}
    assert losses.names == {"content.phase"}


def test_parts_without_a_word_go_home_or_are_lost_by_their_kind(losses: Losses) -> None:
    data = {"type": "search_result"}
    assert losses.own_part(OpaquePart("search_result", Opaque(Format.CHAT, data))) is data
    assert losses.names == set()
    assert losses.own_part(OpaquePart("search_result", Opaque(Format.MESSAGES, data))) is None
    assert losses.names == {"search_result"}


def test_what_only_refers_to_words_is_no_part_to_leave_out(losses: Losses) -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    assert losses.own_part(OpaquePart("item_reference", Opaque(Format.CHAT, reference)))
    with pytest.raises(CannotConvert) as refused:
        losses.own_part(OpaquePart("item_reference", Opaque(Format.RESPONSES, reference)))
    assert refused.value.param == "item_reference"


def _asked(format: Format, **extra: object) -> Prompt:
    return Prompt(format=format, model="m", turns=(), user="ann", extra=Opaque(format, extra))


def test_fields_of_a_request(losses: Losses) -> None:
    fields = losses.request_fields(_asked(Format.CHAT, logit_bias={"1": 2}))
    assert fields == {"logit_bias": {"1": 2}}
    assert losses.request_fields(Prompt(format=Format.RESPONSES, model="m", turns=())) == {}
    assert losses.names == set()
    said = {"max_tool_calls": 0, "truncation": "auto", "background": False, "moderation": "m"}
    assert losses.request_fields(_asked(Format.RESPONSES, **said), ["moderation"]) == {}
    assert losses.names == {"max_tool_calls", "truncation"}


def test_fields_that_were_heeded_are_no_loss(losses: Losses) -> None:
    said = {"stream_options": {"include_obfuscation": True}, "modalities": ["text"]}
    losses.request_fields(_asked(Format.RESPONSES, **said, safety_identifier="ann"))
    assert losses.names == set()
    losses.request_fields(_asked(Format.RESPONSES, safety_identifier="another"))
    assert losses.names == {"safety_identifier"}
