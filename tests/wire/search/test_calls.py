"""Options of web searches: what is malformed is refused, whichever lane the request takes."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.prompt import WebSearch
from gateway.core.target import Target
from gateway.errors import InvalidRequest, UnsupportedField
from gateway.wire.registry import CODECS
from gateway.wire.search.calls import lower_version
from tests.support.gateway import request_body

TOOL = {"type": "web_search_20250305", "name": "web_search"}


def parse(client_format: Format, **fields: Any) -> Any:
    return CODECS[client_format].parse_prompt(request_body(client_format, **fields))


def messages(**options: Any) -> Any:
    return parse(Format.MESSAGES, tools=[TOOL | options])


def responses(**options: Any) -> Any:
    return parse(Format.RESPONSES, tools=[{"type": "web_search"} | options])


def chat(**options: Any) -> Any:
    return parse(Format.CHAT, web_search_options=options)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"allowed_domains": "a.org"}, "allowed_domains"),
        ({"allowed_domains": [1]}, "allowed_domains.0"),
        ({"allowed_domains": [""]}, "allowed_domains.0"),
        ({"allowed_domains": ["*.org"]}, "allowed_domains.0"),
        ({"allowed_domains": ["a.org", "a.org/*/b/*"]}, "allowed_domains.1"),
        ({"allowed_domains": ["x" * 3000]}, "allowed_domains.0"),
        ({"allowed_domains": ["a.org"] * 201}, "allowed_domains"),
        ({"blocked_domains": {"a.org": True}}, "blocked_domains"),
        ({"blocked_domains": ["a b"]}, "blocked_domains.0"),
        ({"allowed_domains": ["a.org"], "blocked_domains": ["b.org"]}, "blocked_domains"),
        ({"max_uses": 0}, "max_uses"),
        ({"max_uses": -1}, "max_uses"),
        ({"max_uses": "8"}, "max_uses"),
        ({"max_uses": True}, "max_uses"),
        ({"max_uses": 1.5}, "max_uses"),
        ({"user_location": "Oslo"}, "user_location"),
        ({"user_location": {"type": "exact"}}, "user_location.type"),
        ({"user_location": {"type": "approximate", "city": 5}}, "user_location.city"),
    ],
)
@pytest.mark.parametrize("version", ["20250305", "20260209", "20260318", "20991231"])
def test_malformed_options_of_messages(version: str, options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        messages(type=f"web_search_{version}", **options)
    assert refused.value.param == f"tools.0.{field}"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"filters": ["a.org"]}, "filters"),
        ({"filters": {"allowed_domains": "a.org"}}, "filters.allowed_domains"),
        ({"filters": {"allowed_domains": ["a b"]}}, "filters.allowed_domains.0"),
        ({"filters": {"blocked_domains": "a.org"}}, "filters.blocked_domains"),
        ({"search_context_size": "huge"}, "search_context_size"),
        ({"search_context_size": 5}, "search_context_size"),
        ({"user_location": ["Oslo"]}, "user_location"),
        ({"user_location": {"country": ["NO"]}}, "user_location.country"),
    ],
)
@pytest.mark.parametrize("kind", ["web_search", "web_search_2025_08_26", "web_search_preview"])
def test_malformed_options_of_responses(kind: str, options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        responses(type=kind, **options)
    assert refused.value.param == f"tools.0.{field}"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"user_location": "Oslo"}, "user_location"),
        ({"user_location": {"approximate": "Oslo"}}, "user_location.approximate"),
        (
            {"user_location": {"type": "approximate", "approximate": {"city": 1}}},
            "user_location.approximate.city",
        ),
        ({"search_context_size": "tiny"}, "search_context_size"),
    ],
)
def test_malformed_options_of_chat(options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(**options)
    assert refused.value.param == f"web_search_options.{field}"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"filters": {"allowed_domains": ["a.org"]}}, "filters"),
        ({"Allowed_domains": ["a.org"]}, "Allowed_domains"),
        ({"blockedDomains": ["a.org"]}, "blockedDomains"),
        ({"MAX_USES": 1}, "MAX_USES"),
        ({"name": "other"}, "name"),
        ({"allowed_domains": []}, "allowed_domains"),
        ({"allowed_domains": [], "blocked_domains": []}, "allowed_domains"),
    ],
)
def test_misplaced_restrictions_of_messages(options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        messages(**options)
    assert refused.value.param == f"tools.0.{field}"


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"allowed_domains": ["a.org"]}, "allowed_domains"),
        ({"allowed_domains": "a.org"}, "allowed_domains"),
        ({"allowed_domains": []}, "allowed_domains"),
        ({"blocked_domains": ["a.org"]}, "blocked_domains"),
        ({"max_uses": 1}, "max_uses"),
        ({"Filters": {"allowed_domains": ["a.org"]}}, "Filters"),
        ({"filters": {"Allowed_domains": ["a.org"]}}, "filters.Allowed_domains"),
        ({"filters": {"max_uses": 1}}, "filters.max_uses"),
        ({"filters": {"allowed_domains": []}}, "filters.allowed_domains"),
    ],
)
def test_misplaced_restrictions_of_responses(options: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        responses(**options)
    assert refused.value.param == f"tools.0.{field}"


@pytest.mark.parametrize("name", ["allowed_domains", "blocked_domains", "max_uses", "filters"])
def test_misplaced_restrictions_of_chat(name: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        chat(**{name: ["a.org"]})
    assert refused.value.param == f"web_search_options.{name}"
    tools = [{"type": "web_search", name: ["a.org"]}]
    with pytest.raises(InvalidRequest) as refused:
        parse(Format.CHAT, tools=tools)
    assert refused.value.param == f"tools.0.{name}"


def test_restrictions_that_are_null() -> None:
    assert messages(filters=None, allowed_domains=None).tools[0].search.allowed_domains == ()
    assert responses(max_uses=None, filters={"allowed_domains": None}).tools[0].search.is_live
    assert chat(allowed_domains=None).tools[0].search == WebSearch()


@pytest.mark.parametrize("limit", [0, -1, "1", 1.5, True, [], {}])
@pytest.mark.parametrize("tools", [[{"type": "web_search"}], []])
def test_malformed_limit_of_tool_calls(limit: Any, tools: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(Format.RESPONSES, tools=tools, max_tool_calls=limit)
    assert refused.value.param == "max_tool_calls"


@pytest.mark.parametrize("client_format", list(Format))
@pytest.mark.parametrize("upstream_format", list(Format))
def test_unknown_options_are_named(client_format: Format, upstream_format: Format) -> None:
    prompt = {Format.CHAT: chat, Format.MESSAGES: messages, Format.RESPONSES: responses}[
        client_format
    ](depth="full")
    target = Target(model="m", web_search=True)
    result = CODECS[upstream_format].render_prompt(prompt, target)
    is_native = client_format is upstream_format
    assert ("tools.depth" in result.dropped) is not is_native
    assert ("depth" in str(result.body)) is is_native


def test_unknown_filters_are_named() -> None:
    prompt = responses(filters={"allowed_domains": ["a.org"], "newest": True})
    result = CODECS[Format.MESSAGES].render_prompt(prompt, Target(model="m"))
    assert result.dropped == {"tools.filters.newest"}


def test_options_are_read() -> None:
    domains = ["a.org", "b.org/docs", "https://c.org"]
    location = {"type": "approximate", "city": "Oslo"}
    (tool,) = messages(max_uses=8, user_location=location, allowed_domains=domains).tools
    assert tool.search == WebSearch(
        allowed_domains=("a.org", "b.org/docs", "c.org"),
        max_uses=8,
        location={"city": "Oslo"},
        client_executable=True,
    )
    assert messages(allowed_domains=[], blocked_domains=["b.org"]).tools[0].search == WebSearch(
        blocked_domains=("b.org",), client_executable=True
    )


@pytest.mark.parametrize(
    ("known", "sent"),
    [
        (None, "web_search_20260318"),
        (True, "web_search_20260318"),
        (20250305, "web_search_20250305"),
        (20260209, "web_search_20260209"),
        (20260318, "web_search_20260318"),
    ],
)
@pytest.mark.parametrize("native", [True, False])
def test_a_version_that_the_upstream_lacks(known: Any, sent: str, native: bool) -> None:
    body = request_body(
        Format.MESSAGES,
        tools=[
            {"name": "f", "input_schema": {"type": "object"}},
            TOOL
            | {
                "type": "web_search_20260318",
                "max_uses": 2,
                "blocked_domains": ["b.org"],
                "response_inclusion": "excluded",
            },
        ],
    )
    codec, target = CODECS[Format.MESSAGES], Target(model="m", web_search=known)
    prompt = codec.parse_prompt(body)
    result = (
        codec.patch_prompt(body, prompt, target)
        if native
        else codec.render_prompt(prompt, target).body
    )
    function, search = result["tools"]
    assert function["name"] == "f"
    assert search["type"] == sent
    assert (search["max_uses"], search["blocked_domains"]) == (2, ["b.org"])
    assert ("response_inclusion" in search) is (sent == "web_search_20260318")
    assert body["tools"][1]["type"] == "web_search_20260318"


def test_an_older_version_is_not_raised() -> None:
    assert lower_version(TOOL, Target(model="m", web_search=20260209)) is TOOL


@pytest.mark.parametrize("native", [True, False])
def test_a_choice_of_no_tool_excludes_a_search_on_chat(native: bool) -> None:
    body = request_body(
        Format.CHAT,
        web_search_options={},
        tool_choice="none",
        tools=[{"type": "function", "function": {"name": "f"}}],
    )
    codec, target = CODECS[Format.CHAT], Target(model="m")
    prompt = codec.parse_prompt(body)
    result = (
        codec.patch_prompt(body, prompt, target)
        if native
        else codec.render_prompt(prompt, target).body
    )
    assert "web_search_options" not in result
    assert result["tool_choice"] == "none"


def test_a_choice_of_no_tool_reaches_every_upstream() -> None:
    body = request_body(Format.MESSAGES, tools=[TOOL], tool_choice={"type": "none"})
    prompt = CODECS[Format.MESSAGES].parse_prompt(body)
    choices = {
        format: CODECS[format].render_prompt(prompt, Target(model="m")).body.get("tool_choice")
        for format in Format
    }
    assert choices == {"chat": "none", "messages": {"type": "none"}, "responses": "none"}
    searching = Target(model="m", web_search=True)
    assert "web_search_options" not in CODECS[Format.CHAT].render_prompt(prompt, searching).body


def test_an_upstream_of_chat_that_searches() -> None:
    target = Target(model="m", web_search=True)
    location = {"type": "approximate", "city": "Oslo"}
    body = CODECS[Format.CHAT].render_prompt(messages(user_location=location), target).body
    assert body["web_search_options"] == {
        "user_location": {"type": "approximate", "approximate": {"city": "Oslo"}}
    }
    with pytest.raises(UnsupportedField) as refused:
        CODECS[Format.CHAT].render_prompt(messages(allowed_domains=["a.org"]), target)
    assert refused.value.param == "tools.allowed_domains"


def test_domains_have_no_scheme() -> None:
    lists = {"allowed_domains": ["https://a.example", "HTTP://b.example/docs", "c.example"]}
    domains = ("a.example", "b.example/docs", "c.example")
    for prompt in (messages(**lists), responses(filters=lists)):
        assert prompt.tools[0].search.allowed_domains == domains
