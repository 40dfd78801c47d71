"""Signatures, recomputed with botocore and compared with those of the official client."""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Mapping
from email.utils import formatdate
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic import AnthropicBedrockMantle
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.session import Session
from yarl import URL

from gateway.config.key_source import AwsSource
from gateway.core.buffers import Buffers
from gateway.credentials.sigv4 import MAX_SKEW, PIECE, Signer
from gateway.credentials.sources import AwsKeys
from tests.support.upstream import fixture_reply, scripted_upstream

NOW = 1_795_560_000.0
KEYS = AwsKeys("AKIAEXAMPLE", "secret/of+the=key", "session//token==")

_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=(?P<key>\w+)/(?P<day>\d{8})/(?P<region>[\w-]+)/"
    r"(?P<service>[\w-]+)/aws4_request, SignedHeaders=(?P<names>[\w;-]+), "
    r"Signature=(?P<signature>[0-9a-f]{64})"
)


def recomputed(
    method: str, url: str, headers: Mapping[str, str], body: bytes, keys: AwsKeys = KEYS
) -> tuple[str, str, re.Match[str]]:
    """The signature of a request that was sent, that of botocore for it, and what was signed."""
    match = _AUTHORIZATION.fullmatch(headers["authorization"])
    assert match is not None
    signed = {name: headers[name] for name in match["names"].split(";")}
    request = AWSRequest(method=method, url=url, headers=signed, data=body)
    request.context["timestamp"] = headers["x-amz-date"]
    signer = SigV4Auth(Credentials(*keys), match["service"], match["region"])
    text = signer.string_to_sign(request, signer.canonical_request(request))
    return match["signature"], signer.signature(text, request), match


@pytest.mark.parametrize("session_token", ["session//token==", None])
@pytest.mark.parametrize(
    "url",
    [
        "https://bedrock-runtime.eu-central-1.amazonaws.com/anthropic/v1/messages",
        "https://bedrock-mantle.us-east-1.api.aws/openai/v1/chat/completions?b=2&a=1&a=%20x&c",
        "https://localhost:8443/model/anthropic.claude-4:0/invoke",
        "https://host.test/a%20b/%C3%A9%3A~x/",
    ],
)
@pytest.mark.parametrize("body", [b"", b'{"n": 1}', b"x" * (PIECE + 1)], ids=len)
async def test_the_signature_is_that_of_botocore(
    url: str, body: bytes, session_token: str | None
) -> None:
    keys = KEYS._replace(session_token=session_token)
    signer = Signer("bedrock", "eu-central-1", lambda: NOW)
    headers = {
        **{"content-type": "application/json", "user-agent": "any", "accept": "*/*"},
        **{"anthropic-version": "2023-06-01", "x-amz-more": " two   spaces ", "x-other": "1"},
    }
    target = URL(url, encoded=True)
    hashed = await signer.hash_body(body)
    assert await signer.hash_body(Buffers([body[:3], memoryview(body)[3:]])) == hashed
    added = signer.sign(keys, "POST", target, headers, hashed)
    assert added.get("x-amz-security-token") == session_token
    sent = headers | added | {"host": target.host_port_subcomponent or ""}
    own, expected, match = recomputed("POST", url, sent, body, keys)
    assert own == expected
    assert {"host", "content-type", "x-amz-date", "x-amz-more"} < {*match["names"].split(";")}
    assert not {"user-agent", "accept", "x-other"} & {*match["names"].split(";")}
    assert keys.secret_key not in str(added)


async def test_the_official_client_signs_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client needs boto3 only for the keys, which botocore has as well."""

    def open_session(region_name: str, **_: Any) -> Any:
        opened = Session()
        opened.set_credentials(*KEYS)
        return SimpleNamespace(region_name=region_name, get_credentials=opened.get_credentials)

    monkeypatch.setitem(sys.modules, "boto3", SimpleNamespace(Session=open_session))
    async with scripted_upstream(fixture_reply("messages")) as upstream:
        client = AnthropicBedrockMantle(
            aws_access_key=KEYS.access_key,
            aws_secret_key=KEYS.secret_key,
            aws_session_token=KEYS.session_token,
            aws_region="us-east-1",
            base_url=f"{upstream.address}/anthropic",
        )
        turns: Any = [{"role": "user", "content": "Hello"}]
        with client:
            await asyncio.to_thread(client.messages.create, model="m", max_tokens=9, messages=turns)
        request = upstream.last_request
    url = f"{upstream.address}{request.target}"
    own, expected, match = recomputed("POST", url, request.headers, request.body)
    assert own == expected
    scope = AwsSource().scope("https://bedrock-mantle.us-east-1.api.aws/anthropic")
    assert scope == (match["service"], match["region"])
    signer = Signer(match["service"], match["region"], lambda: NOW)
    moment = request.headers["x-amz-date"]
    headers = {name.lower(): value for name, value in request.headers.items()}
    for name in ("authorization", "x-amz-date", "x-amz-security-token"):
        headers.pop(name)
    hashed = await signer.hash_body(request.body)
    ours = signer.sign(KEYS, "POST", URL(url), headers, hashed)
    assert ours.keys() <= {name.lower() for name in request.headers}
    assert ours["x-amz-security-token"] == request.headers["x-amz-security-token"]
    assert len(ours["x-amz-date"]) == len(moment)


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("bedrock-runtime.eu-central-1.amazonaws.com", ("bedrock", "eu-central-1")),
        ("bedrock-runtime-fips.us-gov-west-1.amazonaws.com", ("bedrock", "us-gov-west-1")),
        ("bedrock-mantle.us-east-1.api.aws", ("bedrock-mantle", "us-east-1")),
        ("aws-external-anthropic.us-east-2.api.aws", ("aws-external-anthropic", "us-east-2")),
        ("vpce-1.example", None),
        ("127.0.0.1", None),
    ],
)
def test_service_and_region_of_a_host(host: str, scope: tuple[str, str] | None) -> None:
    assert AwsSource().scope(f"https://{host}/anthropic") == scope
    stated = AwsSource(service="s", region="r")
    assert stated.scope(f"https://{host}/anthropic") == ("s", "r")


async def test_a_wrong_clock_is_corrected_once() -> None:
    signer = Signer("bedrock", "eu-central-1", lambda: NOW)
    assert not signer.learn_clock("no date")
    assert not signer.learn_clock(formatdate(NOW + MAX_SKEW - 1, usegmt=True))
    assert signer.learn_clock(formatdate(NOW + 7200, usegmt=True))
    assert not signer.learn_clock(formatdate(NOW + 7200, usegmt=True))
    signed = signer.sign(KEYS, "POST", URL("https://h.test/"), {}, "")
    assert signed["x-amz-date"] == "20261125T004000Z"
