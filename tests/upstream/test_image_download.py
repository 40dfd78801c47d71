"""Downloads of images: where they go, what they cost, what is kept.

Addresses beyond loopback only ever meet a socket factory that records them and makes no socket.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import parse_qsl

import pytest
from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.config.schema import Images
from gateway.upstream import image_download
from gateway.upstream.image_download import DownloadFailed, ImageDownloader
from gateway.upstream.public_addresses import AddressInfo
from tests.support.answer import Answer
from tests.support.image_files import PNG
from tests.support.upstream import ReceivedRequest, Response, scripted_upstream

PUBLIC = "1.1.1.1"
MAX_BYTES = 100_000


class Resolver(AbstractResolver):
    """Answers each question with the next of some lists of addresses, and with the last again."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.questions.append(host)
        addresses = self.answers[min(len(self.questions), len(self.answers)) - 1]
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST,
            )
            for address in addresses
        ]

    async def close(self) -> None:
        pass


@dataclass
class Dials:
    """Records where sockets would be connected to; it makes some for loopback only."""

    addresses: list[str] = field(default_factory=list)
    may_dial: bool = False

    def __call__(self, info: AddressInfo) -> socket.socket:
        address = info[4][0]
        self.addresses.append(address)
        if self.may_dial and address == "127.0.0.1":
            return socket.socket(*info[:3])
        raise OSError("recorded, and not dialled")


@pytest.fixture
def dials() -> Dials:
    return Dials()


def downloader(dials: Dials, *answers: Sequence[str]) -> tuple[ImageDownloader, Resolver]:
    resolver = Resolver(*(answers or [["127.0.0.1"]]))
    return ImageDownloader(resolver, dials), resolver


async def download(
    downloads: ImageDownloader,
    url: str,
    settings: Images | None = None,
    *,
    key: str = "key",
    book: Callable[[int], None] = lambda size: None,
) -> bytes:
    # The test's own limit: each step of the downloader has another.
    async with asyncio.timeout(15):
        return await downloads.download(key, url, settings or Images(), MAX_BYTES, book)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:80/",
        "http://[::1]:80/",
        "http://[::ffff:127.0.0.1]:80/",
        "http://2130706433:80/",
        "http://127.1:80/",
        "http://0x7f000001:80/",
        "http://0:80/",
        "http://0.0.0.0:80/",
        "http://name.test/",
        "http://localhost:80/",
        "http://127.0.0.1.:80/",
        "http://①②⑦.⓪.⓪.①:80/",
        "http://169.254.169.254/latest/meta-data/",
        "http://user@127.0.0.1:80/",
        "file:///etc/passwd",
        "gopher://127.0.0.1:80/_GET",
        "http://[fe80::1%25eth0]/",
        "http://017700000001/",
        "http://[::ffff:a9fe:a9fe]/",
        "http://example.org@127.0.0.1/",
        "http://:secret@1.1.1.1/",
        "http://1.1.1.1:22/",
        "http://",
        "http://[",
        "http://a b/",
        "//name.test/",
        "",
    ],
)
async def test_nothing_is_dialled_for_these(dials: Dials, url: str) -> None:
    """Whatever notation the resolver understands: it says 127.0.0.1."""
    downloads, _ = downloader(dials)
    with pytest.raises(DownloadFailed):
        await download(downloads, url)
    assert dials.addresses == []


@pytest.mark.parametrize(
    "url", ["http://1.1.1.1/a.png", "https://1.1.1.1/a.png", "http://name.test"]
)
async def test_public_addresses_are_dialled(dials: Dials, url: str) -> None:
    """That the factory is asked at all: without it the tests above prove nothing."""
    downloads, _ = downloader(dials, [PUBLIC])
    with pytest.raises(DownloadFailed):
        await download(downloads, url)
    assert dials.addresses == [PUBLIC]


@pytest.mark.parametrize(
    "answer", [["10.0.0.1"], [PUBLIC, "10.0.0.1"], ["::1", PUBLIC], ["::ffff:127.0.0.1"]]
)
async def test_every_address_of_a_name_is_checked(dials: Dials, answer: list[str]) -> None:
    downloads, _ = downloader(dials, answer)
    with pytest.raises(DownloadFailed):
        await download(downloads, "http://name.test/")
    assert dials.addresses == []


