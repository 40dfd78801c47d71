"""Content that a format cannot express is named, and nothing else."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.core.parts import ProviderData, UnknownPart
from gateway.core.prompt import Prompt
from gateway.errors import UnsupportedField
from gateway.wire.prompt.dropped import Dropped


@pytest.fixture
def dropped() -> Dropped:
    return Dropped(Format.CHAT)


def test_significant_fields_are_dropped_by_name(dropped: Dropped) -> None:
    dropped.drop("audio")
    dropped.drop_set(top_k=5, seed=0, logprobs=False, user="", verbosity=None, metadata={})
    assert dropped.names == {"audio", "top_k", "seed", "logprobs", "user"}


def test_native_data_are_kept(dropped: Dropped) -> None:
    assert dropped.native_value(ProviderData(Format.CHAT, 0), "x") == 0
    fields = {"a": None, "b": 1}
    assert dropped.native_fields(ProviderData(Format.CHAT, fields)) is fields
    assert dropped.native_value(None, "x") is None
    assert dropped.native_fields(None) == {}
    assert dropped.names == set()


def test_data_of_other_formats_are_dropped_by_name(dropped: Dropped) -> None:
    assert dropped.native_value(ProviderData(Format.MESSAGES, {"x": 1}), "citations") is None
    fields = {"container": "c", "unset": None, "edits": [], "caller": {"type": "direct"}}
    assert dropped.native_fields(ProviderData(Format.MESSAGES, fields), "tools.") == {}
    assert dropped.names == {"citations", "tools.container", "tools.caller"}


@pytest.mark.parametrize("format", [Format.CHAT, Format.MESSAGES])
def test_data_without_fields(dropped: Dropped, format: Format) -> None:
    assert dropped.native_fields(ProviderData(format, "text")) == {}
    assert dropped.names == set()


def test_remaining_fields_of_parts(dropped: Dropped) -> None:
    native = {"id": "x", "phase": "final_answer"}
    assert dropped.remaining_fields(ProviderData(Format.CHAT, native)) is native
    assert dropped.remaining_fields(None) == {}
    assert dropped.names == set()
    fields = {"id": "x", "status": "completed", "caller": {"type": "direct"}, "phase": "commentary"}
    assert dropped.remaining_fields(ProviderData(Format.RESPONSES, fields)) == {}
    complete = {"type": "local_shell_call", "action": {"command": ["ls"]}}
    assert dropped.remaining_fields(ProviderData(Format.RESPONSES, complete)) == {}
    assert dropped.names == {"content.phase"}


def test_unknown_parts_are_kept_or_dropped_by_kind(dropped: Dropped) -> None:
    data = {"type": "search_result"}
    part = UnknownPart("search_result", ProviderData(Format.CHAT, data))
    assert dropped.native_part(part) is data
    assert dropped.names == set()
    assert (
        dropped.native_part(UnknownPart("search_result", ProviderData(Format.MESSAGES, data)))
        is None
    )
    assert dropped.names == {"search_result"}


@pytest.mark.parametrize("kind", ["compaction", "container_upload", "image", "document", "file"])
def test_unreadable_content_is_unsupported(dropped: Dropped, kind: str) -> None:
    with pytest.raises(UnsupportedField) as refused:
        dropped.native_part(UnknownPart(kind, ProviderData(Format.RESPONSES, {"type": kind})))
    assert refused.value.param == kind
    assert dropped.native_part(UnknownPart(kind, ProviderData(Format.CHAT, {"type": kind})))


def test_references_to_stored_content_are_unsupported(dropped: Dropped) -> None:
    reference = {"type": "item_reference", "id": "msg_1"}
    assert dropped.native_part(UnknownPart("item_reference", ProviderData(Format.CHAT, reference)))
    with pytest.raises(UnsupportedField) as refused:
        part = UnknownPart("item_reference", ProviderData(Format.RESPONSES, reference))
        dropped.native_part(part)
    assert refused.value.param == "item_reference"


def _prompt(format: Format, **extra: object) -> Prompt:
    return Prompt(format=format, model="m", turns=(), user="ann", extra=ProviderData(format, extra))


def test_request_fields(dropped: Dropped) -> None:
    fields = dropped.request_fields(_prompt(Format.CHAT, logit_bias={"1": 2}))
    assert fields == {"logit_bias": {"1": 2}}
    assert dropped.request_fields(Prompt(format=Format.RESPONSES, model="m", turns=())) == {}
    assert dropped.names == set()
    mapping = {"max_tool_calls": 0, "truncation": "auto", "background": False, "moderation": "m"}
    assert dropped.request_fields(_prompt(Format.RESPONSES, **mapping), ["moderation"]) == {}
    assert dropped.names == {"max_tool_calls", "truncation"}


def test_expressed_fields_are_not_dropped(dropped: Dropped) -> None:
    fields = {"stream_options": {"include_obfuscation": True}, "modalities": ["text"]}
    dropped.request_fields(_prompt(Format.RESPONSES, **fields, safety_identifier="ann"))
    dropped.request_fields(_prompt(Format.RESPONSES, truncation="disabled"))
    dropped.request_fields(_prompt(Format.MESSAGES, speed="standard"))
    dropped.request_fields(_prompt(Format.RESPONSES, prompt_cache_retention="in_memory"))
    assert dropped.names == set()
    dropped.request_fields(_prompt(Format.RESPONSES, safety_identifier="another"))
    assert dropped.names == {"safety_identifier"}
