"""Why an ask was refused, and how each format words that.

This room must not know what makes an ask wrong.
"""

from __future__ import annotations

from typing import Any

_MESSAGES_TYPES = {404: "not_found_error", 413: "request_too_large"}


class RequestError(Exception):
    """An ask that the simulator will not answer.

    ``details`` ride along in the messages envelope only, whose clients read them.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        param: str | None = None,
        code: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.param = param
        self.code = code
        self.details = details


def chat_error_body(refusal: RequestError, request_id: str) -> dict[str, Any]:
    """The error body of the chat and responses formats; their request id is a header only."""
    del request_id
    return {
        "error": {
            "message": refusal.message,
            "type": "invalid_request_error",
            "param": refusal.param,
            "code": refusal.code,
        }
    }


def messages_error_body(refusal: RequestError, request_id: str) -> dict[str, Any]:
    """The error body of the messages format."""
    error: dict[str, Any] = {
        "type": _MESSAGES_TYPES.get(refusal.status, "invalid_request_error"),
        "message": refusal.message,
    }
    if refusal.details is not None:
        error["details"] = refusal.details
    return {"type": "error", "error": error, "request_id": request_id}


def combined_error_body(refusal: RequestError, request_id: str) -> dict[str, Any]:
    """A body that clients of every format can read, for paths that belong to none."""
    body = messages_error_body(refusal, request_id)
    body["error"] |= {"param": refusal.param, "code": refusal.code}
    return body
