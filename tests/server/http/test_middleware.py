"""The error table as clients see it: one case for each row, in each envelope that can carry it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.routing.retry_budget import MIN_RETRIES
from tests.support.gateway import ALPHA, BETA, RunningGateway, channels
from tests.support.shared_gateway import as_new, in_the_modules_loop
from tests.support.upstream import (
    Ending,
    Response,
    ScriptedUpstream,
    event_stream,
    fixture_reply,
    fixture_stream,
    json_response,
)

pytestmark = pytest.mark.shared_gateway

INVALID = "invalid_request_error"
FINAL = {"x-should-retry": "false"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """The error of a client. `type` and `code` are those of chat and responses, `native` that of
    messages. `headers` holds every header of the answer that is not always there."""

    status: int
    message: str
    type: str
    code: str | None
    native: str
    param: str | None = None
    headers: dict[str, str]


def unavailable(message: str, code: str, wait: int) -> Row:
    return Row(
        status=503,
        message=message,
        type="server_error",
        code=code,
        native="overloaded_error",
        headers={"retry-after": str(wait)},
    )


def bad_upstream(code: str, message: str = "Bad upstream response") -> Row:
    return Row(
        status=502,
        message=message,
        type="server_error",
        code=code,
        native="api_error",
        headers={},
    )


def refusal(status: int, native: str = INVALID, **fields: Any) -> Row:
    mapping: dict[str, Any] = {"message": "No, because.", "type": INVALID, "code": None}
    return Row(status=status, native=native, headers={}, **(mapping | fields))


FORBIDDEN = Row(
    status=502,
    message="Upstream access forbidden",
    type="server_error",
    code="upstream_forbidden",
    native="api_error",
    headers=FINAL,
)
TOO_LARGE = "request_too_large"
NO_ACCOUNTS = unavailable("No available accounts", "no_available_accounts", 30)
UNSTABLE = unavailable("Service unavailable", "server_is_overloaded", 5)
ERROR_BODY = {"type": "error", "error": {"type": "any_error", "message": "No, because."}}


def error_response(status: int, **headers: str) -> Response:
    return json_response(ERROR_BODY, status, **headers)


UPSTREAM = {
    "400": (error_response(400), refusal(400, code=None)),
    "400, field named": (
        json_response({"error": {"message": "No, because.", "code": "odd", "param": "top_p"}}, 400),
        refusal(400, code="odd", param="top_p"),
    ),
    "401": (error_response(401), FORBIDDEN),
    "402": (error_response(402), NO_ACCOUNTS),
    "403": (error_response(403), FORBIDDEN),
    "404": (error_response(404), refusal(404, "not_found_error")),
    "413": (
        error_response(413),
        refusal(413, TOO_LARGE, code=TOO_LARGE),
    ),
    "422": (error_response(422), refusal(422)),
    "408": (error_response(408), unavailable("Service unavailable", "upstream_timeout", 5)),
    "429": (error_response(429), NO_ACCOUNTS),
    "429, with a time": (
        error_response(429, retry_after="7"),
        unavailable("No available accounts", "no_available_accounts", 7),
    ),
    "429, with a short time": (
        error_response(429, retry_after_ms="90"),
        unavailable("No available accounts", "no_available_accounts", 1),
    ),
    "500": (error_response(500), UNSTABLE),
    "503, with a time": (
        error_response(503, retry_after="9"),
        unavailable("Service unavailable", "server_is_overloaded", 9),
    ),
    "504": (error_response(504), unavailable("Service unavailable", "upstream_timeout", 5)),
    "529": (error_response(529), UNSTABLE),
    "302": (
        error_response(302, location="http://127.0.0.1:1/"),
        bad_upstream("bad_upstream_response"),
    ),
    "an HTML page": (
        Response(headers={"content-type": "text/html"}, chunks=(b"<html>log in</html>",)),
        bad_upstream("bad_upstream_response"),
    ),
    "no HTTP": (Response(raw=b"SSH-2.0-hello\r\n\r\n"), bad_upstream("bad_upstream_response")),
    "nothing": (Response(raw=b""), bad_upstream("bad_upstream_response")),
}


def error_of(row: Row) -> dict[str, Any]:
    return {"message": row.message, "type": row.type, "param": row.param, "code": row.code}


async def assert_error(answer: Any, format: Format, row: Row) -> None:
    assert answer.status == row.status
    assert answer.content_type == "application/json"
    extra = ("retry-after", "x-should-retry", "www-authenticate", "allow")
    assert {name: answer.headers[name] for name in extra if name in answer.headers} == row.headers
    request_id = answer.headers["request-id"]
    assert answer.headers["x-request-id"] == request_id
    body = await answer.json()
    if format is Format.MESSAGES:
        error = {"type": row.native, "message": row.message}
        assert body == {"type": "error", "error": error, "request_id": request_id}
    else:
        assert body == {"error": error_of(row)}


@pytest.mark.parametrize("case", UPSTREAM)
async def test_the_clients_error_for_each_upstream_fault(
    gateway: RunningGateway, upstream: ScriptedUpstream, case: str
) -> None:
    script, row = UPSTREAM[case]
    upstream.respond_with(script)
    for format in Format:
        await assert_error(await gateway.post(format), format, row)
        await assert_error(await gateway.post(format, stream=True), format, row)
    retries = 0 if 400 <= row.status < 500 else MIN_RETRIES
    assert 6 <= len(upstream.requests) <= 6 + retries
    for kept in await gateway.rows(6):
        assert (kept.status, kept.error_code, kept.state) == (row.status, row.code, "error")


async def test_a_long_retry_after_is_capped_and_final(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(error_response(429, retry_after="3600"))
    answer = await gateway.post(Format.CHAT)
    assert answer.status == 503
    assert answer.headers["retry-after"] == "60"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("format", Format)
async def test_an_error_event_before_any_other_is_an_http_error(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_stream(format, "error_first"))
    await assert_error(await gateway.post(format, stream=True), format, NO_ACCOUNTS)


@pytest.mark.parametrize("format", Format)
async def test_a_stream_of_no_events(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(event_stream(b": nothing to say\n\n"))
    answer = await gateway.post(format, stream=True)
    await assert_error(answer, format, bad_upstream("empty_upstream_response"))


@pytest.mark.parametrize("format", Format)
async def test_a_whole_reply_that_breaks_off(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(fixture_reply(format).with_changes(ending=Ending.TRUNCATED))
    await assert_error(await gateway.post(format), format, bad_upstream("bad_upstream_response"))


@in_the_modules_loop()
async def narrow_gateway(
    gateway_of_module: RunningGateway, upstream: ScriptedUpstream
) -> AsyncIterator[RunningGateway]:
    """Chat serves only beta, the other formats only alpha, and nothing else is open; small
    limits."""
    lines = channels(upstream.address)
    for line in lines:
        line["models"] = [BETA if line["format"] == "chat" else ALPHA]
    limits = {"max_body": 2048, "max_response": 1024}
    families = {
        "alpha": {"endpoints": ["messages", "responses"]},
        "beta": {"endpoints": ["chat"]},
    }
    narrow = as_new(gateway_of_module, lines, server=limits, families=families)
    async with narrow as gateway:
        yield gateway


def not_found(model: str) -> Row:
    return Row(
        status=503,
        message=f"model_not_found: no channel for model {model} in this group",
        type=INVALID,
        code="model_not_found",
        param="model",
        native="api_error",
        headers=FINAL,
    )


@pytest.mark.parametrize("format", Format)
async def test_no_such_model(
    gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    for model in ("nobody", "beta-5.5", "mod\"el' \u00fc\U0001f600", ""):
        await assert_error(await gateway.post(format, model=model), format, not_found(model))
    assert not upstream.requests


@pytest.mark.parametrize("format", Format)
async def test_a_model_that_the_group_does_not_reach(
    gateway: RunningGateway, format: Format
) -> None:
    key = await gateway.key_for_models("beta-5.4")
    await assert_error(await gateway.post(format, key=key, model=ALPHA), format, not_found(ALPHA))
    assert "group" in ((await gateway.row()).error_message or "")


@pytest.mark.parametrize(("format", "model"), [(Format.CHAT, ALPHA), (Format.MESSAGES, BETA)])
async def test_a_model_of_a_family_without_this_endpoint(
    narrow_gateway: RunningGateway, format: Format, model: str
) -> None:
    row = Row(
        status=500,
        message="not implemented (convert_request_failed)",
        type="server_error",
        code="convert_request_failed",
        native="api_error",
        headers=FINAL,
    )
    await assert_error(await narrow_gateway.post(format, model=model), format, row)


async def test_responses_for_a_group_without_beta(gateway: RunningGateway) -> None:
    key = await gateway.key_for_models("alpha-*")
    row = Row(
        status=404,
        message="Invalid URL (POST /v1/responses): "
        "this endpoint needs a key whose group may use a model of the family beta",
        type=INVALID,
        code=None,
        native="not_found_error",
        headers=FINAL,
    )
    answer = await gateway.post(Format.RESPONSES, key=key, model=ALPHA)
    await assert_error(answer, Format.RESPONSES, row)


@pytest.mark.parametrize("format", Format)
async def test_a_reply_that_is_too_large(
    narrow_gateway: RunningGateway, upstream: ScriptedUpstream, format: Format
) -> None:
    upstream.respond_with(json_response({"id": "reply_01", "pad": "x" * 3000}))
    model = BETA if format is Format.CHAT else ALPHA
    answer = await narrow_gateway.post(format, model=model)
    await assert_error(answer, format, bad_upstream("upstream_response_too_large"))


FIELDS = {
    "model: Field required": ({"model": None}, "missing_required_parameter", "model"),
    "model: Input should be a string": ({"model": 5}, "invalid_value", "model"),
    "stream: Input should be true or false": ({"stream": "yes"}, "invalid_value", "stream"),
}


@pytest.mark.parametrize("format", Format)
async def test_a_wrong_field_is_named(gateway: RunningGateway, format: Format) -> None:
    for message, (fields, code, param) in FIELDS.items():
        row = refusal(400, message=message, code=code, param=param)
        await assert_error(await gateway.post(format, **fields), format, row)


async def test_the_cap_on_output_is_required_on_messages(gateway: RunningGateway) -> None:
    answer = await gateway.post(Format.MESSAGES, max_tokens=None)
    row = refusal(400, message="max_tokens: Field required", code=None)
    await assert_error(answer, Format.MESSAGES, row)


@pytest.mark.parametrize(
    ("path", "header", "format"),
    [
        ("/v1/messages/whatever", None, Format.MESSAGES),
        ("/v1/chat/whatever", "anthropic-version", Format.CHAT),
        ("/v1/responses/x/y", None, Format.CHAT),
        ("/v1/completions", None, Format.CHAT),
        ("/v1/embeddings/x", "anthropic-version", Format.CHAT),
        ("/v1/assistants", None, Format.CHAT),
        ("/v1/assistants", "anthropic-version", Format.MESSAGES),
        ("/v1/assistants", "vendor-beta", Format.MESSAGES),
        ("/whatever", None, Format.CHAT),
        ("/whatever", "vendor-version", Format.MESSAGES),
    ],
)
async def test_the_error_format_is_that_of_the_path_or_of_the_client(
    gateway: RunningGateway, path: str, header: str | None, format: Format
) -> None:
    async with gateway.http.post(path, headers={header: "x"} if header else {}) as answer:
        assert answer.status == 404
        body = await answer.json()
        request_id = answer.headers["request-id"]
    chat = {"message": f"Invalid URL (POST {path})", "type": INVALID, "param": None, "code": None}
    if format is Format.CHAT:
        assert body == {"error": chat}
    else:
        error = {"type": "not_found_error", "message": chat["message"]}
        assert body == {"type": "error", "error": error, "request_id": request_id}


async def test_an_internal_error_shows_no_details(
    gateway: RunningGateway, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(group: str) -> None:
        raise RuntimeError("secret detail")

    monkeypatch.setattr(gateway.daemon.runtime.registry, "version", -5)
    gateway.daemon.runtime.current.router.access_for = broken  # type: ignore[method-assign,assignment]  # it is broken on purpose
    answer = await gateway.post(Format.MESSAGES)
    row = Row(
        status=500,
        message="Internal server error",
        type="server_error",
        code=None,
        native="api_error",
        headers={},
    )
    await assert_error(answer, Format.MESSAGES, row)
    assert answer.headers["request-id"] in caplog.text
    kept = await gateway.row()
    assert kept.error_message == "Internal server error (RuntimeError: secret detail)"


async def test_every_response_has_the_request_id(
    gateway: RunningGateway, upstream: ScriptedUpstream
) -> None:
    upstream.respond_with(fixture_reply("chat"), fixture_stream("chat"))
    answers = [
        await gateway.post(Format.CHAT, headers={"x-request-id": "mine-1"}),
        await gateway.post(Format.CHAT, stream=True, headers={"x-request-id": "mine-2"}),
        await gateway.get("/v1/models", "sk-wrong", **{"x-request-id": "mine-3"}),
    ]
    for number, answer in enumerate(answers, 1):
        ours = answer.headers["request-id"]
        assert ours == answer.headers["x-request-id"]
        assert ours.startswith("req_")
        assert len(ours) == 28
        assert answer.headers["x-client-request-id"] == f"mine-{number}"
    rows = await gateway.rows(2)
    assert [row.id for row in rows] == [answer.headers["request-id"] for answer in answers[:2]]
    assert [row.client_request_id for row in rows] == ["mine-1", "mine-2"]


@pytest.mark.parametrize("invalid_id", ["", "x" * 201, "\u00fc", "tab\tbed"])
async def test_an_unprintable_request_id_is_not_echoed(
    gateway: RunningGateway, invalid_id: str
) -> None:
    answer = await gateway.get("/v1/models", **{"x-request-id": invalid_id})
    assert answer.status == 200
    assert "x-client-request-id" not in answer.headers
