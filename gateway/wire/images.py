"""Where the bytes of images and files are. It must not look into them, nor fetch any."""

from __future__ import annotations

from gateway.core.parts import Source


def parse_source(url: str) -> Source:
    """A web address, or the payload of a data URL; a data URL that is not base64 stays one."""
    if not url.startswith("data:"):
        return Source(url=url)
    head, comma, data = url.partition(",")
    media_type, _, encoding = head[5:].rpartition(";")
    if not comma or encoding != "base64":
        return Source(url=url)
    return Source(data=data, media_type=media_type.partition(";")[0] or None)
