"""The official client library accumulates the same message or error from an encoded stream."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import pytest

from gateway.core.events import Begin, Fail
from gateway.core.formats import Format
from gateway.core.reply import collect_reply
from gateway.errors import ServiceUnavailable
from gateway.wire.codec import ReplyMetadata
from gateway.wire.messages import CODEC
from tests.support.fixture_json import from_json, read_events
from tests.support.paths import FIXTURES
from tests.wire.stream_cases import param_id, prompt

PROMPT = prompt(Format.MESSAGES, "shown")
METADATA = ReplyMetadata(reply_id="0123", created=1, origin="here", input_tokens=24)
BETA = {"compaction", "mcp_call"}
"""Cases with blocks that the library knows in its beta part only."""
HINGES = [
    path
    for pattern in ("streams/*/events.json", "quirks/*/*/events.json")
    for path in sorted(FIXTURES.glob(pattern))
    if path.parent.name not in BETA
]


class Library:
    """The stock library, answered with whatever stream it is given."""

    def __init__(self) -> None:
        self._raw = b""
        self._transport = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self._client = anthropic.Anthropic(api_key="k", max_retries=0, http_client=self._transport)

    def message(self, raw: bytes) -> Any:
        """The message that it accumulates."""
        self._raw = raw
        with self._client.messages.stream(
            model="shown", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            return stream.get_final_message().to_dict()

    def close(self) -> None:
        self._transport.close()

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        head = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=head, content=self._raw)


@pytest.fixture(scope="module")
def library() -> Iterator[Library]:
    with closing(Library()) as library:
        yield library


def _case(value: object) -> str | None:
    if not isinstance(value, Path):
        return None
    return "-".join(value.parts[-3:-1]) if value.parts[-4] == "quirks" else param_id(value)


@pytest.mark.parametrize("path", HINGES, ids=_case)
def test_client_library_accumulates_the_complete_reply(library: Library, path: Path) -> None:
    events = from_json(read_events(path))
    encoder = CODEC.encoder(PROMPT, METADATA)
    raw = b"".join(encoder.encode(event) for event in events if not isinstance(event, Fail))
    if isinstance(events[-1], Fail):
        with pytest.raises(anthropic.APIStatusError, match="Service unavailable"):
            library.message(raw + encoder.encode_error(ServiceUnavailable()))
        return
    assert isinstance(events[0], Begin)
    body, _ = CODEC.render_reply(collect_reply(events), PROMPT, METADATA)
    message = library.message(raw)
    for field in ("id", "model", "content", "stop_reason", "stop_sequence"):
        assert _without_nulls(message[field]) == _without_nulls(body[field])
    for count, tokens in body["usage"].items():
        if count != "cache_creation":  # the library reads it from the first event alone
            assert _without_nulls(message["usage"][count]) == tokens


def _without_nulls(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(item) for key, item in value.items() if item is not None}
