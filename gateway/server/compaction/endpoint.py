"""`POST /v1/responses/compact`: the compaction of a conversation, without a reply to it.

Upstreams get it as a responses request whose last item wants the compaction, as coding agents send
it: fewer have the endpoint.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import replace as replace_fields
from typing import Any, Final

import orjson

from gateway.core.events import Usage
from gateway.core.prompt import Prompt
from gateway.core.reply import Reply
from gateway.server.compaction.conversation import FIELD, ITEM, TRIGGER
from gateway.server.compaction.stage import open_summaries, replace_body
from gateway.server.proxy.attempt import malformed_reply
from gateway.server.proxy.incoming_request import IncomingRequest, Stage
from gateway.wire import responses
from gateway.wire.codec import ReplyMetadata
from gateway.wire.json.fields import Payload, as_object, lenient_objects
from gateway.wire.responses.stored import input_items
from gateway.wire.responses.usage import parse_usage, render_usage

_LEFT_OUT: Final = ("background", "conversation", "max_output_tokens", "stream", FIELD)
"""Fields that are about a reply."""


def _parse(body: object) -> Prompt:
    """The prompt of a request whose input may be missing. Raises `InvalidRequest`."""
    fields = {name: each for name, each in as_object(body, "").items() if name not in _LEFT_OUT}
    if fields.get("input") is None:
        fields["input"] = []
    return responses.CODEC.parse_prompt(fields)


async def request_compaction(incoming: IncomingRequest) -> None:
    """Makes it a responses request. Raises as `open_summaries`."""
    body = {name: each for name, each in incoming.body.items() if name not in _LEFT_OUT}
    items = [*input_items(body), {"type": TRIGGER}]
    await replace_body(incoming, body | {"input": items, "store": False})
    await open_summaries(incoming)


def _compaction(response: Payload) -> Payload:
    """The object with the compaction of a response. Raises `AttemptFailed` if it has none."""
    items = [item for item in lenient_objects(response.get("output")) if item.get("type") == ITEM]
    if not items:
        raise malformed_reply("the upstream has not compacted the conversation")
    return {
        "id": response["id"],
        "object": "response.compaction",
        "created_at": response["created_at"],
        "output": items,
        **render_usage(parse_usage(response) or Usage()),
    }


def _render_reply(
    reply: Reply, prompt: Prompt, metadata: ReplyMetadata
) -> tuple[Payload, Set[str]]:
    response, dropped = responses.CODEC.render_reply(reply, prompt, metadata)
    return _compaction(response), dropped


def _patch_reply(body: bytes, data: dict[str, Any], prompt: Prompt) -> bytes:
    return orjson.dumps(_compaction(data))


COMPACT_CODEC: Final = replace_fields(
    responses.CODEC,
    endpoint="/v1/responses/compact",
    parse_prompt=_parse,
    render_reply=_render_reply,
    patch_reply=_patch_reply,
    echo=None,
)
REQUEST_COMPACTION: Final = Stage(request_compaction)
