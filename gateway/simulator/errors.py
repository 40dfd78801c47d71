"""Request errors and their bodies."""

from __future__ import annotations

from typing import Any

_MESSAGES_TYPES = {404: "not_found_error", 413: "request_too_large"}


class RequestError(Exception):
    """A request that the simulator rejects. Only the messages format has ``details``."""

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


def error_body(error: RequestError, path: str, request_id: str) -> dict[str, Any]:
    """The body in the format of the path; on other paths a body for every client."""
    fields: dict[str, Any]
    details = {"param": error.param, "code": error.code}
    if path.startswith(("/v1/chat/", "/v1/responses")):
        fields = {"message": error.message, "type": "invalid_request_error", **details}
        return {"error": fields}
    error_type = _MESSAGES_TYPES.get(error.status, "invalid_request_error")
    fields = {"type": error_type, "message": error.message}
    if error.details is not None:
        fields["details"] = error.details
    if not path.startswith("/v1/messages"):
        fields |= details
    return {"type": "error", "error": fields, "request_id": request_id}
