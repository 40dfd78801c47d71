"""Nothing that a stock library can send is lost silently: each field, block, item and tool of its
types arrives at the upstream, is named as dropped, or is refused.

Each change of `TypeTree` is sent twice, before and after it. If the upstream gets the same both
times and nothing is named, the change is lost, unless `NOT_FOR_THE_MODEL` says why that is right.
"""

from __future__ import annotations

import re
from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import orjson
import pytest
from anthropic.types.beta.message_create_params import MessageCreateParamsNonStreaming
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming

from gateway.core.formats import Format
from tests.conformance.pairs import Clients, Pair
from tests.conformance.type_tree import Change, TypeTree
from tests.support.gateway import PATHS
from tests.support.image_files import encoded, png
from tests.support.upstream import (
    ReceivedRequest,
    Response,
    ScriptedUpstream,
    fixture_reply,
)

pytestmark = pytest.mark.asyncio(loop_scope="session")

PARTS: Final = 12
"""The changes of a pair are in so many cases."""
FORMATS: Final = {path: format for format, path in PATHS.items()}
ROOTS: Final = {
    Format.CHAT: CompletionCreateParamsNonStreaming,
    Format.MESSAGES: MessageCreateParamsNonStreaming,
    Format.RESPONSES: ResponseCreateParamsNonStreaming,
}
_PDF: Final = tuple(b64encode(b"%PDF-1.4 " + text).decode() for text in (b"red", b"blue"))
_SCHEMAS: Final = ({"type": "object"}, {"type": "object", "properties": {"red": {}}})
VALUES: Final[dict[str, tuple[Any, Any]]] = {
    "max_tokens": (4000, 3000),
    "max_output_tokens": (4000, 3000),
    "max_completion_tokens": (4000, 3000),
    "budget_tokens": (1024, 2048),
    "url": ("https://example.com/a.png", "https://example.com/b.png"),
    "image_url": ("https://example.com/a.png", "https://example.com/b.png"),
    "file_url": ("https://example.com/a.pdf", "https://example.com/b.pdf"),
    "file_data": tuple(f"data:application/pdf;base64,{data}" for data in _PDF),
    "BetaBase64ImageSourceParam.data": (encoded(png()), encoded(png(3))),
    "BetaBase64PDFSourceParam.data": _PDF,
    "name": ("lamp", "lamp_two"),
    "BetaToolChangeToolReferenceParam.name": ("clock", "watch"),
    "BetaToolUseBlockParam.id": ("call_1", "call_3"),
    "BetaToolUseBlockParam.name": ("clock", "lamp"),
    "BetaToolChoiceToolParam.name": ("clock", "watch"),
    "ResponseFunctionToolCallParam.name": ("clock", "lamp"),
    "ResponseFunctionToolCallParam.call_id": ("call_1", "call_3"),
    "ToolChoiceFunctionParam.name": ("clock", "watch"),
    "ChatCompletionNamedToolChoiceParam.name": ("clock", "watch"),
    "tool_use_id": ("call_2", "call_1"),
    "tool_call_id": ("call_2", "call_1"),
    "call_id": ("call_2", "call_1"),
    "arguments": ("{}", '{"zone":"UTC"}'),
    "input_schema": _SCHEMAS,
    "parameters": _SCHEMAS,
    "schema": _SCHEMAS,
}
_FILE: Final = {"file_data": VALUES["file_data"][0], "filename": "a.pdf"}
_IMAGE: Final = {"image_url": "https://example.com/a.png"}
_TEXT: Final = {"type": "output_text", "text": "red", "annotations": []}
_TOOL: Final = {"type": "function", "name": "lamp", "parameters": _SCHEMAS[0], "strict": False}
NEEDED: Final[dict[str, dict[str, Any]]] = {
    "FileFile": _FILE,
    "ResponseInputFileParam": _FILE,
    "ResponseInputFileContentParam": _FILE,
    "ResponseInputImageParam": _IMAGE,
    "ResponseInputImageContentParam": _IMAGE,
    "BetaBase64ImageSourceParam": {"media_type": "image/png"},
    "BetaCompactionBlockParam": {"content": "red"},
    "BetaSystemMessageParam": {"output_config": {"effort": "low"}},
    "ChatCompletionAssistantMessageParam": {"content": "red"},
    "Message": {"content": [{"type": "input_text", "text": "red"}]},
    "ResponseOutputMessageParam": {"content": [_TEXT]},
    "ResponseReasoningItemParam": {"summary": [{"type": "summary_text", "text": "red"}]},
    "AdditionalTools": {"tools": [_TOOL]},
    "NamespaceToolParam": {"tools": [_TOOL]},
    "ToolSearchOutputNamespaceToolParam": {"tools": [_TOOL]},
    "UserLocation": {"city": "Oslo"},
    "WebSearchOptionsUserLocation": {"approximate": {"city": "Oslo"}},
    "BetaUserLocationParam": {"city": "Oslo"},
}

