"""Images of request bodies, and bodies with other images."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.core.formats import Format
from gateway.core.value import replace
from gateway.wire.images.parts import find_images, replace_images
from gateway.wire.registry import CODECS

URL = "https://example.org/a.png"
CHAT = {"type": "image_url", "image_url": {"url": URL, "detail": "low"}}
CHAT_TEXT = {"type": "image_url", "image_url": URL}
MESSAGES = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}}
MESSAGES_URL = {"type": "image", "source": {"type": "url", "url": URL}}
DOCUMENT = {"type": "document", "source": {"type": "content", "content": ["text", MESSAGES]}}
RESPONSES = {"type": "input_image", "image_url": URL, "detail": "high"}
SCREENSHOT = {"type": "computer_screenshot", "image_url": URL}
TEXT = {"type": "text", "text": "image"}


def chat(*messages: Any) -> dict[str, Any]:
    return {"messages": list(messages)}


BODIES: dict[str, tuple[Format, dict[str, Any], list[str]]] = {
    "chat": (
        Format.CHAT,
        chat(
            {"role": "user", "content": "Hello"},
            {"role": "user", "content": [TEXT, CHAT, CHAT_TEXT]},
            {"role": "tool", "tool_call_id": "a", "content": [CHAT]},
        ),
        [
            "messages.1.content.1.image_url.url",
            "messages.1.content.2.image_url",
            "messages.2.content.0.image_url.url",
        ],
    ),
    "messages": (
        Format.MESSAGES,
        chat(
            {"role": "user", "content": [MESSAGES, MESSAGES_URL]},
            {"role": "user", "content": [{"type": "tool_result", "content": [TEXT, MESSAGES]}]},
            {"role": "user", "content": [DOCUMENT]},
        )
        | {"system": [MESSAGES_URL]},
        [
            "system.0.source.url",
            "messages.0.content.0.source.data",
            "messages.0.content.1.source.url",
            "messages.1.content.0.content.1.source.data",
            "messages.2.content.0.source.content.1.source.data",
        ],
    ),
    "responses": (
        Format.RESPONSES,
        {
            "input": [
                {"role": "user", "content": [RESPONSES]},
                {"type": "function_call_output", "output": [RESPONSES]},
                {"type": "input_image", "file_id": "f"},
                {"type": "computer_call_output", "output": SCREENSHOT},
            ]
        },
        [
            "input.0.content.0.image_url",
            "input.1.output.0.image_url",
            "input.3.output.image_url",
        ],
    ),
}
NONE: list[tuple[Format, dict[str, Any]]] = [
    (Format.CHAT, {}),
    (Format.CHAT, {"messages": "image_url"}),
    (Format.CHAT, chat(1, [], {"content": 1}, {"content": ["image_url", {"type": "image_url"}]})),
    (Format.CHAT, chat({"content": [{"type": "image_url", "image_url": {"url": 1}}]})),
    (Format.CHAT, chat({"content": [RESPONSES, MESSAGES]})),
    (Format.MESSAGES, chat({"content": [{"type": "image", "source": {"type": "file"}}]})),
    (Format.RESPONSES, {"input": [{"content": [CHAT]}], "messages": [{"content": [RESPONSES]}]}),
]


@pytest.mark.parametrize("name", BODIES)
def test_images_are_found_with_their_paths(name: str) -> None:
    format, body, paths = BODIES[name]
    assert [image.path for image in find_images(body, format)] == paths


@pytest.mark.parametrize(("format", "body"), NONE)
def test_other_values_are_no_images(format: Format, body: dict[str, Any]) -> None:
    assert find_images(body, format) == []


def test_deep_nesting_is_not_followed() -> None:
    body: dict[str, Any] = {"content": [MESSAGES]}
    for _ in range(5000):
        body = {"type": "tool_result", "content": [body]}
    assert find_images(chat(body), Format.MESSAGES) == []


@pytest.mark.parametrize("name", BODIES)
def test_images_are_replaced(name: str) -> None:
    """The rest is as it was, and the body that the client sent is not touched."""
    format, body, _ = BODIES[name]
    before = repr(body)
    new = [replace(i, url=None, data="Qk0=", media_type="x/y") for i in find_images(body, format)]
    changed = replace_images(body, format, new)
    assert repr(body) == before
    found = find_images(changed, format)
    assert [image.position for image in found] == [image.position for image in new]
    for image in found:
        assert image.url == "data:x/y;base64,Qk0=" or (image.data, image.media_type) == (
            "Qk0=",
            "x/y",
        )
    assert repr(changed).count("low") == before.count("low")
    assert replace_images(body, format, []) is body


@pytest.mark.parametrize("name", BODIES)
def test_bodies_with_images_have_the_mark_of_their_format(name: str) -> None:
    format, body, _ = BODIES[name]
    assert CODECS[format].image_mark.decode() in repr(body).replace("'", '"')
