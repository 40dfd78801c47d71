"""What crosses to the upstream and what does not; which model is meant and which is shown."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

from gateway import __version__
from gateway.core.formats import Format
from gateway.wire.upstream_errors import MAX_BODY
from tests.server.key_limits import limit_key
from tests.support.gateway import (
    ACCOUNT,
    BETA,
    UPSTREAM_KEY,
    UPSTREAM_MODEL,
    RunningGateway,
    channel,
    channels,
    request_body,
    run_gateway,
)
from tests.support.upstream import ScriptedUpstream, fixture_reply, fixture_stream, json_response

pytestmark = pytest.mark.shared_gateway

NOISE = {
    "accept": "application/json",
    "accept-encoding": "gzip, br, zstd",
    "accept-language": "de",
    "cookie": "session=1",
    "user-agent": "claude-cli/2.1",
    "origin": "http://browser.test",
    "referer": "http://browser.test/page",
    "forwarded": "for=192.0.2.1",
    "x-forwarded-for": "192.0.2.1",
    "x-real-ip": "192.0.2.1",
    "x-stainless-lang": "python",
    "x-stainless-retry-count": "1",
    "openai-organization": "org-1",
    "openai-beta": "assistants=v2",
    "idempotency-key": "once",
    "originator": "codex_exec",
    "session-id": "s-1",
    "x-app": "cli",
    "x-request-id": "mine",
    "x-api-base": "http://127.0.0.1:1/",
    "anthropic-dangerous-direct-browser-access": "true",
    "anthropic-workspace-id": "w-1",
    "te": "trailers",
    "x-codex-turn-metadata": "{}",
    "vendor-beta": "b-2",
    "anthropic-beta": "b-1",
    "x-codex-turn-state": "turn-1",
}
ALWAYS = {
    "host",
    "accept",
    "content-type",
    "content-length",
    "accept-encoding",
    "user-agent",
}
LIBRARY = {"x-stainless-lang": "python", "x-stainless-retry-count": "1"}
CROSSING = {
    Format.CHAT: LIBRARY
    | {"authorization": f"Bearer {UPSTREAM_KEY}", "openai-beta": "assistants=v2"},
    Format.MESSAGES: LIBRARY
    | {
        "x-api-key": UPSTREAM_KEY,
        "anthropic-version": "2023-06-01",
        "anthropic-beta": "b-1,b-2",
        "anthropic-dangerous-direct-browser-access": "true",
        "x-app": "cli",
    },
    Format.RESPONSES: LIBRARY
    | {
        "authorization": f"Bearer {UPSTREAM_KEY}",
        "openai-beta": "assistants=v2",
        "originator": "codex_exec",
        "session-id": "s-1",
        "x-codex-turn-metadata": "{}",
        "x-codex-turn-state": "turn-1",
    },
}
ADDRESS = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("format", Format)
async def test_the_exact_request_of_an_upstream(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, streamed: bool
) -> None:
    upstream.respond_with(fixture_stream(format) if streamed else fixture_reply(format))
    answer = await gateway.post(format, stream=streamed, headers=NOISE | {"x-api-key": gateway.key})
    assert answer.status == 200
    seen = upstream.last_request
    assert (seen.method, seen.target) == ("POST", ADDRESS[format])
    sent = {name.lower(): value for name, value in seen.headers.items()}
    assert len(sent) == len(seen.headers), "no header stands twice"
    assert {name: sent.pop(name) for name in set(sent) - ALWAYS} == CROSSING[format]
    assert sent == {
        "host": f"127.0.0.1:{upstream.port}",
        "accept": "*/*",
        "content-type": "application/json",
        "content-length": str(len(seen.body)),
        "accept-encoding": "identity",
        "user-agent": f"model-gateway/{__version__}",
    }
    assert gateway.key.encode() not in seen.body


@pytest.mark.parametrize("format", Format)
async def test_the_body_is_forwarded_with_another_model_name(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format))
    body = request_body(format, unknown={"deep": [1, 2.5, None, "\u2028"]}, store=False)
    await gateway.post(format, body)
    assert upstream.last_request.json == body | {"model": UPSTREAM_MODEL}


async def test_a_chat_stream_requests_its_usage(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_stream("chat"))
    await gateway.post(Format.CHAT, stream=True)
    assert upstream.last_request.json["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("format", "query", "forwarded"),
    [
        (Format.MESSAGES, "?beta=true", "beta=true"),
        (Format.MESSAGES, "?beta=true&api_base=http://127.0.0.1:1", "beta=true"),
        (Format.MESSAGES, "?alpha=true", ""),
        (Format.CHAT, "?beta=true", ""),
        (Format.RESPONSES, "?beta=true&api-version=1", ""),
    ],
)
async def test_queries(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format, query: str, forwarded: str
) -> None:
    upstream.respond_with(fixture_reply(format))
    answer = await gateway.post(format, path=f"{ADDRESS[format]}{query}")
    assert answer.status == 200
    assert upstream.last_request.url.query == forwarded


@pytest.mark.parametrize("prefix", ["anthropic", "vendor", "Anthropic", "VENDOR"])
async def test_protocol_headers_are_forwarded_under_their_real_names(
    gateway: RunningGateway, upstream: ScriptedUpstream, prefix: str
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    async with gateway.http.post(
        "/v1/messages",
        json=request_body(Format.MESSAGES),
        headers=[
            ("x-api-key", gateway.key),
            (f"{prefix}-version", "2026-10-21"),
            (f"{prefix}-beta", "one,two"),
            (f"{prefix}-beta", "three"),
        ],
    ) as answer:
        assert answer.status == 200
    names = [
        name for name in upstream.last_request.headers if name.lower().startswith(("an", "ven"))
    ]
    assert sorted(names) == ["anthropic-beta", "anthropic-version"]
    assert upstream.last_request.headers["anthropic-version"] == "2026-10-21"
    assert upstream.last_request.headers["anthropic-beta"] == "one,two,three"


async def test_messages_requires_a_version(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    headers = {"x-api-key": gateway.key}
    async with gateway.http.post(
        "/v1/messages", json=request_body(Format.MESSAGES), headers=headers
    ) as answer:
        assert answer.status == 400
        error = (await answer.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"] == "anthropic-version or vendor-version: header is required"
    assert not upstream.requests


async def test_messages_without_a_version_where_that_is_allowed(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    upstream.respond_with(fixture_reply("messages"))
    relaxed = {"require_version_header": False}
    async with run_gateway(tmp_path, channels(upstream.address), server=relaxed) as gateway:
        headers = {"x-api-key": gateway.key}
        async with gateway.http.post(
            "/v1/messages", json=request_body(Format.MESSAGES), headers=headers
        ) as answer:
            assert answer.status == 200
    assert "anthropic-version" not in upstream.last_request.headers


async def test_a_channels_own_headers(upstream: ScriptedUpstream, tmp_path: Path) -> None:
    upstream.respond_with(fixture_reply("messages"))
    own = {"x-team": "blue", "user-agent": "house/1"}
    lines = [channel(Format.MESSAGES, upstream.address, headers=own)]
    async with run_gateway(tmp_path, lines) as gateway:
        await gateway.post(Format.MESSAGES)
    assert upstream.last_request.headers["x-team"] == "blue"
    assert upstream.last_request.headers.getall("user-agent") == ["house/1"]


GATEWAY_SECRETS = {
    "set-cookie": "session=upstream",
    "server": "upstream/1",
    "x-request-id": "req_upstream",
    "request-id": "req_upstream",
    "via": "1.1 proxy",
    "openai-organization": "org-for-tests",
    "openai-session-key": "k",
    "openai-login": "Bearer abc",
    "anthropic-organization-id": "org-for-tests",
    "x-models-etag": '"theirs"',
    "retry-after": "5",
    "cf-ray": "1",
    "access-control-allow-origin": "*",
    "www-authenticate": "Basic",
}
VISIBLE_TEXTS = {
    "openai-processing-ms": "12",
    "openai-version": "2020-10-01",
    "x-codex-turn-state": "turn-2",
    "x-should-retry": "true",
    "x-reasoning-included": "true",
    "anthropic-made-up-in-2027": "yes",
    "anthropic-ratelimit-unified-7d-utilization": "0.42",
    "anthropic-ratelimit-input-tokens-remaining": "9",
    "x-ratelimit-remaining-tokens": "3",
    "x-codex-primary-used-percent": "12",
}


@pytest.mark.parametrize("format", Format)
async def test_the_forwarded_response_headers(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    headers = GATEWAY_SECRETS | VISIBLE_TEXTS
    for streamed, script in ((False, fixture_reply(format)), (True, fixture_stream(format))):
        named = {**script.headers, **headers, "openai-model": UPSTREAM_MODEL}
        upstream.respond_with(script.with_changes(headers=named))
        answer = await gateway.post(format, stream=streamed)
        assert answer.status == 200
        assert answer.headers["openai-model"] == request_body(format)["model"]
        came = {name.lower(): value for name, value in answer.headers.items()}
        assert came["request-id"] == came["x-request-id"]
        assert came["request-id"].startswith("req_0")
        assert came.pop("server") == "model-gateway"
        for name in ("request-id", "x-request-id"):
            del came[name]
        assert not set(came) & set(GATEWAY_SECRETS)
        assert {name: came[name] for name in VISIBLE_TEXTS} == VISIBLE_TEXTS


async def test_the_gateways_own_headers_replace_the_upstreams(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    """Sets of headers too: those of a budget say nothing beside others of another one."""
    theirs = {
        "anthropic-ratelimit-requests-limit": "50",
        "anthropic-ratelimit-input-tokens-limit": "51",
        "anthropic-ratelimit-unified-status": "rejected",
        "anthropic-ratelimit-unified-overage-status": "rejected",
    }
    limit_key(gateway, requests_per_minute=7, budget_week=10**12)
    reply, stream = fixture_reply("messages"), fixture_stream("messages")
    for streamed, script in ((False, reply), (True, stream)):
        upstream.respond_with(script.with_changes(headers={**script.headers, **theirs}))
        answer = await gateway.post(Format.MESSAGES, stream=streamed)
        assert answer.headers.getall("anthropic-ratelimit-requests-limit") == ["7"]
        assert answer.headers["anthropic-ratelimit-input-tokens-limit"] == "51"
        assert answer.headers.getall("anthropic-ratelimit-unified-status") == ["allowed"]
        assert "anthropic-ratelimit-unified-overage-status" not in answer.headers


@pytest.mark.parametrize("advice", ["true", "false", "maybe"])
async def test_the_upstreams_advice_to_retry_comes_with_its_own_errors(
    gateway: RunningGateway, upstream: ScriptedUpstream, advice: str
) -> None:
    headers = {"content-type": "application/json", "x-should-retry": advice}
    for status, seen in ((400, advice if advice != "maybe" else None), (529, None)):
        error = json_response({"error": {"message": "No."}}, status)
        upstream.respond_with(error.with_changes(headers=headers))
        answer = await gateway.post(Format.MESSAGES)
        assert answer.headers.get("x-should-retry") == seen, status


@pytest.mark.parametrize("format", Format)
@pytest.mark.parametrize(
    "sent", [BETA, f"{BETA}[1m]", "team/own", "team/own[1m]"], ids=lambda sent: sent
)
async def test_the_id_is_echoed_as_sent(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, sent: str
) -> None:
    models = [{"id": BETA, "family": "beta", "aliases": ["team/own"]}]
    lines = [channel(format, upstream.address, models={BETA: UPSTREAM_MODEL})]
    async with run_gateway(tmp_path, lines, models=models) as gateway:
        upstream.respond_with(fixture_reply(format), fixture_stream(format))
        answer = await gateway.post(format, model=sent)
        assert (await answer.json())["model"] == sent
        streamed = await gateway.post(format, model=sent, stream=True)
        text = set(re.findall(r'"model":\s*"([^"]*)"', await streamed.text()))
        assert text == {sent}
        assert upstream.last_request.json["model"] == UPSTREAM_MODEL
        for row in await gateway.rows(2):
            assert (row.model, row.upstream_model) == (sent, UPSTREAM_MODEL)


@pytest.mark.parametrize("format", Format)
async def test_upstream_errors_are_redacted(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    message = (
        f"max_tokens: too many for {ACCOUNT} at {upstream.address}/v1/x "
        f"with {UPSTREAM_KEY} or sk-live-0123456789 from 192.0.2.7:443"
    )
    upstream.respond_with(
        json_response({"error": {"type": "invalid_request_error", "message": message}}, 400)
    )
    answer = await gateway.post(format)
    assert answer.status == 400
    message = (await answer.json())["error"]["message"]
    assert message == (
        "max_tokens: too many for [account] at [address] "
        "with [redacted] or [redacted] from [address]"
    )
    row = await gateway.row()
    assert row.upstream_status == 400
    assert row.upstream_error is not None
    assert ACCOUNT in row.upstream_error
    assert upstream.address in row.upstream_error
    assert UPSTREAM_KEY not in row.upstream_error
    assert "sk-live" not in row.upstream_error


@pytest.mark.parametrize("kept", [4, 12, len(UPSTREAM_KEY) - 1])
async def test_keys_that_are_cut_are_redacted(
    gateway: RunningGateway, upstream: ScriptedUpstream, kept: int
) -> None:
    """By the length of the stored text, or by the upstream itself."""
    head = '{"error":{"type":"invalid_request_error","message":"'
    padding = "-" * (MAX_BODY - len(head) - kept)
    upstream.respond_with(json_response(f'{head}{padding}{UPSTREAM_KEY}"}}}}'.encode(), 400))
    await gateway.post(Format.CHAT)
    row = await gateway.row()
    assert len(row.upstream_error or "") <= MAX_BODY
    assert (row.upstream_error or "").endswith(("-[redacted]", "-[red"))
    assert UPSTREAM_KEY[:4] not in (row.upstream_error or "")
    upstream.respond_with(json_response({"error": {"message": f"key {UPSTREAM_KEY[3:15]}?"}}, 400))
    answer = await gateway.post(Format.CHAT)
    assert (await answer.json())["error"]["message"] == "key [redacted]?"
    assert "key [redacted]?" in ((await gateway.rows(2))[1].upstream_error or "")


@pytest.mark.parametrize("format", Format)
async def test_no_response_contains_a_secret(
    gateway: RunningGateway,
    upstream: ScriptedUpstream,
    format: Format,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whatever an upstream lets slip, in whatever status or event."""
    canary = f"{UPSTREAM_KEY} {ACCOUNT} {upstream.address} 127.0.0.1"
    error = {"type": "error", "error": {"type": "invalid_request_error", "message": canary}}
    scripts = [
        json_response(error, status) for status in (400, 401, 403, 404, 413, 422, 429, 500, 529)
    ]
    scripts.append(json_response(canary.encode(), 400))
    scripts.append(json_response(canary.encode(), 200))
    broken = fixture_stream(format, "error_mid_stream")
    word = b"Rate limit reached, try again in 20s"
    scripts.append(broken.with_changes(chunks=(broken.body.replace(word, canary.encode()),)))
    for script in scripts:
        upstream.respond_with(script)
        streamed = script is scripts[-1]
        answer = await gateway.post(format, stream=streamed)
        text = str(answer.headers) + await answer.text()
        for secret in (UPSTREAM_KEY, ACCOUNT, upstream.address, "127.0.0.1", gateway.key):
            assert secret not in text, f"{secret} in {text}"
    for row in await gateway.rows(len(scripts)):
        assert UPSTREAM_KEY not in repr(row)
        assert gateway.key not in repr(row)
    assert UPSTREAM_KEY not in caplog.text
    assert gateway.key not in caplog.text


@pytest.mark.parametrize("format", Format)
async def test_the_clients_bytes_are_forwarded(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    """Between equal formats only the model's name is another: numbers beyond 64 bits and the
    client's own spelling are not lost by writing the body again."""
    upstream.respond_with(fixture_reply(format))
    declined = {"store": False} if format is Format.RESPONSES else {}
    body = request_body(format, **declined)
    plain = orjson.dumps({name: value for name, value in body.items() if name != "model"})
    raw = b'{ "model" :  "%b",\n "big": 123456789012345678901234567890, "one": 1.0,%b' % (
        str(body["model"]).encode(),
        plain[1:],
    )
    answer = await gateway.post(format, raw)
    assert answer.status == 200
    assert upstream.last_request.body == raw.replace(
        str(body["model"]).encode(), UPSTREAM_MODEL.encode(), 1
    )
