"""One POST: its signature, receivers that misbehave, addresses that are not allowed."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import re
import resource
import socket
import ssl
import time
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.alerts.delivery import Delivery, DeliveryFailed
from gateway.config.load import parse_config
from gateway.config.monitoring import Webhook
from gateway.upstream.public_addresses import AddressInfo
from tests.alerts.receiver import OK, Receiver
from tests.support.paths import ROOT
from tests.support.tcp_server import listening
from tests.support.upstream import Response, json_response
from tests.upstream.certificates import make_authority

NOW = 1_763_942_400
SECRET = "whsec-for-tests-4471"
MESSAGE = {
    "id": "alert_1-firing",
    "alert": "channel_down",
    "status": "firing",
    "severity": "critical",
    "summary": "Channel <a@b> & c is down.",
    "gateway": "gw",
}


def webhook(receiver: Receiver | None = None, **options: Any) -> Webhook:
    """The webhook of a configuration with these options."""
    entry = receiver.webhook(**options) if receiver is not None else {"name": "hook"} | options
    config = parse_config(orjson.dumps({"alerts": {"webhooks": [entry]}}).decode())
    assert config.alerts is not None
    return config.alerts.webhooks[0]


def delivery(**parts: Any) -> Delivery:
    return Delivery(lambda: NOW * 1_000_000, **parts)


async def fails(settings: Webhook, by: Delivery | None = None) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await (by or delivery()).send(settings, MESSAGE)
    return caught.value


async def test_the_request(receiver: Receiver) -> None:
    settings = webhook(receiver, secret=SECRET, headers={"x-token": "abc-123-xyz"})
    assert await delivery().send(settings, MESSAGE) == 200
    (request,) = receiver.requests
    assert (request.method, request.target) == ("POST", "/hook")
    assert request.json == MESSAGE
    assert request.headers["content-type"] == "application/json"
    assert request.headers["x-token"] == "abc-123-xyz"
    assert request.headers["user-agent"].startswith("model-gateway/")
    signed = hmac.new(SECRET.encode(), f"{NOW}.".encode() + request.body, hashlib.sha256)
    assert request.headers["x-gateway-signature"] == f"t={NOW},v1={signed.hexdigest()}"


async def test_the_example_of_the_documentation_verifies(receiver: Receiver) -> None:
    await Delivery(lambda: time.time_ns() // 1000).send(webhook(receiver, secret=SECRET), MESSAGE)
    (request,) = receiver.requests
    page = (ROOT / "docs" / "alerts.md").read_text()
    (source,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(source, names)
    verify, header = names["verify"], request.headers["x-gateway-signature"]
    assert verify(SECRET, header, request.body)
    assert not verify(SECRET, header, request.body + b" ")
    assert not verify("another", header, request.body)
    assert not verify(SECRET, header.replace("t=1", "t=2"), request.body)
    old = (
        f"t={NOW - 10_000},v1="
        + hmac.new(
            SECRET.encode(), f"{NOW - 10_000}.".encode() + request.body, "sha256"
        ).hexdigest()
    )
    assert not verify(SECRET, old, request.body)
    assert not verify(SECRET, "", request.body)


async def test_slack_gets_one_text_without_markup(receiver: Receiver) -> None:
    await delivery().send(webhook(receiver, format="slack"), MESSAGE)
    (body,) = receiver.messages
    assert list(body) == ["text"]
    assert body["text"].startswith("[firing] channel_down (critical): Channel &lt;a@\u200bb&gt;")


async def test_a_receiver_that_hangs(receiver: Receiver) -> None:
    receiver.server.respond_with(OK.with_changes(delay=30))
    started = time.monotonic()
    error = await fails(webhook(receiver, timeout=0.3))
    assert str(error) == "no answer within 0.3 s"
    assert time.monotonic() - started < 3


@pytest.mark.parametrize(
    ("status", "is_final"), [(500, False), (503, False), (404, False), (429, False), (400, True)]
)
async def test_statuses(receiver: Receiver, status: int, is_final: bool) -> None:
    receiver.server.respond_with(json_response({}, status, retry_after="7"))
    error = await fails(webhook(receiver))
    assert (str(error), error.is_final, error.wait) == (f"status {status}", is_final, 7)


async def test_redirects_are_not_followed(receiver: Receiver) -> None:
    receiver.server.respond_with(json_response({}, 301, location=f"{receiver.url}/other"))
    error = await fails(webhook(receiver))
    assert str(error) == "status 301: redirects are not followed"
    assert len(receiver.requests) == 1


@pytest.mark.parametrize("raw", [b"", b"no http\r\n\r\n", b"HTTP/1.1 200 OK\r\n"])
async def test_a_receiver_that_closes_or_speaks_something_else(
    receiver: Receiver, raw: bytes
) -> None:
    receiver.server.respond_with(Response(raw=raw))
    assert re.fullmatch(r"\w+", str(await fails(webhook(receiver))))


async def test_nobody_listens() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/SECRET-PATH"
        error = await fails(webhook(url=url, allowed_networks=["127.0.0.1/32"]))
    assert "Connect" in str(error) and "SECRET-PATH" not in str(error)


async def test_an_answer_of_a_gigabyte_is_not_read(receiver: Receiver) -> None:
    sent = 0

    async def pour(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1073741824\r\n\r\n")
        try:
            while sent < 2**30:
                writer.write(bytes(2**16))
                sent += 2**16
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with listening(pour) as port:
        url = f"http://127.0.0.1:{port}/"
        settings = webhook(url=url, allowed_networks=["127.0.0.1/32"])
        async with asyncio.timeout(5):
            assert await delivery().send(settings, MESSAGE) == 200
    assert sent < 2**26
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024


async def test_answers_without_an_end_are_bounded() -> None:
    async def go_on(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
            await writer.drain()
            await asyncio.sleep(0.001)

    async with listening(go_on) as port:
        url = f"http://127.0.0.1:{port}/"
        settings = webhook(url=url, allowed_networks=["127.0.0.1/32"], timeout=0.5)
        assert str(await fails(settings)) == "no answer within 0.5 s"


class Names(AbstractResolver):
    """Every name has one address."""

    def __init__(self, address: str) -> None:
        self.address = address

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        return [
            ResolveResult(
                hostname=host, host=self.address, port=port, family=family, proto=0, flags=0
            )
        ]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.mark.parametrize(
    ("url", "address", "networks", "dialed"),
    [
        ("https://hooks.example/x", "93.184.216.34", [], True),
        ("https://hooks.example/x", "10.1.2.3", ["10.1.2.3/32"], True),
        ("http://hooks.example/x", "10.1.2.3", ["10.1.2.3/32"], True),
        ("http://hooks.example/x", "93.184.216.34", ["10.0.0.0/8"], False),
        ("https://hooks.example/x", "10.1.2.3", [], False),
        ("https://hooks.example/x", "10.1.2.4", ["10.1.2.3/32"], False),
        ("https://hooks.example/x", "127.0.0.1", [], False),
        ("https://hooks.example/x", "169.254.169.254", [], False),
        ("https://127.0.0.1/x", "", [], False),
        ("https://[::ffff:127.0.0.1]/x", "", [], False),
    ],
)
async def test_addresses(url: str, address: str, networks: list[str], dialed: bool) -> None:
    """No socket is made: whether one would be is on record."""
    asked: list[str] = []

    def refuse(info: AddressInfo) -> socket.socket:
        asked.append(str(info[4][0]))
        raise ConnectionRefusedError

    by = delivery(resolver=Names(address), make_socket=refuse)
    error = await fails(webhook(url=url, allowed_networks=networks), by)
    assert asked == ([address] if dialed else [])
    assert ("allowed_networks" in str(error)) is not dialed


async def test_variables_of_the_environment_name_no_proxy(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert await delivery().send(webhook(receiver), MESSAGE) == 200


async def test_certificates_are_verified(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taken.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    authority = make_authority(tmp_path)
    async with listening(take, authority.server()) as port:
        url = f"https://127.0.0.1:{port}/"
        settings = webhook(url=url, allowed_networks=["127.0.0.1/32"])
        assert "certificate verify failed" in str(await fails(settings))
        assert taken == []
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", trusting)
        assert await delivery().send(settings, MESSAGE) == 204
        assert len(taken) == 1
