"""The images of a request body: where they are, and the body with other images in their places.

It reads the JSON of all three formats; what is no image of its format is left to `parse_prompt`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from gateway.core.formats import Format
from gateway.core.value import value
from gateway.wire.json.fields import Payload, join_path

Position = tuple[str | int, ...]
"""Keys and list positions from the body to a part."""

ESCAPED_ASCII: Final = rb"\u00"
"""A body that has it may contain anything in another spelling."""

_MAX_NESTING: Final = 4
"""Lists within lists: messages, their parts, a tool's result and its parts."""
_LISTS: Final = ("content", "output")


@value(kw_only=True)
class ImagePart:
    """An image of a request at `position`, the text in its field `field`: `url` is as sent, also a
    data URI; `data` is base64 of `media_type`. Either `url` or `data` is set. `changed`: the body
    has something else in its place; `animated`: a GIF of several frames."""

    position: Position
    field: str
    url: str | None = None
    data: str | None = None
    media_type: str | None = None
    changed: bool = False
    animated: bool = False

    @property
    def path(self) -> str:
        """The path as errors name it: `messages.0.content.1.image_url.url`."""
        path = ""
        for name in (*self.position, self.field):
            path = join_path(path, name)
        return path


_Read = Callable[[Payload, Position], ImagePart | None]


def _read_chat(part: Payload, at: Position) -> ImagePart | None:
    match part:
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return ImagePart(position=at, field="image_url.url", url=url)
        case {"type": "image_url", "image_url": str(url)}:
            return ImagePart(position=at, field="image_url", url=url)
        case _:
            return None


def _read_messages(part: Payload, at: Position) -> ImagePart | None:
    match part:
        case {"type": "image", "source": {"type": "base64", "data": str(data)} as source}:
            label = source.get("media_type")
            return ImagePart(position=at, field="source.data", data=data, media_type=label)
        case {"type": "image", "source": {"type": "url", "url": str(url)}}:
            return ImagePart(position=at, field="source.url", url=url)
        case _:
            return None


def _read_responses(part: Payload, at: Position) -> ImagePart | None:
    match part:
        case {"type": "input_image", "image_url": str(url)}:
            return ImagePart(position=at, field="image_url", url=url)
        case {"type": "computer_call_output", "output": {"image_url": str(url)}}:
            return ImagePart(position=(*at, "output"), field="image_url", url=url)
        case _:
            return None


_FORMATS: Final[dict[Format, tuple[tuple[str, ...], _Read]]] = {
    Format.CHAT: (("messages",), _read_chat),
    Format.MESSAGES: (("system", "messages"), _read_messages),
    Format.RESPONSES: (("input",), _read_responses),
}


def find_images(body: Payload, format: Format) -> list[ImagePart]:
    """Finds the images, in the order of the body."""
    names, read = _FORMATS[format]
    return [image for name in names for image in _find(body.get(name), (name,), read, 0)]


def _find(items: Any, at: Position, read: _Read, nesting: int) -> Iterator[ImagePart]:
    if not isinstance(items, list) or nesting == _MAX_NESTING:
        return
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            continue
        if "type" in item and (image := read(item, (*at, index))) is not None:
            yield image
        for name in _LISTS:
            if isinstance(item.get(name), list):
                yield from _find(item[name], (*at, index, name), read, nesting + 1)
        match item.get("source"):
            case {"content": list(parts)}:  # of a document
                yield from _find(parts, (*at, index, "source", "content"), read, nesting + 1)
            case _:
                pass


def replace_images(body: Payload, format: Format, images: Iterable[ImagePart]) -> Payload:
    """A copy of the body with these data in the images' positions; the rest is shared."""
    for image in images:
        body = _replace(body, image.position, image, format)
    return body


def _replace(container: Any, position: Position, image: ImagePart, format: Format) -> Any:
    if not position:
        return container | _fields(container, image, format)
    first, *rest = position
    copied = container.copy()
    copied[first] = _replace(container[first], tuple(rest), image, format)
    return copied


def _fields(part: Payload, image: ImagePart, format: Format) -> Payload:
    """Returns the new fields of a part."""
    if format is Format.MESSAGES:
        source = {"type": "base64", "media_type": image.media_type, "data": image.data}
        return {"source": source}
    url = f"data:{image.media_type};base64,{image.data}"
    if format is Format.CHAT and isinstance(part["image_url"], dict):
        return {"image_url": part["image_url"] | {"url": url}}
    return {"image_url": url}
