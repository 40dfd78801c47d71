"""Which headers and queries pass through the gateway."""

from __future__ import annotations

import pytest
from aiohttp.test_utils import make_mocked_request
from multidict import CIMultiDict

from gateway.config.schema import Server
from gateway.core.formats import Format
from gateway.errors import InvalidRequest
from gateway.server.http.headers import query_to_forward, request_headers_to_forward, version_header
from gateway.wire.registry import CODECS

SERVER_OPTIONS = Server()
VERSION, BETA = SERVER_OPTIONS.version_headers[0], SERVER_OPTIONS.beta_headers[0]
BOTH = {VERSION: "2024-01-01", "x-codex-turn-state": "s", "cookie": "c", "x-api-key": "k"}


def test_every_format_has_its_own_headers() -> None:
    request = make_mocked_request("POST", "/", headers=BOTH)
    assert request_headers_to_forward(request, CODECS[Format.CHAT], SERVER_OPTIONS) == {}
    assert request_headers_to_forward(request, CODECS[Format.MESSAGES], SERVER_OPTIONS) == {
        VERSION: "2024-01-01"
    }
    assert request_headers_to_forward(request, CODECS[Format.RESPONSES], SERVER_OPTIONS) == {
        "x-codex-turn-state": "s"
    }
    bare = make_mocked_request("POST", "/")
    assert request_headers_to_forward(bare, CODECS[Format.RESPONSES], SERVER_OPTIONS) == {}


@pytest.mark.parametrize(
    ("format", "name"),
    [
        (Format.CHAT, "OpenAI-Beta"),
        (Format.CHAT, "X-Stainless-Lang"),
        (Format.MESSAGES, "anthropic-made-up-in-2027"),
        (Format.MESSAGES, "x-claude-code-session-id"),
        (Format.RESPONSES, "openai-made-up-in-2027"),
        (Format.RESPONSES, "x-codex-window-id"),
    ],
)
def test_headers_of_vendors_are_an_open_list(format: Format, name: str) -> None:
    headers = [(name, "one"), (name, "two"), (VERSION, "2024-01-01")]
    request = make_mocked_request("POST", "/", headers=CIMultiDict(headers))
    forwarded = request_headers_to_forward(request, CODECS[format], SERVER_OPTIONS)
    assert forwarded.pop(VERSION, None) == ("2024-01-01" if format is Format.MESSAGES else None)
    assert forwarded == {name.lower(): "one, two"}


@pytest.mark.parametrize(
    "name",
    [
        *("openai-organization", "openai-project", "openai-api-key", "openai-cookie"),
        *("anthropic-workspace-id", "anthropic-auth-token", "x-stainless-secret"),
        *("authorization", "x-api-key", "cookie", "te", "connection", "host", "accept-encoding"),
    ],
)
@pytest.mark.parametrize("format", Format)
def test_credentials_and_payers_are_the_operators(format: Format, name: str) -> None:
    request = make_mocked_request("POST", "/", headers={name: "x", VERSION: "2024-01-01"})
    forwarded = request_headers_to_forward(request, CODECS[format], SERVER_OPTIONS)
    assert name not in forwarded


@pytest.mark.parametrize("value", ["Bearer sk-x", "bearer abc", "Basic dTpw", "x sk-1234"])
def test_credentials_have_any_name(value: str) -> None:
    request = make_mocked_request("POST", "/", headers={"openai-login": value})
    assert request_headers_to_forward(request, CODECS[Format.CHAT], SERVER_OPTIONS) == {}


def test_headers_of_the_connection_stay() -> None:
    headers = {"openai-hop": "x", "openai-beta": "y", "connection": "keep-alive, OpenAI-Hop"}
    request = make_mocked_request("POST", "/", headers=headers)
    forwarded = request_headers_to_forward(request, CODECS[Format.CHAT], SERVER_OPTIONS)
    assert forwarded == {"openai-beta": "y"}


def test_messages_needs_a_version_unless_configured() -> None:
    request = make_mocked_request("POST", "/")
    with pytest.raises(InvalidRequest) as refused:
        request_headers_to_forward(request, CODECS[Format.MESSAGES], SERVER_OPTIONS)
    assert refused.value.param == VERSION
    lenient = SERVER_OPTIONS.model_copy(update={"require_version_header": False})
    assert request_headers_to_forward(request, CODECS[Format.MESSAGES], lenient) == {}


def test_any_of_the_names_of_a_header_will_do() -> None:
    headers = {
        SERVER_OPTIONS.version_headers[-1]: "2024-01-01",
        SERVER_OPTIONS.beta_headers[-1]: "one",
    }
    request = make_mocked_request("POST", "/", headers=headers)
    assert request_headers_to_forward(request, CODECS[Format.MESSAGES], SERVER_OPTIONS) == {
        VERSION: "2024-01-01",
        BETA: "one",
    }


def test_a_translated_prompt_has_the_codecs_version() -> None:
    assert version_header(CODECS[Format.MESSAGES], SERVER_OPTIONS) == {VERSION: "2023-06-01"}
    assert version_header(CODECS[Format.CHAT], SERVER_OPTIONS) == {}


@pytest.mark.parametrize(
    ("path", "format", "query"),
    [
        ("/?beta=true", Format.MESSAGES, "beta=true"),
        ("/?beta=true&key=secret", Format.MESSAGES, "beta=true"),
        ("/?beta=1", Format.MESSAGES, ""),
        ("/", Format.MESSAGES, ""),
        ("/?beta=true", Format.CHAT, ""),
    ],
)
def test_only_one_query_is_forwarded(path: str, format: Format, query: str) -> None:
    assert query_to_forward(make_mocked_request("POST", path), CODECS[format]) == query
