"""What a client expects of an answer: the names that `expect` of a request can have.

A check gets the request, the model, the answer, and the reply in which it notes faults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.doctor.clients.profile import Request
from gateway.doctor.clients.remedies import NO_COMPACTION, NO_TOOL_CALL, SEE_LOG
from gateway.doctor.clients.reply import Answer, Call, Reply, objects_at, part, text_at

_WHOLE_REPLY: Final = 30
"""Characters of text that no streaming upstream sends in one piece."""

Check = Callable[[Request, str, Answer, Reply], None]


class StepEnded(Exception):
    """The rest of the step makes no sense; a fault, if it is one, has been noted."""


def _accept(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    """Accept anything."""


def _expect_rejection(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if answer.status == 200:
        reply.fault(f"{request.what} was accepted", "is that the right gateway? Check --base-url")
    elif not _is_error_of(request.path, answer):
        reply.fault(
            f"{request.what}: the error has not the envelope of the format: {answer.body[:80]!r}",
            "a proxy in between answers itself: ask the gateway's own address",
        )
    elif answer.headers.get("x-should-retry") != "false":
        reply.warn(
            f"{request.what}: x-should-retry is missing, clients try again for minutes",
            "a proxy in between removes headers of answers",
        )


def _is_error_of(path: str, answer: Answer) -> bool:
    if not part(answer.json, "error", "message"):
        return False
    return path != "/v1/messages" or answer.json.get("type") == "error"


def _expect_rejected_key(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    _expect_rejection(request, model, answer, reply)
    if answer.status not in (401, 200):
        text = f"{request.what} got {answer.status} {answer.error}, expected was 401"
        reply.fault(text, "ask the gateway's own address, without a proxy")


def _expect_no_upgrade(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if answer.status != 426:
        reply.warn(request.warning.format(status=answer.status), request.remedy)


def _expect_models(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    data = answer.json.get("data")
    entries = data if isinstance(data, list) else []
    if model not in [part(each, "id") for each in entries]:
        reply.fault(f"the list has no {model}", "gateway group show GROUP shows its patterns")
    if not all(part(each, "object") == "model" for each in entries):
        reply.fault("an entry of the list is no object of type model", SEE_LOG)


def _expect_codex_models(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    _expect_models(request, model, answer, reply)
    slugs = [text_at(each, "slug") for each in objects_at(answer.json, "models")]
    if model not in slugs:
        reply.fault(f"the list for Codex, `models`, has no {model}", SEE_LOG)
    if not answer.headers.get("etag"):
        reply.warn("the list of models has no etag: Codex asks for all of it each time", SEE_LOG)


def _expect_token_count(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if not isinstance(answer.json.get("input_tokens"), int):
        text = "count_tokens has no input_tokens: the client compacts too late or too early"
        reply.fault(text, SEE_LOG)


def _expect_stored(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if answer.json.get("store") is False:
        reply.warn(request.warning, request.remedy)
        raise StepEnded


def _expect_text(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if not reply.text and not reply.faults:
        reply.fault(
            f"the reply has no text (it ended with {reply.stop})",
            "the model may have spent its tokens on thinking: run it again with another model",
        )


def _expect_pieces(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    """A real stream comes in pieces."""
    _expect_text(request, model, answer, reply)
    if reply.deltas == 1 and len(reply.text) > _WHOLE_REPLY:
        reply.warn(
            f"the text of {len(reply.text)} characters came in one piece: the upstream does not "
            "stream, people wait for the whole reply",
            "nothing breaks; if the upstream can stream, `stream: force` or another endpoint of it",
        )


def _expect_call(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    if called(request, reply) is not None:
        return
    if not reply.faults:
        said = f": it said {reply.text[:60]!r}" if reply.text else ""
        names = ", ".join(each.name for each in reply.calls)
        instead = f", but {names}" if names else ""
        text = f"the model did not call the tool {request.tool}{instead}{said}"
        reply.fault(text, NO_TOOL_CALL)
    raise StepEnded


def called(request: Request, reply: Reply) -> Call | None:
    return next((each for each in reply.calls if each.name == request.tool), None)


def _expect_custom_call(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    _expect_call(request, model, answer, reply)
    call = called(request, reply)
    if call is None or not call.text:
        text = f"the call of {request.tool} is no custom_tool_call with an input"
        reply.fault(text, SEE_LOG)


def _expect_memory(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    _expect_text(request, model, answer, reply)
    if not any(word in reply.text.lower() for word in request.words):
        used = part(answer.json, "usage", "input_tokens") or 0
        reply.warn(request.warning.format(input_tokens=used), request.remedy)


def _expect_compaction(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    kinds = [text_at(item, "type") for item in reply.history]
    if kinds != ["compaction"]:
        text = f"{request.what} got {', '.join(kinds) or 'nothing'} instead of one compaction item"
        reply.fault(f"{text}: the client ends the session", NO_COMPACTION)
        raise StepEnded


def _expect_recall(request: Request, model: str, answer: Answer, reply: Reply) -> None:
    _expect_text(request, model, answer, reply)
    if reply.text and not any(word in reply.text.lower() for word in request.words):
        text = "the model does not know what was said before the compaction"
        reply.fault(f"{text}: {reply.text[:60]!r}", NO_COMPACTION)


def is_tolerated(request: Request, answer: Answer) -> bool:
    return text_at(answer.json, "error", "details", "error_code") in request.tolerated


OF_ANY_ANSWER: Final[dict[str, Check]] = {
    "anything": _accept,
    "rejection": _expect_rejection,
    "rejected_key": _expect_rejected_key,
    "no_upgrade": _expect_no_upgrade,
}
"""Whatever the status is; the other checks are for answers with 200."""

OF_BODIES: Final[dict[str, Check]] = {
    "success": _accept,
    "models": _expect_models,
    "codex_models": _expect_codex_models,
    "token_count": _expect_token_count,
    "stored": _expect_stored,
}

OF_REPLIES: Final[dict[str, Check]] = {
    "reply": _accept,
    "text": _expect_text,
    "pieces": _expect_pieces,
    "call": _expect_call,
    "custom_call": _expect_custom_call,
    "memory": _expect_memory,
    "compaction": _expect_compaction,
    "recall": _expect_recall,
}
"""Replies are read as the client reads them, which is a check of its own."""
