"""Accounts whose credentials expire, in a gateway, before a scripted upstream."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import CliRunner

from gateway.cli import main
from gateway.config.document import ConfigError
from gateway.config.load import parse_config
from gateway.core.formats import Format
from gateway.credentials import accounts
from gateway.credentials.expiring import Timing
from gateway.routing.circuit_breaker import HealthState
from gateway.server.http.metrics import read_gauges
from tests.credentials.issuer import Issuer, run_issuer
from tests.credentials.test_sigv4 import recomputed
from tests.support.gateway import RunningGateway, channel, run_gateway
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
    fixture_stream,
    json_response,
    scripted_upstream,
)

TIMING = Timing(lead=0.5, retry=0.05, max_retry=0.1, wait=2.0, min_age=0.0)
REF = ("chat-main", "expiring")
STATIC = {"name": "static", "key": "static-key-000000", "priority": -1}
REFUSED = json_response({"error": {"message": "the token is not accepted"}}, 401)
DOWN = json_response({"error": "temporarily_unavailable"}, 503)


@dataclass(slots=True)
class Setting:
    gateway: RunningGateway
    upstream: ScriptedUpstream
    issuer: Issuer

    @property
    def state(self) -> Any:
        runtime = self.gateway.daemon.runtime
        return runtime.health.status(REF, "", asyncio.get_running_loop().time())

    @property
    def keys(self) -> list[str]:
        return [request.key for request in self.upstream.requests]

    async def post(self, **fields: Any) -> int:
        return (await self.gateway.post(Format.CHAT, **fields)).status

    async def until(self, state: HealthState) -> None:
        async with asyncio.timeout(10):
            while self.state.state is not state:
                await asyncio.sleep(0.01)


@asynccontextmanager
async def running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *others: Any, **settings: Any
) -> AsyncIterator[Setting]:
    """A gateway with an account whose tokens an OAuth server issues, and `others`."""
    monkeypatch.setattr(accounts, "Timing", lambda: TIMING)
    identity = tmp_path / "identity"
    identity.write_text("identity-token-000")
    async with run_issuer(**settings) as issuer, scripted_upstream() as upstream:
        upstream.respond_with(fixture_reply("chat"))
        oidc = {"token_file": str(identity), "token_url": f"{issuer.server.address}/token"}
        expiring = {"name": REF[1], "key": {"oidc": oidc}}
        lines = [channel(Format.CHAT, upstream.address, accounts=[expiring, *others])]
        async with run_gateway(
            tmp_path / "state", lines, alerts={"webhooks": [], "check_every": 0.1}
        ) as gateway:
            yield Setting(gateway, upstream, issuer)


@pytest.fixture(autouse=True)
def state_dir(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()


async def test_one_call_for_all_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch, delay=0.2) as setting:
        assert {*await asyncio.gather(*(setting.post() for _ in range(50)))} == {200}
        assert len(setting.issuer.calls) == 1
        assert {*setting.keys} == {"issued-token-0001"}
        gauges = read_gauges(setting.gateway.daemon.runtime)
        assert gauges["gateway_credential_refreshes_total"] == {(*REF, "ok"): 1}
        end = gauges["gateway_credential_expiry_timestamp_seconds"][REF]
        assert isinstance(end, float) and abs(end - time.time() - 3600) < 60


async def test_it_is_renewed_before_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(tmp_path, monkeypatch, lifetime=0.8) as setting:
        stream = fixture_stream("chat")
        frames = tuple(part + b"\n\n" for part in stream.body.split(b"\n\n") if part)
        slow = stream.with_changes(chunks=frames, pause=1.5 / len(frames))
        setting.upstream.respond_with(slow, fixture_reply("chat"))
        streaming = asyncio.ensure_future(setting.gateway.post(Format.CHAT, stream=True))
        await setting.upstream.wait_for_request()
        until = asyncio.get_running_loop().time() + 1.8
        while asyncio.get_running_loop().time() < until:
            assert await setting.post() == 200
            await asyncio.sleep(0.05)
        answer = await streaming
        assert answer.status == 200 and b"[DONE]" in await answer.read()
        assert 3 <= setting.issuer.issued <= 5
        assert len({*setting.keys}) >= 3
        assert setting.state.state is HealthState.HEALTHY


async def test_a_source_that_is_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running(tmp_path, monkeypatch, STATIC, lifetime=1.0) as setting:
        assert await setting.post() == 200
        setting.issuer.refuses = DOWN
        while setting.state.state is HealthState.HEALTHY:
            assert await setting.post() == 200
            await asyncio.sleep(0.05)
        for _ in range(3):
            assert await setting.post() == 200
        own = setting.keys.index("static-key-000000")  # to its end, and no longer
        assert own >= 3 and {*setting.keys[:own]} == {"issued-token-0001"}
        assert {*setting.keys[own:]} == {"static-key-000000"}
        assert setting.state.state is HealthState.AUTH_FAILED
        reason = "no credential: the OAuth server answers 503: temporarily_unavailable"
        assert setting.state.reason == reason
        alerts = setting.gateway.daemon.console.alerts
        async with asyncio.timeout(10):
            while not (firing := alerts.firing()):
                await asyncio.sleep(0.05)
        assert [each.alert for each in firing] == ["account_auth_failed"]
        assert "temporarily_unavailable" in firing[0].summary
        gauges = read_gauges(setting.gateway.daemon.runtime)
        assert gauges["gateway_credential_refreshes_total"][*REF, "failed"] >= 1
        setting.issuer.refuses = None
        await setting.until(HealthState.HEALTHY)
        assert await setting.post() == 200
        assert setting.keys[-1] == setting.issuer.token
    told = [record.getMessage() for record in caplog.records if "account chat" in record.message]
    assert len(told) == 3, told  # the old one is valid, none is, a new one
    assert "issued-token" not in caplog.text and "identity-token" not in caplog.text


async def test_no_credential_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch, refuses=DOWN) as setting:
        answer = await setting.gateway.post(Format.CHAT)
        assert answer.status == 502
        assert (await answer.json())["error"]["code"] == "upstream_forbidden"
        row = await setting.gateway.row()
        assert "OAuth server answers 503" in str(row.upstream_error)
        assert setting.upstream.requests == []
        setting.issuer.refuses = None
        await setting.until(HealthState.HEALTHY)
        assert await setting.post() == 200


def refusing(*tokens: str) -> Any:
    """An upstream that refuses these tokens."""

    async def respond(request: ReceivedRequest) -> Response:
        return REFUSED if request.key in tokens else fixture_reply("chat")

    return respond


async def test_a_token_that_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is renewed once for all; then the one before it serves, then another account."""
    async with running(tmp_path, monkeypatch, STATIC) as setting:
        assert await setting.post() == 200
        first, second, third = (f"issued-token-000{number}" for number in (1, 2, 3))
        setting.upstream.respond_with(refusing(first))
        assert {*await asyncio.gather(*(setting.post() for _ in range(20)))} == {200}
        assert setting.issuer.issued == 2 and setting.keys[-1] == second
        assert "static-key-000000" not in setting.keys
        setting.issuer.refuses = DOWN
        setting.upstream.respond_with(refusing(second))
        assert await setting.post() == 200
        assert setting.keys[-2:] == [second, first]
        assert setting.state.state is HealthState.HEALTHY
        setting.upstream.respond_with(refusing(first, second, third))
        assert await setting.post() == 200
        assert setting.keys[-1] == "static-key-000000"
        assert setting.state.state is HealthState.AUTH_FAILED
        setting.upstream.respond_with(fixture_reply("chat"))
        setting.issuer.refuses = None
        assert await setting.post() == 200


