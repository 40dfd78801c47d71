"""What is lost is named, and nothing else is."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, UnknownPart
from gateway.core.prompt import Prompt
from gateway.errors import UnsupportedField
from gateway.wire.dropped import Dropped


@pytest.fixture
def losses() -> Dropped:
    return Dropped(Format.CHAT)


def test_significant_fields_are_dropped_by_name(losses: Dropped) -> None:
    losses.drop("audio")
    losses.drop_set(top_k=5, seed=0, logprobs=False, user="", verbosity=None, metadata={})
    assert losses.names == {"audio", "top_k", "seed", "logprobs", "user"}


def test_native_data_are_kept(losses: Dropped) -> None:
    assert losses.native_value(ProviderData(Format.CHAT, 0), "x") == 0
    fields = {"a": None, "b": 1}
    assert losses.native_fields(ProviderData(Format.CHAT, fields)) is fields
    assert losses.native_value(None, "x") is None
    assert losses.native_fields(None) == {}
    assert losses.names == set()


def test_data_of_other_formats_are_dropped_by_name(losses: Dropped) -> None:
    assert losses.native_value(ProviderData(Format.MESSAGES, {"x": 1}), "citations") is None
    fields = {"container": "c", "unset": None, "edits": [], "caller": {"type": "direct"}}
    assert losses.native_fields(ProviderData(Format.MESSAGES, fields), "tools.") == {}
    assert losses.names == {"citations", "tools.container", "tools.caller"}


@pytest.mark.parametrize("format", [Format.CHAT, Format.MESSAGES])
def test_data_without_fields(losses: Dropped, format: Format) -> None:
    assert losses.native_fields(ProviderData(format, "text")) == {}
    assert losses.names == set()


def test_remaining_fields_of_parts(losses: Dropped) -> None:
    own = {"id": "x", "phase": "final_answer"}
    assert losses.remaining_fields(ProviderData(Format.CHAT, own)) is own
    assert losses.remaining_fields(None) == {}
    assert losses.names == set()
    told = {"id": "x", "status": "completed", "caller": {"type": "direct"}, "phase": "commentary"}
    assert losses.remaining_fields(ProviderData(Format.RESPONSES, told)) == {}
    whole = {"type": "local_shell_call", "action": {"command": ["ls"]}}
    assert losses.remaining_fields(ProviderData(Format.RESPONSES, whole)) == {}
    assert losses.names == {"content.phase"}


def test_unknown_parts_are_kept_or_dropped_by_kind(losses: Dropped) -> None:
    data = {"type": "search_result"}
    assert losses.native_part(UnknownPart("search_result", ProviderData(Format.CHAT, data))) is data
    assert losses.names == set()
    assert (
        losses.native_part(UnknownPart("search_result", ProviderData(Format.MESSAGES, data)))
        is None
    )
    assert losses.names == {"search_result"}


def test_references_to_stored_content_are_unsupported(losses: Dropped) -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    assert losses.native_part(UnknownPart("item_reference", ProviderData(Format.CHAT, reference)))
    with pytest.raises(UnsupportedField) as refused:
        losses.native_part(UnknownPart("item_reference", ProviderData(Format.RESPONSES, reference)))
    assert refused.value.param == "item_reference"


def _asked(format: Format, **extra: object) -> Prompt:
    return Prompt(format=format, model="m", turns=(), user="ann", extra=ProviderData(format, extra))


def test_request_fields(losses: Dropped) -> None:
    fields = losses.request_fields(_asked(Format.CHAT, logit_bias={"1": 2}))
    assert fields == {"logit_bias": {"1": 2}}
    assert losses.request_fields(Prompt(format=Format.RESPONSES, model="m", turns=())) == {}
    assert losses.names == set()
    said = {"max_tool_calls": 0, "truncation": "auto", "background": False, "moderation": "m"}
    assert losses.request_fields(_asked(Format.RESPONSES, **said), ["moderation"]) == {}
    assert losses.names == {"max_tool_calls", "truncation"}


def test_expressed_fields_are_not_dropped(losses: Dropped) -> None:
    said = {"stream_options": {"include_obfuscation": True}, "modalities": ["text"]}
    losses.request_fields(_asked(Format.RESPONSES, **said, safety_identifier="ann"))
    assert losses.names == set()
    losses.request_fields(_asked(Format.RESPONSES, safety_identifier="another"))
    assert losses.names == {"safety_identifier"}
