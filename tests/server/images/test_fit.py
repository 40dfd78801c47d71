"""Images that are made smaller, with Pillow."""

from __future__ import annotations

import asyncio
import random
import resource
import subprocess
import sys
import time
import zlib
from io import BytesIO
from pathlib import Path
from struct import pack
from typing import Any

import pytest
from PIL import Image

from gateway.core.formats import Format
from gateway.server.images import adapter
from gateway.server.images.fit import MAX_PIXELS, MAX_WEBP_PIXELS, CannotFit, fit_in_process
from gateway.server.images.fit import fit_image as fit_data
from gateway.wire.images.files import decode
from tests.support import image_files as files
from tests.support.gateway import ALPHA, RunningGateway, channel, run_gateway
from tests.support.image_files import encoded
from tests.support.image_requests import image_part, image_request, sent_images
from tests.support.upstream import ScriptedUpstream, fixture_reply

LIMIT = 5 * 2**20 * 3 // 4
MESSAGES_BASE64 = 5 * 2**20


def noise(width: int, height: int, mode: str = "RGB") -> Image.Image:
    """Nothing compresses it."""
    channels = len(mode)
    pixels = random.Random(1).randbytes(width * height * channels)
    return Image.frombytes(mode, (width, height), pixels)


def written(image: Image.Image, format: str, **options: Any) -> bytes:
    file = BytesIO()
    image.save(file, format, **options)
    return file.getvalue()


@pytest.fixture(scope="module")
def large_png() -> bytes:
    """12 MB."""
    return written(noise(2000, 2000), "PNG", compress_level=0)


def fit_image(file: bytes, media_type: str, max_bytes: int) -> tuple[str, bytes]:
    return fit_data(encoded(file), media_type, max_bytes)


def read(file: bytes) -> Image.Image:
    image = Image.open(BytesIO(file))
    image.load()
    return image


@pytest.mark.large
def test_a_large_png_becomes_a_smaller_jpeg(large_png: bytes) -> None:
    media_type, file = fit_image(large_png, "image/png", LIMIT)
    assert media_type == "image/jpeg"
    assert len(file) <= LIMIT < len(large_png)
    image = read(file)
    assert image.format == "JPEG"
    assert image.width == image.height