async def test_what_is_issued_is_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with running(tmp_path, monkeypatch) as setting:

        async def echo(request: ReceivedRequest) -> Response:
            error = {"error": {"message": f"refused: token {request.key}, field 'x'"}}
            return json_response(error, 400, **{"x-echo": request.key})

        setting.upstream.respond_with(echo)
        answer = await setting.gateway.post(Format.CHAT)
        assert answer.status == 400
        row = await setting.gateway.row()
        runtime = setting.gateway.daemon.runtime
        shown = (await answer.text(), str(answer.headers), repr(row), runtime.config.model_dump())
        assert "issued-token" in setting.keys[0]
        assert "issued-token" not in repr(shown)
        views = setting.gateway.daemon.console.accounts.states()
        assert "issued-token" not in repr(views)
        before = setting.issuer.issued
        runtime.replace_config(runtime.config)
        assert await setting.post() == 400
        assert setting.issuer.issued == before  # a reload keeps it
        assert runtime.current.redactor.reveals(setting.issuer.token)


async def test_requests_are_signed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret/of+the=key")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "session//token==")
    key = {"aws": {"region": "eu-central-1", "service": "bedrock"}}
    skew = 3600

    async def respond(request: ReceivedRequest) -> Response:
        here = time.strftime("%Y%m%dT%H%M", time.gmtime(time.time() + skew))
        if request.headers["x-amz-date"][:11] != here[:11]:
            date = formatdate(time.time() + skew, usegmt=True)
            return json_response({"message": "Signature expired: ..."}, 403, date=date)
        return fixture_reply("messages")

    async with scripted_upstream(respond) as upstream:
        accounts = [{"name": "signed", "key": key}]
        lines = [
            channel(
                Format.MESSAGES, upstream.address, accounts=accounts, query={"b": "2", "a": "x y"}
            )
        ]
        async with run_gateway(tmp_path / "state", lines) as gateway:
            turn = {"role": "user", "content": "x" * 400_000}
            answer = await gateway.post(Format.MESSAGES, messages=[turn])
            assert answer.status == 200, await answer.text()
            assert await gateway.post(Format.MESSAGES)
        assert len(upstream.requests) == 3  # the first was signed with a wrong clock
        for request in upstream.requests:
            url = f"{upstream.address}{request.target}"
            own, expected, match = recomputed("POST", url, request.headers, request.body)
            assert own == expected
            assert {"anthropic-version", "content-type"} <= {*match["names"].split(";")}
            assert "secret/of" not in str(request.headers)


