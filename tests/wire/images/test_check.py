"""Which images are accepted, corrected and refused."""

from __future__ import annotations

import pytest

from gateway.core.formats import Format
from gateway.core.value import replace
from gateway.errors import InvalidImage
from gateway.wire.images.check import (
    IMAGE_LIMITS,
    check_count,
    check_image,
    check_images,
    check_size,
    is_oversized,
)
from gateway.wire.images.parts import ImagePart
from tests.support import image_files as files
from tests.support.image_files import ACCEPTED, REFUSED, TRUNCATED, data_uri, encoded

MEGABYTE = 2**20


def at_url(url: str) -> ImagePart:
    return ImagePart(position=("messages", 0, "content", 1), field="image_url.url", url=url)


def as_data(data: str, media_type: str | None = "image/png") -> ImagePart:
    position = ("messages", 0, "content", 1)
    return ImagePart(position=position, field="source.data", data=data, media_type=media_type)


def refusal(image: ImagePart, format: Format = Format.CHAT) -> InvalidImage:
    with pytest.raises(InvalidImage) as refused:
        check_image(image, format)
    assert refused.value.param == image.path
    assert refused.value.message.startswith(f"{image.path}: ")
    return refused.value


@pytest.mark.parametrize("name", ACCEPTED)
def test_accepted_images_are_unchanged(name: str) -> None:
    file, media_type = ACCEPTED[name]
    image = as_data(encoded(file), media_type)
    assert check_image(image, Format.MESSAGES) is image
    read = check_image(at_url(data_uri(file, media_type)), Format.CHAT)
    assert (read.data, read.media_type, read.changed) == (encoded(file), media_type, False)


@pytest.mark.parametrize("label", ["image/gif", "image/jpg", "text/plain", "", "IMAGE/PNG"])
def test_wrong_media_types_are_corrected(label: str) -> None:
    for image in (as_data(encoded(files.JPEG), label), at_url(data_uri(files.JPEG, label))):
        read = check_image(image, Format.CHAT)
        assert (read.data, read.media_type) == (encoded(files.JPEG), "image/jpeg")
        assert read.changed


@pytest.mark.parametrize(
    "text",
    [
        "data:image/png;base64,{}",
        "DATA:image/png;base64,{}",
        "data:image/png;charset=utf-8;base64,{}",
    ],
)
def test_data_uris(text: str) -> None:
    read = check_image(at_url(text.format(encoded(files.PNG))), Format.RESPONSES)
    assert (read.data, read.media_type) == (encoded(files.PNG), "image/png")


@pytest.mark.parametrize("file", [files.PNG, files.JPEG, files.GIF, files.WEBP])
def test_bare_base64_becomes_an_image(file: bytes) -> None:
    read = check_image(at_url(encoded(file)), Format.CHAT)
    assert (read.data, read.changed) == (encoded(file), True)


def test_line_breaks_are_removed() -> None:
    data = encoded(files.PNG)
    read = check_image(as_data(f"{data[:40]}\n{data[40:]}\r\n"), Format.MESSAGES)
    assert (read.data, read.changed) == (data, True)


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("format", Format)
def test_other_files_are_refused(name: str, format: Format) -> None:
    file, kind = REFUSED[name]
    for image in (as_data(encoded(file)), at_url(data_uri(file))):
        error = refusal(image, format)
        assert error.code == "unsupported_image_media_type"
        assert kind in error.message and "only JPEG, PNG, WebP and static GIF" in error.message


@pytest.mark.parametrize("name", TRUNCATED)
def test_damage_is_left_to_the_upstream(name: str) -> None:
    data = encoded(TRUNCATED[name])
    assert check_image(as_data(data), Format.MESSAGES).data == data


@pytest.mark.parametrize("file", [b"RIFF\4\0\0\0WEBP", files.png(0, 0), files.png(5, 0)])
def test_files_without_pixels_are_refused(file: bytes) -> None:
    error = refusal(as_data(encoded(file)))
    assert error.code == "invalid_image"
    assert "no pixels" in error.message


@pytest.mark.parametrize("data", ["not base64!", "iVBORw0KGgo", "iVBO\u00e9", "iVBORw0KGgo=A"])
def test_wrong_base64_is_refused(data: str) -> None:
    for image in (as_data(data), at_url(f"data:image/png;base64,{data}")):
        assert refusal(image).code in ("invalid_base64_image", "invalid_image")