def test_transparency_stays() -> None:
    file = written(noise(400, 400, "RGBA"), "PNG")
    media_type, smaller = fit_image(file, "image/png", len(file) // 4)
    assert media_type == "image/webp"
    assert read(smaller).mode == "RGBA"


def test_the_turn_of_a_photograph_stays() -> None:
    """Cameras store how they were held; it is not kept, so the pixels are turned."""
    exif = Image.Exif()
    exif[0x0112] = 6
    file = written(noise(600, 300), "JPEG", quality=95, exif=exif.tobytes())
    _, smaller = fit_image(file, "image/jpeg", len(file) - 1)
    image = read(smaller)
    assert image.height == 2 * image.width


@pytest.mark.parametrize("format", ["GIF", "WEBP", "JPEG", "PNG"])
@pytest.mark.parametrize("mode", ["L", "P", "RGB"])
def test_other_kinds(format: str, mode: str) -> None:
    file = written(
        noise(300, 300).convert(mode if (format, mode) != ("JPEG", "P") else "L"), format
    )
    _, smaller = fit_image(file, f"image/{format.lower()}", 20_000)
    assert len(smaller) <= 20_000
    read(smaller)


def test_dimensions_are_reduced() -> None:
    file = written(Image.new("RGB", (9000, 100)), "PNG")
    _, smaller = fit_image(file, "image/png", LIMIT)
    assert max(read(smaller).size) <= 4096


@pytest.mark.parametrize(
    ("width", "height"), [(60_000, 60_000), (2**31 - 1, 2**31 - 1), (9000, 6000)]
)
def test_bombs_are_not_decoded(width: int, height: int) -> None:
    assert width * height > MAX_PIXELS
    started = time.process_time()
    with pytest.raises(CannotFit):
        fit_image(files.png(width, height), "image/png", LIMIT)
    assert time.process_time() - started < 1


@pytest.mark.parametrize("side", [2**24, MAX_WEBP_PIXELS // 4000])
def test_a_webp_that_claims_to_be_huge(side: int) -> None:
    """Its decoder would take memory for a canvas of this size as soon as it is opened."""
    canvas = files.riff(b"VP8X", bytes(4) + (side - 1).to_bytes(3, "little") * 2 + bytes(40))
    with pytest.raises(CannotFit, match="too many pixels"):
        fit_image(canvas, "image/webp", 10)


def black_png(side: int) -> bytes:
    """A colour picture of so many pixels in each row and column."""
    row, packer = bytes(1 + 3 * side), zlib.compressobj(1)
    rows = b"".join(packer.compress(row) for _ in range(side)) + packer.flush()
    header = pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    chunks = (b"IHDR", header), (b"IDAT", rows), (b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(files.chunk(*each) for each in chunks)


def resident() -> int:
    """Bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def test_a_large_image_takes_no_memory_of_the_gateway() -> None:
    data = encoded(black_png(7000))
    before = peak = resident()
    fitting = asyncio.ensure_future(fit_in_process(data, "image/png", LIMIT))
    while not fitting.done():
        await asyncio.sleep(0.01)
        peak = max(peak, resident())
    media_type, file = await fitting
    assert (media_type, read(file).size) == ("image/jpeg", (3500, 3500))
    assert peak - before < 32 * 2**20


async def test_an_abandoned_image_is_not_made_smaller() -> None:
    others = processes()
    fitting = asyncio.ensure_future(fit_in_process(encoded(black_png(7000)), "image/png", LIMIT))
    while not (children := processes() - others):
        await asyncio.sleep(0.01)
    fitting.cancel()
    async with asyncio.timeout(5):
        while children & processes():
            await asyncio.sleep(0.01)


def processes() -> set[str]:
    """Ids of those that this process has started."""
    tasks = Path("/proc/self/task").iterdir()
    return {child for task in tasks for child in (task / "children").read_text().split()}


def test_the_memory_of_a_process_is_limited() -> None:
    program = "from gateway.server.images import fit\nfit.MAX_MEMORY = 64 * 2**20\nfit.main()\n"
    run = subprocess.run(
        [sys.executable, "-c", program, "image/png", str(LIMIT)],
        input=encoded(black_png(7000)).encode(),
        capture_output=True,
        timeout=30,
        check=False,
    )
    assert run.stderr == b""
    assert (run.returncode, run.stdout) == (1, b"it takes too much memory to be made smaller\n")


@pytest.mark.parametrize(
    "file",
    [files.JPEG, files.PNG[:60] + bytes(40), files.GIF, b"", files.WEBP],
    ids=["jpeg", "png", "gif", "empty", "webp"],
)
@pytest.mark.parametrize("media_type", ["image/jpeg", "image/png", "image/gif", "image/webp"])
def test_files_that_cannot_be_decoded(file: bytes, media_type: str) -> None:
    try:
        fit_image(file, media_type, 10)
    except CannotFit:
        return
    raise AssertionError("ten bytes are no image")


def fitting(
    upstream: ScriptedUpstream, format: Format = Format.MESSAGES, **config: Any
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return [channel(format, upstream.address)], {"images": {"fit": True}} | config


@pytest.mark.large
@pytest.mark.parametrize("format", Format)
async def test_a_large_image_reaches_messages_smaller(
    upstream: ScriptedUpstream, tmp_path: Path, format: Format, large_png: bytes
) -> None:
    """From every endpoint, in both lanes; small ones are not touched."""
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    parts = image_part(format, files.PNG), image_part(format, large_png)
    lines, config = fitting(upstream)
    async with run_gateway(tmp_path, lines, **config) as gateway:
        answer = await gateway.post(format, image_request(format, *parts, model=ALPHA))
        assert answer.status == 200, await answer.text()
    small, large = sent_images(upstream.last_request.json)
    assert small == image_part(Format.CHAT, files.PNG)["image_url"]["url"]
    head, data = large.split(",")
    assert head == "data:image/jpeg;base64"
    assert len(data) <= MESSAGES_BASE64
    read(decode(data))


@pytest.mark.parametrize("upstream_format", [Format.CHAT, Format.MESSAGES])
async def test_an_animation_becomes_its_first_frame(
    upstream: ScriptedUpstream, tmp_path: Path, upstream_format: Format
) -> None:
    upstream.respond_with(fixture_reply(upstream_format))
    frames = [Image.new("RGB", (40, 30), color) for color in ("red", "blue", "green")]
    animation = written(frames[0], "GIF", save_all=True, append_images=frames[1:], duration=100)
    body = image_request(Format.CHAT, image_part(Format.CHAT, animation, "image/gif"))
    lines, config = fitting(upstream, upstream_format)
    async with run_gateway(tmp_path, lines, **config) as gateway:
        assert (await gateway.post(Format.CHAT, body)).status == 200
    (sent,) = sent_images(upstream.last_request.json)
    image = read(decode(sent.partition(",")[2]))
    assert (image.format, image.size) == ("JPEG", (40, 30))
    red, green, blue = image.convert("RGB").getpixel((20, 15))
    assert red > 200 > 50 > max(green, blue)


async def test_what_cannot_be_made_smaller_is_refused(
    upstream: ScriptedUpstream, tmp_path: Path
) -> None:
    bomb = image_part(Format.MESSAGES, files.png(60_000, 60_000))
    lines, config = fitting(upstream)
    async with run_gateway(tmp_path, lines, **config) as gateway:
        answer = await gateway.post(Format.MESSAGES, image_request(Format.MESSAGES, bomb))
        assert answer.status == 400
        message = (await answer.json())["error"]["message"]
    assert message.startswith("messages.0.content.0.source.data: too many pixels")
    assert upstream.requests == []


async def test_only_so_many_of_a_request(
    upstream: ScriptedUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others are judged as without fitting: by their bytes alone."""
    monkeypatch.setattr(adapter, "MAX_FITTED", 2)
    upstream.respond_with(fixture_reply(Format.MESSAGES))
    wide = image_part(Format.MESSAGES, written(Image.new("RGB", (8001, 10)), "PNG"))
    lines, config = fitting(upstream)
    async with run_gateway(tmp_path, lines, **config) as gateway:
        body = image_request(Format.MESSAGES, wide, wide, wide)
        assert (await gateway.post(Format.MESSAGES, body)).status == 200
    kinds = [image[:16] for image in sent_images(upstream.last_request.json)]
    assert kinds == ["data:image/jpeg;", "data:image/jpeg;", "data:image/png;b"]


async def test_without_fit_large_images_are_refused(
    gateway: RunningGateway, large_png: bytes
) -> None:
    body = image_request(Format.MESSAGES, image_part(Format.MESSAGES, large_png))
    assert (await gateway.post(Format.MESSAGES, body)).status == 400


def test_without_pillow_the_check_says_so(tmp_path: Path) -> None:
    config = tmp_path / "channels.yaml"
    config.write_text("images: {fit: true}\n")
    code = (
        "import sys, importlib.util as u\n"
        "find = u.find_spec\n"
        "u.find_spec = lambda name, *more: None if name == 'PIL' else find(name, *more)\n"
        "from gateway.cli import main\n"
        f"sys.argv = ['gateway', 'check', '--config', {str(config)!r}]\n"
        "main()\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=False
    )
    assert run.returncode != 0
    assert "images.fit" in run.stdout + run.stderr
    assert "pip install 'model-gateway[images]'" in run.stdout + run.stderr