async def test_a_name_that_changes_its_address(dials: Dials) -> None:
    """The address that was checked is the one that is dialled: there is one question for it."""
    downloads, resolver = downloader(dials, [PUBLIC], ["127.0.0.1"])
    with pytest.raises(DownloadFailed):
        await download(downloads, "http://name.test/")
    assert (dials.addresses, resolver.questions) == ([PUBLIC], ["name.test"])
    with pytest.raises(DownloadFailed, match="not public"):
        await download(downloads, "http://name.test/")
    assert dials.addresses == [PUBLIC]


async def test_proxies_of_the_environment_are_not_used(
    dials: Dials, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:3128")
    downloads, resolver = downloader(dials, [PUBLIC])
    with pytest.raises(DownloadFailed):
        await download(downloads, "http://name.test/")
    assert (dials.addresses, resolver.questions) == ([PUBLIC], ["name.test"])


@dataclass
class Host:
    """A web server on loopback, which is allowed."""

    dials: Dials
    resolver: Resolver
    downloads: ImageDownloader
    settings: Images = field(default_factory=Images)
    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    running: int = 0
    most: int = 0

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def download(self, path: str, **more: str) -> bytes:
        return await download(self.downloads, self.url(path), self.settings, **more)

    async def serve(self, request: ReceivedRequest) -> Response | None:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await _answer(request)
        finally:
            self.running -= 1


def _redirect(to: str, status: int = 302) -> Response:
    return Response(status=status, headers={"location": to}, chunks=(b"",))


async def _answer(request: ReceivedRequest) -> Response | None:
    query = dict(parse_qsl(request.url.query))
    match request.path:
        case "/redirect":
            return _redirect(query["to"])
        case "/count":
            left = int(query["n"])
            return _redirect(f"/count?n={left - 1}" if left else "/a.png", 307)
        case "/endless":
            return await _write(request.answer, bytes(1000), 0.001)
        case "/drip":
            return await _write(request.answer, b"x", 0.02)
        case "/slow" | "/silent":
            await asyncio.sleep(0.1 if request.path == "/slow" else 30)
            return Response(chunks=(PNG,))
        case path:
            return ANSWERS[path]


async def _write(answer: Answer, piece: bytes, pause: float) -> None:
    await answer.head()
    while True:
        await answer.say(piece)
        await asyncio.sleep(pause)


ANSWERS: dict[str, Response] = {
    "/a.png": Response(chunks=(PNG,)),
    "/loop": _redirect("/loop"),
    "/nowhere": Response(status=301, chunks=(b"",)),
    "/large": Response(chunks=(bytes(MAX_BYTES + 1),)),
    "/zipped": Response(headers={"content-encoding": "gzip"}, chunks=(bytes(1000),)),
    "/missing": Response(status=404, chunks=(b"a page with a secret",)),
}


@pytest.fixture
async def host(dials: Dials) -> AsyncIterator[Host]:
    dials.may_dial = True
    resolver = Resolver(["127.0.0.1"])
    host = Host(dials, resolver, ImageDownloader(resolver, dials))
    async with scripted_upstream(host.serve) as server:
        host.port, host.requests = server.port, server.requests
        allowed = f'{{"allowed_networks": ["127.0.0.1/32"], "allowed_ports": [{host.port}]}}'
        host.settings = Images.model_validate_json(allowed)
        yield host


async def test_an_image(host: Host) -> None:
    booked: list[int] = []
    url = host.url("/a.png", "name.test")
    body = await download(host.downloads, url, host.settings, book=booked.append)
    assert body == PNG
    assert sum(booked) == len(PNG)
    (request,) = host.requests
    assert request.headers["accept-encoding"] == "identity"
    assert not any(name in request.headers for name in ("cookie", "authorization", "referer"))


async def test_a_few_redirects_are_followed(host: Host) -> None:
    assert await host.download("/count?n=2") == PNG
    with pytest.raises(DownloadFailed, match="too many redirects"):
        await host.download("/count?n=3")
    with pytest.raises(DownloadFailed, match="too many redirects"):
        await host.download("/loop")
    assert len(host.requests) == 4 + 4 + 4


@pytest.mark.parametrize(
    "to",
    [
        *("http://127.0.0.2:{port}/a.png", "http://[::1]:{port}/a.png", "http://10.0.0.1:{port}/"),
        *("http://169.254.169.254:{port}/", "http://127.0.0.1:1/a.png", "file:///etc/passwd"),
        *("gopher://127.0.0.1:{port}/", "ftp://127.0.0.1:{port}/", "data:image/png;base64,iVBO"),
        *("http://user@127.0.0.1:{port}/a.png", "//10.0.0.1:{port}/", "javascript:x", "http://["),
    ],
)
async def test_redirects_are_checked_like_addresses(host: Host, to: str) -> None:
    target = to.format(port=host.port).replace("&", "%26")
    with pytest.raises(DownloadFailed):
        await host.download(f"/redirect?to={target}")
    assert host.dials.addresses == ["127.0.0.1"]
    assert [request.path for request in host.requests] == ["/redirect"]


async def test_a_redirect_to_a_name_of_a_private_address(host: Host) -> None:
    host.resolver.answers = [["10.0.0.1"]]
    with pytest.raises(DownloadFailed, match="not public"):
        await host.download(f"/redirect?to=http://name.test:{host.port}/a.png")
    assert host.dials.addresses == ["127.0.0.1"]


@pytest.mark.parametrize("path", ["/missing", "/nowhere", "/large", "/endless", "/silent", "/drip"])
async def test_failures(host: Host, monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    monkeypatch.setattr(image_download, "TIMEOUT", 0.5)
    with pytest.raises(DownloadFailed) as failed:
        await host.download(path)
    assert "secret" not in str(failed.value)


async def test_nothing_is_inflated(host: Host) -> None:
    assert await host.download("/zipped") == bytes(1000)


async def test_no_more_than_the_limit_is_read(host: Host) -> None:
    booked: list[int] = []
    with pytest.raises(DownloadFailed, match="more than"):
        await download(host.downloads, host.url("/endless"), host.settings, book=booked.append)
    assert sum(booked) <= MAX_BYTES


async def test_what_the_caller_refuses_to_book_ends_the_download(host: Host) -> None:
    def refuse(size: int) -> None:
        raise MemoryError

    with pytest.raises(MemoryError):
        await download(host.downloads, host.url("/endless"), host.settings, book=refuse)
    async with asyncio.timeout(5):
        while host.running:
            await asyncio.sleep(0.01)


async def test_images_are_kept_per_key(host: Host) -> None:
    for key, requests in (("one", 1), ("one", 1), ("two", 2)):
        assert await host.download("/a.png", key=key) == PNG
        assert len(host.requests) == requests


async def test_kept_images_expire(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_download, "CACHE_TIME", 0.0)
    for _ in range(2):
        await host.download("/a.png")
    assert len(host.requests) == 2


async def test_kept_images_have_a_limit(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    """The least recently used are forgotten."""
    monkeypatch.setattr(image_download, "MAX_CACHED", 2 * len(PNG))
    for query in ("1", "2", "1", "3", "1", "2"):
        await host.download(f"/a.png?{query}")
    assert len(host.requests) == 4


async def test_failures_are_not_kept(host: Host) -> None:
    for _ in range(2):
        with pytest.raises(DownloadFailed):
            await host.download("/missing")
    assert len(host.requests) == 2


@pytest.mark.parametrize(("keys", "most"), [(1, image_download.PER_KEY), (8, image_download.ALL)])
async def test_few_at_a_time(host: Host, keys: int, most: int) -> None:
    names = [(f"/slow?{n}", f"key {n % keys}") for n in range(40)]
    await asyncio.gather(*(host.download(path, key=key) for path, key in names))
    assert most // 2 < host.most <= most


async def test_connections_are_closed(host: Host) -> None:
    """Also those of downloads that are cancelled."""
    task = asyncio.create_task(host.download("/silent"))
    while not host.running:
        await asyncio.sleep(0.01)
    task.cancel()
    async with asyncio.timeout(5):
        while host.running:
            await asyncio.sleep(0.01)
    with pytest.raises(asyncio.CancelledError):
        await task
