"""The connection to a Valkey server: pipelining, time limits, faults of server and network."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from pydantic import SecretStr

from gateway.config.cluster import SharedServer, Tls, TlsMode
from gateway.fleet.valkey.connection import Connection, Script
from gateway.fleet.valkey.errors import CommandFailed, SharedError, SharedLost
from tests.support.proxy import Direction, fault_proxy
from tests.support.timing import loop_time, until_within
from tests.support.toxics import Latency, LimitData, Slicer, Timeout
from tests.support.valkey import ValkeyServer, valkey_server

ECHO = Script("return ARGV[1]")


@asynccontextmanager
async def connected(url: str, timeout: float = 0.3) -> AsyncIterator[Connection]:
    connection = Connection(SharedServer(url=SecretStr(url), timeout=timeout))
    await connection.open()
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def own_server(tmp_path: Path, *options: str) -> AsyncIterator[ValkeyServer]:
    server = ValkeyServer(tmp_path, *options)
    try:
        yield server
    finally:
        server.stop()


async def until(condition: Callable[[], object], seconds: float = 3.0) -> None:
    await until_within(seconds, condition)


async def test_answers_come_in_order_whatever_is_under_way() -> None:
    async with connected(valkey_server().url) as connection:
        answers = await asyncio.gather(*(connection.call("ECHO", n) for n in range(500)))
        assert answers == [b"%d" % n for n in range(500)]
        scripts = await asyncio.gather(*(connection.run(ECHO, (), (n,)) for n in range(50)))
        assert scripts == [b"%d" % n for n in range(50)]


async def test_commands_of_one_turn_leave_in_one_write() -> None:
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        before = await connection.call("INFO", "commandstats")
        writes: list[bytes] = []
        transport = connection._commands.link._transport  # type: ignore[union-attr]
        assert transport is not None
        assert before

        class Counting:
            def write(self, data: bytes) -> None:
                writes.append(data)
                transport.write(data)

            abort = transport.abort

        connection._commands.link._transport = Counting()  # type: ignore[union-attr, assignment]
        await asyncio.gather(*(connection.call("PING") for _ in range(100)))
        assert len(writes) == 1


async def test_a_script_that_the_server_does_not_have_is_sent_again_as_text() -> None:
    async with connected(valkey_server().url) as connection:
        assert await connection.run(ECHO, (), ("first",)) == b"first"
        await connection.call("SCRIPT", "FLUSH")
        assert await connection.run(ECHO, (), ("second",)) == b"second"


async def test_an_error_is_the_commands_own() -> None:
    async with connected(valkey_server().url) as connection:
        failing, working = connection.call("INCR"), connection.call("ECHO", "still here")
        with pytest.raises(CommandFailed, match="wrong number of arguments"):
            await failing
        assert await working == b"still here"
        assert connection.is_up


@pytest.mark.parametrize("direction", list(Direction))
async def test_nobody_waits_longer_than_the_timeout(direction: Direction) -> None:
    loop = asyncio.get_running_loop()
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        reasons: list[str] = []
        connection.on_lost.append(lambda error: reasons.append(str(error)))
        proxy.add(Timeout(), direction)
        started = loop.time()
        async with loop_time() as seconds:
            results = await asyncio.gather(
                *(connection.call("PING") for _ in range(100)), return_exceptions=True
            )
            assert seconds() < 0.6
        assert loop.time() - started >= 0.28
        assert all(isinstance(each, SharedLost) for each in results)
        assert reasons == ["no answer within 0.3 s"]
        with pytest.raises(SharedLost):  # at once
            await connection.call("PING")
        back = asyncio.Event()
        connection.on_back.append(back.set)
        proxy.clear()
        await asyncio.wait_for(back.wait(), 4)
        assert await connection.call("PING") == b"PONG"


async def test_a_slow_server_within_the_timeout_is_used() -> None:
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        proxy.add(Latency(0.1))
        assert await asyncio.gather(*(connection.call("PING") for _ in range(10))) == [b"PONG"] * 10
        assert connection.is_up


async def test_an_answer_in_pieces() -> None:
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        proxy.add(Slicer(size=1))
        assert await connection.call("ECHO", "x" * 300) == b"x" * 300


async def test_a_connection_that_is_cut_in_the_middle_of_an_answer() -> None:
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        proxy.add(LimitData(proxy.moved[Direction.DOWN] + 100))
        calls = [connection.call("ECHO", "x" * 80) for _ in range(3)]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert results[0] == b"x" * 80
        assert [type(each) for each in results[1:]] == [SharedLost, SharedLost]
        proxy.clear()
        await until(lambda: connection.is_up)
        assert await connection.call("ECHO", "whole") == b"whole"


async def test_a_stopped_and_started_server(tmp_path: Path) -> None:
    async with own_server(tmp_path) as server, connected(server.url) as connection:
        assert await connection.run(ECHO, (), ("a",)) == b"a"
        server.stop()
        await until(lambda: not connection.is_up)
        connection.post("PING")  # goes nowhere, and says nothing
        server.start()
        await until(lambda: connection.is_up)
        assert await connection.run(ECHO, (), ("b",)) == b"b"


async def test_subscriptions_survive_the_server(tmp_path: Path) -> None:
    messages: list[tuple[bytes, bytes]] = []
    begun: list[str] = []

    def receive(channel: bytes, message: bytes) -> None:
        messages.append((channel, message))

    async with own_server(tmp_path) as server, connected(server.url) as connection:
        connection.subscribe("one", receive, lambda: begun.append("one"))
        await until(lambda: begun)
        connection.subscribe("two", receive, lambda: begun.append("two"))
        await until(lambda: "two" in begun)
        await connection.call("PUBLISH", "one", "1")
        await connection.call("PUBLISH", "two", b"\x00\xff")
        await until(lambda: len(messages) == 2)
        assert messages == [(b"one", b"1"), (b"two", b"\x00\xff")]
        begun.clear()
        server.stop()
        await until(lambda: not connection.is_up)
        server.start()
        await until(lambda: connection.is_up and set(begun) == {"one", "two"})
        await connection.call("PUBLISH", "two", "again")
        await until(lambda: messages[-1] == (b"two", b"again"))


async def test_a_subscription_that_hangs_begins_again() -> None:
    begun: list[int] = []
    async with fault_proxy(valkey_server().url) as proxy, connected(proxy.address) as connection:
        connection.subscribe("c", lambda channel, message: None, lambda: begun.append(1))
        await until(lambda: begun)
        proxy.add(Timeout())
        await asyncio.sleep(1.5)  # a ping, and its answer is missing
        proxy.clear()
        await until(lambda: len(begun) >= 2, 5)


@pytest.mark.parametrize(
    ("options", "url", "problem"),
    [
        (("--requirepass", "secret-1"), "valkey://:wrong@", "rejects the password or the user"),
        (("--requirepass", "secret-1"), "valkey://", "requires a password: set shared.password"),
        (("--maxmemory-policy", "allkeys-lru"), "valkey://", "maxmemory-policy allkeys-lru"),
        (("--replicaof", "127.0.0.1 1"), "valkey://", "read-only replica"),
        (
            ("--user", "default", "on", "nopass", "~*", "&*", "+@all", "-info"),
            "valkey://",
            "does not allow INFO",
        ),
        (("--maxmemory", "1"), "valkey://", "cannot be written to: OOM"),
    ],
)
async def test_a_server_that_cannot_be_used(
    tmp_path: Path, options: tuple[str, ...], url: str, problem: str
) -> None:
    async with own_server(tmp_path, *options) as server:
        address = f"{url}127.0.0.1:{server.port}"
        with pytest.raises(SharedError, match=problem) as caught:
            async with connected(address):
                pass
        assert "secret-1" not in str(caught.value)
        assert "wrong" not in str(caught.value)


async def test_a_server_that_begins_to_evict_counts_as_lost(tmp_path: Path) -> None:
    async with own_server(tmp_path) as server, connected(server.url) as connection:
        await connection.check_again()
        assert connection.is_up
        server.command("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        reasons: list[str] = []
        connection.on_lost.append(lambda error: reasons.append(str(error)))
        await connection.check_again()
        assert not connection.is_up
        assert "maxmemory-policy allkeys-lru" in reasons[0]
        await asyncio.sleep(0.2)  # it is tried again
        with pytest.raises(SharedLost, match="maxmemory-policy"):
            connection.call("PING")
        server.command("CONFIG", "SET", "maxmemory-policy", "noeviction")
        await until(lambda: connection.is_up)
        assert await connection.run(ECHO, (), ("a",)) == b"a"


async def test_a_password_a_user_and_a_database(tmp_path: Path) -> None:
    user = ["gw", "on", ">secret-2", "~*", "&*", "+@all"]
    options = ("--requirepass", "secret-1", "--user", *user)
    async with own_server(tmp_path, *options) as server:
        for url in ("valkey://:secret-1@127.0.0.1", "valkey://gw:secret-2@127.0.0.1"):
            async with connected(f"{url}:{server.port}/3") as connection:
                await connection.call("SET", "name", "value")
                assert b"db=3" in await connection.call("CLIENT", "INFO")
        with pytest.raises(SharedError, match="database 99"):
            async with connected(f"valkey://:secret-1@127.0.0.1:{server.port}/99"):
                pass


async def test_nobody_listens() -> None:
    with pytest.raises(SharedLost, match="cannot be reached"):
        async with connected("valkey://127.0.0.1:1"):
            pass


async def test_what_answers_is_no_valkey_server() -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(10)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(SharedError, match="no Valkey server"):
        async with connected(f"valkey://127.0.0.1:{port}"):
            pass
    server.close()


async def test_tls(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
    command += ["-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext"]
    command += ["subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, check=True, capture_output=True, timeout=20)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", valkey_server().port)
        await asyncio.gather(_pipe(reader, far_writer), _pipe(far_reader, writer))

    server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    address = f"valkeys://localhost:{port}"
    cases = [Tls(ca=certificate), Tls(mode=TlsMode.REQUIRE)]
    for tls in cases:
        connection = Connection(SharedServer(url=SecretStr(address), tls=tls))
        await connection.open()
        assert await connection.call("PING") == b"PONG"
        await connection.close()
    with pytest.raises(SharedError, match="certificate of localhost is not valid"):
        await Connection(SharedServer(url=SecretStr(address))).open()
    with pytest.raises(SharedError, match=r"shared\.tls"):
        await Connection(SharedServer(url=SecretStr(address), tls=Tls(ca=key))).open()
    server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()
