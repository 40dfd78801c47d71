"""Steps that several clients have, and what they say to the model."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway.core.formats import Format
from gateway.doctor.answer import Answer, part
from gateway.doctor.remedies import NO_TOOL_CALL
from gateway.doctor.replay import UNKNOWN_MODEL, Replay, Step, StepFailed
from gateway.doctor.reply import Call, Reply

HELLO: Final = "Say hello in one word."
COUNT: Final = "Count from 1 to 20, with a comma and a space between the numbers, nothing else."
SHORT: Final = 64
MEDIUM: Final = 512
LONG: Final = 1500
"""Output tokens, the last one with thinking."""

BAD_KEY: Final = "sk-doctor-not-a-key"
_WHOLE_REPLY: Final = 30
"""Characters of text that no streaming upstream sends in one piece."""

PATHS: Final = {
    Format.CHAT: "/v1/chat/completions",
    Format.MESSAGES: "/v1/messages",
    Format.RESPONSES: "/v1/responses",
}
READ_TOOL: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "Path of the file."}},
    "required": ["path"],
    "additionalProperties": False,
}
WORD_SCHEMA: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"word": {"type": "string"}},
    "required": ["word"],
    "additionalProperties": False,
}
RESULT: Final = "1\thello from notes.txt"


def call_prompt(tool: str) -> str:
    return f"Use the tool {tool} to read the file notes.txt, then say what is in it."


def take(replay: Replay, reply: Reply) -> None:
    replay.faults += reply.faults


def expect_text(replay: Replay, reply: Reply) -> None:
    take(replay, reply)
    if not reply.text and not replay.faults:
        replay.fault(
            f"the reply has no text (it ended with {reply.stop})",
            "the model may have spent its tokens on thinking: run it again with another model",
        )


def expect_pieces(replay: Replay, reply: Reply) -> None:
    """A real stream comes in pieces."""
    expect_text(replay, reply)
    if reply.deltas == 1 and len(reply.text) > _WHOLE_REPLY:
        replay.warn(
            f"the text of {len(reply.text)} characters came in one piece: the upstream does not "
            "stream, people wait for the whole reply",
            "nothing breaks; if the upstream can stream, `stream: force` or another endpoint of it",
        )


def expect_call(replay: Replay, reply: Reply, tool: str) -> Call:
    """Raises StepFailed without a call of the tool."""
    take(replay, reply)
    call = next((each for each in reply.calls if each.name == tool), None)
    if call is None:
        if not replay.faults:
            said = f": it said {reply.text[:60]!r}" if reply.text else ""
            names = ", ".join(each.name for each in reply.calls)
            called = f", but {names}" if names else ""
            replay.fault(f"the model did not call the tool {tool}{called}{said}", NO_TOOL_CALL)
        raise StepFailed
    return call


def models_step(query: str = "") -> Step:
    async def run(replay: Replay) -> None:
        answer = await replay.send("GET", f"/v1/models{query}")
        await replay.expect_ok(answer, "the list of models")
        data = answer.json.get("data")
        ids = [part(each, "id") for each in data] if isinstance(data, list) else []
        if replay.model and replay.model not in ids:
            replay.fault(
                f"the list has no {replay.model}", "gateway group show GROUP shows its patterns"
            )
        if not all(part(each, "object") == "model" for each in data or ()):
            replay.fault("an entry of the list is no object of type model")

    return Step("list of models", run)


def _is_error_of(format: Format, answer: Answer) -> bool:
    error = answer.json.get("error")
    if not isinstance(error, dict) or not error.get("message"):
        return False
    return format is not Format.MESSAGES or answer.json.get("type") == "error"


async def _expect_refusal(replay: Replay, answer: Answer, what: str) -> None:
    if answer.status == 200:
        replay.fault(f"{what} was accepted", "is that the right gateway? Check --base-url")
    elif not _is_error_of(replay.profile.format, answer):
        replay.fault(
            f"{what}: the error has not the envelope of the format: {answer.body[:80]!r}",
            "a proxy in between answers itself: ask the gateway's own address",
        )
    elif answer.headers.get("x-should-retry") != "false":
        replay.warn(
            f"{what}: x-should-retry is missing, clients try again for minutes",
            "a proxy in between removes headers of answers",
        )


def bad_key_step(body: Callable[[str], dict[str, Any]]) -> Step:
    """`body` is a minimal request for a model."""

    async def run(replay: Replay) -> None:
        path = PATHS[replay.profile.format]
        answer = await replay.post(path, body(replay.model or UNKNOWN_MODEL), key=BAD_KEY)
        await _expect_refusal(replay, answer, "an invalid key")
        if answer.status not in (401, 200):
            text = f"an invalid key got {answer.status} {answer.error}, expected was 401"
            replay.fault(text, "ask the gateway's own address, without a proxy")

    return Step("error: invalid key", run)


def unknown_model_step(body: Callable[[str], dict[str, Any]]) -> Step:
    async def run(replay: Replay) -> None:
        answer = await replay.post(PATHS[replay.profile.format], body(UNKNOWN_MODEL))
        await _expect_refusal(replay, answer, "an unknown model")

    return Step("error: unknown model", run)


async def two_turns(
    replay: Replay,
    first: Callable[[], Awaitable[Reply]],
    tool: str,
    second: Callable[[Reply, Call], Awaitable[Reply]],
) -> None:
    """A call and, with its result, the rest of the turn."""
    reply = await first()
    call = expect_call(replay, reply, tool)
    following = await second(reply, call)
    expect_text(replay, following)