NOT_FOR_THE_MODEL: Final = {
    r"\)\.(id|status|type)\b[^.(]*$": "bookkeeping of items, which models do not read",
    r"ToolResultBlockParam\)\.tool_use_id\b": "the text of a result names its call, if it is there",
    r"\(ResponseCodeInterpreterToolCallParam\)\.container_id\b": "where a program of the past ran",
    r"\.caller\b|Caller": "whether a program made the call; its arguments are the same",
    r"\.logprobs\[|Logprob": "of a text that was generated already",
    r"\(ShellCall\w*\)\.(max_output_length|environment)\b": "how a call of the past was run",
    r"\(FunctionShellToolParam\)\.environment=LocalEnvironmentParam$": "the client runs it anyway",
    r"^\(\w+\)\.model\b": "names the channel here",
    r"^\(\w+\)\.(betas|user_profile_id|workspace_id)\b": "sent as a header, not in a body",
    r"^\(\w+\)\.stream=False": "what it is without it",
    r"^\(\w+\)\.(background|store|stream_options|thread|prompt_cache_key)\b": "done by the gateway",
    r"\.include_(obfuscation|usage)": "done by the gateway",
    r"^\(\w+\)\.stop(_sequences)?\b": "done by the gateway where the upstream has none",
    r"include\[.*reasoning\.encrypted_content": "done by the gateway",
    r"\(BetaThinkingConfig\w+\)\.display\b": "done by the gateway",
    r"\(Reasoning\)\.(generate_)?summary\b": "elsewhere all reasoning is shown",
    r"BetaBase64ImageSourceParam\)\.media_type": "the file says what it is",
    r"Message\)\.role=(system|developer)|<ChatCompletionSystemMessageParam>": "one role",
    r"Refusal(Part)?Param>": "a text elsewhere",
    r"\.clear_at=never": "what it is without it",
    r"\.(parameters=|schema=|input_schema<dict>)": "a schema that says nothing",
    r"=(ResponseFormatText|CustomFormatText|Text)$": "what it is without it",
    r"\((FileFile|ResponseInput\w+)\)\.file_(id|url)\b": "beside the file itself, which is sent",
    r"^\(\w+\)\.modalities\[": "text, which it is without it",
    r"BetaClearThinking|BetaThinkingTurnsParam": "there is nothing to clear without thinking",
    r"content\[BetaRequestToolAdditionBlockParam": "of a tool that is there already",
    r"input\[(ResponseConfigurationUpdateItemParamParam|\]<Message>)": "says nothing or the same",
    r"BetaCompact20260112|ContextManagement\b": "done by the gateway once the prompt is long",
    r"input\[CompactionTrigger\]": "says nothing before the end of the input",
    r"FunctionCallOutput\)\.namespace": "bookkeeping of items, which models do not read",
    r"ToolSearch\w+\)\.execution\b": "who ran a search of the past",
    r"JSONSchema\w*\)\.(name|strict)": "messages has one kind of schema: strict, without a name",
}
"""What may be the same for the upstream, by the end of `Change.where`."""

