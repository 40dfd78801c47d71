"""Signed requests to platforms are those of the platforms' official clients, byte by byte."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anthropic
import pytest
from botocore.session import Session

from gateway.core.formats import Format
from tests.credentials.test_sigv4 import KEYS, recomputed
from tests.support.gateway import ALPHA, run_gateway
from tests.support.stock_clients import open_anthropic
from tests.support.upstream import ReceivedRequest, ScriptedUpstream, fixture_reply, fixture_stream

MODEL = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
VERSION = {"anthropic_version": "bedrock-2023-05-31"}
INVOKE = {"path": "/model/{model}/invoke", "params": {"model": None, **VERSION}}
"""The classic address, whose streams have another form; the version is in the body."""
CASES: dict[str, tuple[type[Any], str, dict[str, Any]]] = {
    "bedrock": (anthropic.AsyncAnthropicBedrock, "", INVOKE),
    "bedrock-mantle": (anthropic.AsyncAnthropicBedrockMantle, "/anthropic", {}),
    "aws-external-anthropic": (
        anthropic.AsyncAnthropicAWS,
        "",
        {"headers": {"anthropic-workspace-id": "ours"}},
    ),
}
"""By service: its official client, the path of its address, and what the channel states."""
_OF_CLIENTS = ("user-agent", "accept", "accept-encoding", "connection", "content-length")
_OF_SIGNATURES = ("authorization", "x-amz-date")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the environment; the clients need boto3 only for them."""

    def open_session(region_name: str, **_: Any) -> Any:
        opened = Session()
        opened.set_credentials(*KEYS)
        return SimpleNamespace(region_name=region_name, get_credentials=opened.get_credentials)

    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(Session=open_session))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", KEYS.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEYS.secret_key)
    monkeypatch.setenv("AWS_SESSION_TOKEN", str(KEYS.session_token))


def headers_of(request: ReceivedRequest, *without: str) -> dict[str, str]:
    named = {name.lower(): value for name, value in request.headers.items()}
    left_out = (*_OF_CLIENTS, *_OF_SIGNATURES, *without)
    return {
        name: value
        for name, value in named.items()
        if name not in left_out and not name.startswith("x-stainless-")
    }


@pytest.mark.parametrize("service", CASES)
async def test_signed_requests_are_those_of_the_official_client(
    upstream: ScriptedUpstream, tmp_path: Path, service: str
) -> None:
    kind, path, stated = CASES[service]
    base = upstream.address + path
    source = {"aws": {"service": service, "region": "eu-central-1"}}
    line = {"name": "aws", "format": "messages", "base_url": base, "models": {ALPHA: MODEL}}
    line |= {"accounts": [{"name": "a", "key": source}], **stated}
    options: dict[str, Any] = {"workspace_id": "ours"} if "headers" in stated else {}
    official = kind(
        **options,
        aws_access_key=KEYS.access_key,
        aws_secret_key=KEYS.secret_key,
        aws_session_token=KEYS.session_token,
        aws_region="eu-central-1",
        base_url=base,
        max_retries=0,
        http_client=anthropic.DefaultAsyncHttpxClient(verify=False),
    )
    turns: Any = [{"role": "user", "content": "Hell\u00f6"}]
    async with (
        run_gateway(tmp_path, [line]) as gateway,
        open_anthropic(gateway) as client,
        official,
    ):
        for stream in (False,) if stated is INVOKE else (False, True):
            upstream.respond_with((fixture_stream if stream else fixture_reply)(Format.MESSAGES))
            sent = []
            for each, model in ((official, MODEL), (client, ALPHA)):
                reply = await each.messages.create(
                    model=model,
                    max_tokens=9,
                    messages=turns,
                    **({"stream": True} if stream else {}),
                )
                if stream:
                    async for _ in reply:
                        pass
                sent.append(upstream.last_request)
            expected, actual = sent
            assert actual is not expected
            assert actual.target == expected.target
            if stated is INVOKE:
                assert actual.json == expected.json | VERSION
                assert headers_of(actual, "anthropic-version") == headers_of(expected)
            else:
                assert actual.body == expected.body
                assert headers_of(actual) == headers_of(expected)
            scopes = []
            for request in sent:
                url = f"{upstream.address}{request.target}"
                own, again, match = recomputed("POST", url, request.headers, request.body)
                assert own == again
                scopes.append((match["key"], match["region"], match["service"]))
            assert scopes == [(KEYS.access_key, "eu-central-1", service)] * 2