async def test_a_test_request_says_what_to_do(tmp_path: Path) -> None:
    error = {"error": {"code": "DeploymentNotFound", "message": "There is no deployment."}}
    async with scripted_upstream(json_response(error, 404)) as upstream:
        line = channel(Format.CHAT, upstream.address, preset="azure", query={"api-version": "1"})
        async with run_gateway(tmp_path / "state", [line]) as gateway:
            ref = line["name"], line["accounts"][0]["name"]
            result = await gateway.daemon.console.accounts.probe(ref, None)
        assert upstream.last_request.headers["api-key"]
    assert not result["ok"] and "that of a deployment" in result["hint"]


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ({}, "must have exactly one of command, google, azure, aws, oidc"),
        ({"command": ["a"], "google": "adc"}, "must have exactly one of"),
        ({"command": []}, "must not be empty"),
        ({"comand": ["a"]}, "unknown key; did you mean command?"),
        ({"aws": {}}, "needs service and region"),
        ({"oidc": {"token_file": "/a"}}, "is missing"),
        (None, "must be"),
    ],
)
def test_a_source_that_is_no_source(key: Any, problem: str) -> None:
    lines = [channel(Format.CHAT, "http://127.0.0.1:1", accounts=[{"name": "a", "key": key}])]
    with pytest.raises(ConfigError) as failed:
        parse_config(orjson.dumps({"channels": lines}).decode())
    texts = [each.text for each in failed.value.problems]
    assert any(problem in text for text in texts), texts


@pytest.mark.parametrize(
    ("kind", "source"), [("google", "adc"), ("azure", {}), ("aws", {"profile": "p"})]
)
def test_a_package_that_is_missing_is_named(
    kind: str, source: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.config.key_source.find_spec", lambda _: None)
    monkeypatch.setattr("gateway.config.key_source._is_installed", lambda _: False)
    base = "https://bedrock-runtime.eu-central-1.amazonaws.com/openai"
    lines = [channel(Format.CHAT, base, accounts=[{"name": "a", "key": {kind: source}}])]
    file = tmp_path / "channels.yaml"
    file.write_bytes(orjson.dumps({"channels": lines}))
    result = CliRunner().invoke(main, ["check", "--config", str(file)])
    assert result.exit_code != 0
    assert f"pip install 'model-gateway[{kind}]'" in result.output
