"""Responses in a conversation: its items precede the input, and input and output are added."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

from aiohttp import web

from gateway.admission.access import Permit
from gateway.core.formats import Format
from gateway.core.prompt import Prompt
from gateway.core.value import replace
from gateway.errors import InvalidRequest, RequestTooLarge
from gateway.server.conversation_state import CONVERSATIONS, Conversations
from gateway.server.http.request_body import adopt
from gateway.server.record.exchange import EXCHANGE, Exchange
from gateway.server.stored_replies import ResolvedRequest, names_items, resolve
from gateway.store.conversations import pack_items
from gateway.store.records import CONTINUABLE, Conversation, ConversationItem
from gateway.wire.codec import Codec
from gateway.wire.json_fields import Payload
from gateway.wire.responses.conversation import with_ids
from gateway.wire.responses.stored import (
    input_items,
    output_items,
    read_response,
    terminal_event,
)


class ConversationKeeper:
    """Adds input and output to a conversation once the reply is complete; until then no other
    request can extend it."""

    def __init__(
        self,
        exchange: Exchange,
        conversations: Conversations,
        conversation: Conversation,
        sent: Sequence[Any],
    ) -> None:
        """`sent` is the input of the request; `known` are the ids of the items before it."""
        self._exchange, self._conversations = exchange, conversations
        self._conversation, self._sent = conversation, sent
        self.known: Set[str] = frozenset()
        self._is_extended = False

    def keep(self, reply: bytes, status: str) -> None:
        if self._is_extended or status not in CONTINUABLE:
            return
        self._is_extended = True
        suffix = self._exchange.id.partition("_")[2]
        long_texts = self._exchange.long_texts
        restore = long_texts.restore if long_texts is not None else None

        def items() -> list[ConversationItem]:
            replied = output_items(read_response(reply))
            added = with_ids([*self._sent, *replied], suffix, "input", self.known)
            return pack_items(self._conversation, added, restore)

        self._conversations.extend(self._conversation, items)

    def keep_stream(self, frames: bytes) -> None:
        if (event := terminal_event(frames)) is not None:
            self.keep(*event)

    def close(self) -> None:
        if not self._is_extended:
            self._is_extended = True
            self._conversations.unlock(self._conversation)


async def resolve_state(
    request: web.Request,
    permit: Permit,
    codec: Codec,
    raw_body: bytes,
    body: Payload,
    prompt: Prompt,
    *,
    extend: bool = True,
) -> ResolvedRequest:
    """The request with all that it continues or names: a stored response, items, a conversation.
    `extend`: its reply will be added to the conversation, which nobody else can do until the
    exchange ends.

    Raises `ConversationNotFound`, `ConversationLocked` or as `resolve`.
    """
    resolved = ResolvedRequest(raw_body=raw_body, body=body, prompt=prompt, own=raw_body)
    named = body.get("conversation") if codec.format is Format.RESPONSES else None
    if named is not None:
        _check(permit, named, prompt)
    if prompt.previous_response_id is not None or names_items(body):
        resolved = await resolve(request[EXCHANGE], permit, codec, raw_body, body, prompt)
    if named is None:
        return resolved
    id = named["id"] if isinstance(named, dict) else named
    return await _with_conversation(request, permit, codec, resolved, id, extend=extend)


def _check(permit: Permit, named: Any, prompt: Prompt) -> None:
    id = named.get("id") if isinstance(named, dict) else named
    if not isinstance(id, str) or not id:
        reason = "Input should be the id of a conversation"
    elif prompt.previous_response_id is not None:
        reason = "it cannot be combined with previous_response_id"
    elif not permit.stores_replies:
        reason = "conversations are not stored for this key"
    else:
        return
    raise InvalidRequest(f"conversation: {reason}", param="conversation")


async def _with_conversation(
    request: web.Request,
    permit: Permit,
    codec: Codec,
    resolved: ResolvedRequest,
    id: str,
    *,
    extend: bool,
) -> ResolvedRequest:
    exchange, conversations = request[EXCHANGE], request.app[CONVERSATIONS]
    conversation = await conversations.find(permit.token.id, id)
    body, sent = resolved.body, input_items(resolved.body)
    if extend:
        await conversations.lock(conversation)
        exchange.storing = ConversationKeeper(exchange, conversations, conversation, sent)
        conversation = await conversations.find(permit.token.id, id)  # as it is now
    size = len(resolved.raw_body) + conversation.text_size
    if size > exchange.snapshot.config.server.max_body:
        raise RequestTooLarge(
            f"The conversation '{id}' and the input have {size:,} bytes together: start a new one",
            param="conversation",
        )
    exchange.book_body(conversation.text_size)
    items = await conversations.items(conversation)
    if isinstance(exchange.storing, ConversationKeeper):
        exchange.storing.known = {item["id"] for item in items}
    merged = {name: value for name, value in body.items() if name != "conversation"}
    merged["input"] = [*items, *sent]
    raw_body = await adopt(exchange, merged, size)
    prompt = await exchange.run_in_thread(codec.parse_prompt, merged)
    return ResolvedRequest(
        raw_body=raw_body,
        body=merged,
        prompt=replace(prompt, conversation_id=id),
        own=raw_body,  # the conversation may have changed when the response is continued
    )