def test_empty_images_are_refused() -> None:
    assert refusal(as_data("")).code == "empty_image_file"
    assert refusal(at_url("data:image/png;base64,")).code == "empty_image_file"


def test_data_uris_without_base64_are_refused() -> None:
    for url in ("data:image/svg+xml,<svg/>", "data:image/png;base64", "data:,"):
        assert refusal(at_url(url)).code == "invalid_base64_image"


def test_animated_gifs() -> None:
    """Refused on messages; on the others known as such, so that they can become static."""
    image = as_data(encoded(files.ANIMATED), "image/gif")
    assert "animated" in refusal(image, Format.MESSAGES).message
    for format in (Format.CHAT, Format.RESPONSES):
        read = check_image(image, format)
        assert read == replace(image, animated=True)


def test_heic_is_left_to_the_channels() -> None:
    image = as_data(encoded(files.HEIC), "image/heic")
    assert check_image(image, Format.MESSAGES) is image


@pytest.mark.parametrize(
    "url",
    [
        "https://example.org/a.png",
        "http://example.org",
        "HTTPS://EXAMPLE.org/a?b=c#d",
        "https://[2001:db8::1]:8443/a b.png",
        "https://user@example.org/ü.png",
    ],
)
def test_web_addresses_pass(url: str) -> None:
    image = at_url(url)
    assert check_image(image, Format.CHAT) is image


@pytest.mark.parametrize(
    "url",
    [
        *("", "ftp://example.org/a.png", "file:///etc/passwd", "javascript:alert(1)"),
        *("gopher://example.org/", "/a.png", "images/a.png", "../a.png", "example.org/a.png"),
        *(
            "http:/example.org",
            "https://",
            "http:///a",
            "http://[::1",
            "http://a b/c",
            "http://:80/",
            "https://\n.example.org/",
            "blob:https://a",
        ),
        *("//example.org/a.png", "s3://bucket/a.png", "C:\\a.png", " https://example.org/"),
    ],
)
def test_other_addresses_are_refused(url: str) -> None:
    assert refusal(at_url(url)).code == "invalid_image_url"


@pytest.mark.parametrize(
    ("format", "size", "fits"),
    [
        (Format.CHAT, 20 * MEGABYTE, True),
        (Format.CHAT, 20 * MEGABYTE + 1, False),
        (Format.RESPONSES, 20 * MEGABYTE + 1, False),
        (Format.MESSAGES, 5 * MEGABYTE, True),
        (Format.MESSAGES, 5 * MEGABYTE + 1, False),
    ],
)
def test_sizes(format: Format, size: int, fits: bool) -> None:
    """Of the files, whatever their base64 takes."""
    image = as_data(encoded(bytes(size)))
    assert is_oversized(image, format) is not fits
    if fits:
        check_size(image, format)
        return
    with pytest.raises(InvalidImage) as refused:
        check_size(image, format)
    error, megabytes = refused.value, IMAGE_LIMITS[format].megabytes
    assert error.code == "image_too_large"
    assert f"image exceeds {megabytes} MB maximum: " in error.message
    assert f" > {megabytes * MEGABYTE} bytes" in error.message


def test_many_pixels_are_too_many_for_messages() -> None:
    image = as_data(encoded(files.png(8001, 10)))
    assert is_oversized(image, Format.MESSAGES)
    assert not is_oversized(image, Format.CHAT)
    check_size(image, Format.MESSAGES)


@pytest.mark.parametrize(
    ("format", "most"), [(Format.CHAT, 250), (Format.MESSAGES, 100), (Format.RESPONSES, 250)]
)
def test_counts(format: Format, most: int) -> None:
    images = [as_data(encoded(files.PNG))] * most
    assert check_images(images, format) == images
    with pytest.raises(InvalidImage) as refused:
        check_images([*images, images[0]], format)
    assert f"{most + 1} > {most} maximum" in refused.value.message
    assert refused.value.code == "too_many_images"
    assert refused.value.param == ("input" if format is Format.RESPONSES else "messages")


def test_counts_of_the_upstream() -> None:
    images = [as_data("")] * 101
    check_count(images, Format.CHAT, Format.CHAT)
    with pytest.raises(InvalidImage, match="101 > 100 maximum of the model's upstream"):
        check_count(images, Format.CHAT, Format.MESSAGES)
