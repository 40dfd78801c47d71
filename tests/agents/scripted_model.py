"""A model in three formats that knows what it is sent and nothing else, and asks for what it is
told to: the upstream of real agents.

Whatever it has been told once, a fact is to be in every later request, also after compactions,
which it writes from what it sees.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.core.events import Usage
from gateway.core.formats import Format
from gateway.core.parts import Part, ProviderData, Text, ToolCall, UnknownPart
from tests.support.searches import model_reply
from tests.support.upstream import ReceivedRequest, Response, json_response

SHOW_NOTE: Final = "cat note-{call}.txt"
_FACT: Final = re.compile(r"fact-[a-z]+-\d+")
_SUMMARY_REQUESTS: Final = (
    "too long to go on with",  # the gateway
    "CONTEXT CHECKPOINT COMPACTION",  # Codex
    "create a detailed summary",  # Claude Code
)
_SHELLS: Final = {"exec_command": "cmd", "Bash": "command"}
"""Tools that run commands, and their argument."""


@dataclass
class ScriptedModel:
    """`commands` are those of single calls, by number; others show a note. `refused` has the keys
    of accounts and the status with which they are refused. `left` is how many calls it asks for
    before it answers with text alone."""

    commands: Mapping[int, str]
    refused: dict[str, int] = field(default_factory=dict)
    left: int = 0
    turns: int = 0
    calls: int = 0
    compactions: int = 0
    refusals: int = 0
    told: set[str] = field(default_factory=set)
    forgotten: list[str] = field(default_factory=list)
    """What a request lacks of what was told before."""
    _replies: int = 0
    _states: dict[str, str] = field(default_factory=dict)
    """Compactions that only this upstream can read."""

    async def reply(self, request: ReceivedRequest) -> Response:
        if not request.generates:
            return json_response({"input_tokens": len(request.body) // 4})
        if status := self.refused.get(request.key):
            self.refusals += 1
            return _refusal(request.format, status)
        text = request.body.decode()
        for state in filter(text.__contains__, self._states):
            text += self._states[state]
        known = set(_FACT.findall(text))
        shell = _shell(request)
        latest = _latest(request)
        is_trigger = '"compaction_trigger"' in latest
        if is_trigger or any(each in latest for each in _SUMMARY_REQUESTS):
            self.compactions += 1
            return self._summary(request, known, is_item=is_trigger)
        if shell is None:
            return self._answer(request, Text("Fine."))
        if lost := self.told - known:
            self.forgotten.append(f"turn {self.turns} lacks {sorted(lost)}")
        self.told |= known
        self.turns += 1
        decision = f"fact-decision-{self.turns}"
        self.told.add(decision)
        parts: list[Part] = [Text(f"Decided: {decision}.")]
        if self.left:
            self.left -= 1
            self.calls += 1
            command = self.commands.get(self.calls, SHOW_NOTE)
            arguments = {_SHELLS[shell.rpartition("__")[2]]: command.format(call=self.calls)}
            parts.append(ToolCall(f"call_{self.calls}", shell, orjson.dumps(arguments).decode()))
        return self._answer(request, *parts)

    def _summary(self, request: ReceivedRequest, known: set[str], *, is_item: bool) -> Response:
        text = " ".join(["Known so far:", *sorted(known)])
        if not is_item:
            return self._answer(request, Text(f"<summary>{text}</summary>"))
        state = f"state-{self.compactions}-of-{request.key}"
        self._states[state] = text
        fields = {"type": "compaction", "id": f"cmp_{self.compactions}", "encrypted_content": state}
        return self._answer(
            request, UnknownPart("compaction", ProviderData(Format.RESPONSES, fields))
        )

    def _answer(self, request: ReceivedRequest, *parts: Part) -> Response:
        usage = Usage(input_tokens=len(request.body) // 4, output_tokens=20)
        self._replies += 1
        reply = model_reply(
            request.format,
            *parts,
            usage=usage,
            stream=request.streamed,
            id=f"up{self._replies}",
        )
        # Ids of an upstream: those that a gateway makes do not return to it.
        return reply.with_changes(chunks=(reply.body.replace(b"_gw_", b"_"),))


def _refusal(format: Format, status: int) -> Response:
    error: dict[str, Any] = {"type": "rate_limit_error", "message": "Slow down."}
    if status == 401:
        error = {"type": "authentication_error", "message": "The key is revoked."}
    body = {"type": "error"} if format is Format.MESSAGES else {}
    return json_response(body | {"error": error}, status)


def _latest(request: ReceivedRequest) -> str:
    """What follows the model's last turn, as JSON."""
    turns = request.fields.get("input") or request.fields.get("messages") or []
    ours = [at for at, turn in enumerate(turns) if turn.get("role") == "assistant"]
    return orjson.dumps(turns[max(ours, default=-1) + 1 :]).decode()


def _tool_names(tools: Any) -> Iterator[str]:
    for tool in tools or ():
        yield (tool.get("function") or tool).get("name", "")


def _shell(request: ReceivedRequest) -> str | None:
    """The name of its tool that runs commands."""
    names = _tool_names(request.fields.get("tools"))
    return next((name for name in names if name.rpartition("__")[2] in _SHELLS), None)