REFUSED: Final = r"\.(conversation|previous_response_id|thread)\b|ItemReference|Allowed"
"""What is refused natively: ids of nothing, and tools for a thread that has its own."""


def surrounded(format: Format, model: str, body: dict[str, Any]) -> dict[str, Any]:
    """A conversation around what the body says: with a call `call_2` before it, to which results
    may belong, and with two tools."""
    clock = {"name": "clock", "description": "The time."}
    names = ("clock", "watch")
    first, last = {"role": "user", "content": "Hello"}, {"role": "user", "content": "And then?"}
    match format:
        case Format.CHAT:
            function = {"name": "clock", "arguments": "{}"}
            calls = [{"id": "call_2", "type": "function", "function": function}]
            turn = {"role": "assistant", "content": "I look.", "tool_calls": calls}
            tools = [{"type": "function", "function": {**clock, "name": name}} for name in names]
        case Format.MESSAGES:
            use = {"type": "tool_use", "id": "call_2", "name": "clock", "input": {}}
            turn = {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]}
            tools = [{**clock, "name": name, "input_schema": _SCHEMAS[0]} for name in names]
        case Format.RESPONSES:
            call = {"call_id": "call_2", "name": "clock", "arguments": "{}"}
            turn = {"type": "function_call"} | call
            tools = [{"type": "function", **clock, "name": name} for name in names]
    turns = "input" if format is Format.RESPONSES else "messages"
    if isinstance(inner := body.get(turns, []), list):
        inner = [first, turn, *inner, last]
    return body | {"model": model, turns: inner, "tools": [*tools, *body.get("tools", ())]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What the upstream got, and what the client was told: of a success the names of what was
    dropped, else the error."""

    status: int
    told: str
    upstream: bytes

    @property
    def dropped(self) -> frozenset[str]:
        return frozenset(filter(None, self.told.split(", ")))


@cache
def changes_of(client: Format) -> tuple[Change, ...]:
    return tuple(TypeTree(ROOTS[client], VALUES, NEEDED).changes())


async def answer(request: ReceivedRequest) -> Response:
    return fixture_reply(FORMATS[request.path])


class Sender:
    """Sends each body once."""

    def __init__(self, clients: Clients, upstream: ScriptedUpstream, pair: Pair) -> None:
        self._gateway, self._upstream, self._pair = clients.gateway, upstream, pair
        self._outcomes: dict[bytes, Outcome] = {}

    async def send(self, body: dict[str, Any]) -> Outcome:
        data = orjson.dumps(surrounded(self._pair.client, self._pair.model, body))
        if data not in self._outcomes:
            self._upstream.requests.clear()
            answer = await self._gateway.post(self._pair.client, data)
            got = [request.body for request in self._upstream.requests]
            told = answer.headers.get("x-gateway-dropped", "")
            if answer.status != 200:
                told = orjson.loads(await answer.read())["error"]["message"]
            self._outcomes[data] = Outcome(answer.status, told, b"".join(got))
        return self._outcomes[data]


@pytest.mark.one_in(PARTS)
@pytest.mark.slow("sends some thousand requests")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", range(PARTS))
async def test_every_field_arrives_or_is_named_or_refused(
    pair: Pair, part: int, scripted: ScriptedUpstream, scripted_pairs: Clients
) -> None:
    scripted.respond_with(answer)
    sender = Sender(scripted_pairs, scripted, pair)
    nothing = (await sender.send({"max_tokens": 4000})).dropped
    lost = []
    for change in changes_of(pair.client)[part::PARTS]:
        before, after = await sender.send(change.before), await sender.send(change.after)
        assert {before.status, after.status} <= {200, 400, 404}, (change, before, after)
        if pair.native and after.status != 200 and not re.search(REFUSED, change.where):
            lost.append(f"{change.where}: {after.told}")
        if after.status != 200 or before != after or after.dropped - nothing:
            continue
        if not any(re.search(pattern, change.where) for pattern in NOT_FOR_THE_MODEL):
            lost.append(change.where)
    assert not lost, "\n".join(lost)
