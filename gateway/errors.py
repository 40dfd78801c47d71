"""The error table: every refusal the gateway speaks, as classes. It knows no HTTP library.

Statuses and stable texts are the specification's ("Errors"); the class of an error is its row.
How a row looks in a client's own envelope is the business of `gateway.wire`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final

MAX_RETRY_AFTER: Final = 60
"""Seconds that `retry-after` says at most: some client libraries sleep whatever they are told."""


class GatewayError(Exception):
    """What a client is told. Subclasses are the rows of the table and fix status, code and types.

    `type` is spoken on chat and responses, `messages_type` on messages. `detail` never leaves the
    house: it goes to the log row only. `param` names the offending field (`messages.0.role`);
    `details` are what clients of messages decide by where the type says too little. `retry_after`
    is in seconds; the rendered header is whole seconds, 1 to 60, and the message tells a longer
    wait. `messages_status` is set where clients of messages know another status for it.
    """

    status: int = 500
    messages_status: ClassVar[int | None] = None
    code: str | None = None
    type: str = "server_error"
    messages_type: str = "api_error"
    text: ClassVar[str] = "Internal server error"
    permanent: bool = False
    details: ClassVar[Mapping[str, Any] | None] = None
    retry_after: float | None = None

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        detail: str | None = None,
    ) -> None:
        self.message = message or self.text
        self.param = param
        self.detail = detail
        if retry_after is not None:
            self.retry_after = retry_after
            if retry_after > MAX_RETRY_AFTER:
                self.message += f" (retry after {math.ceil(retry_after)} s)"
        super().__init__(self.message)

    @property
    def messages_text(self) -> str:
        """The message as it is spoken on messages."""
        return self.message

    def headers(self) -> dict[str, str]:
        """The answer's extra headers: when to come back, and whether to come back at all."""
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(min(MAX_RETRY_AFTER, max(1, math.ceil(self.retry_after))))
        if self.permanent or (self.retry_after or 0) > MAX_RETRY_AFTER:
            headers["x-should-retry"] = "false"
        return headers


class ClientError(GatewayError):
    """What only the client can mend."""

    status = 400
    type = "invalid_request_error"
    messages_type = "invalid_request_error"


class InvalidRequest(ClientError):
    """A body that cannot be served as it is; `param` is the path of the field."""

    code = "invalid_value"
    text = "Invalid request"


class InvalidJson(InvalidRequest):
    code = "invalid_json"
    text = "The request body is not valid JSON"


class MissingField(InvalidRequest):
    code = "missing_required_parameter"
    text = "Field required"


class UserAgentNotAllowed(InvalidRequest):
    code = "user_agent_not_allowed"
    text = "user agent not allowed"


class UnsupportedField(InvalidRequest):
    """A field whose meaning would be lost without the client noticing: `param` names it."""

    code = "convert_request_failed"
    text = "This cannot be said in the format of the model's upstream"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}", param=field)


class ThreadUnsupported(InvalidRequest):
    """A message thread that the upstream cannot hold. By `details` the client libraries see that
    they have to send the whole conversation instead."""

    code = "thread_unsupported_request"
    text = "thread: message threads are not supported for this model"
    details = {"error_code": code, "unsupported": ["thread"]}  # noqa: RUF012  # nobody changes it

    def __init__(self) -> None:
        super().__init__(param="thread")


class ContextLengthExceeded(InvalidRequest):
    """A prompt, or it and the reply that was asked for, does not fit the model: `message` are the
    upstream's own words, `used` and `most` tokens where they tell them. Messages clients know
    this error by its first words only."""

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message, param=param)
        self._counts = f": {used} tokens > {limit} maximum" if used and limit else ""

    @property
    def messages_text(self) -> str:
        if self.message.startswith(_CONTEXT_PREFIXES):
            return self.message
        return f"prompt is too long{self._counts} ({self.message})"


_CONTEXT_PREFIXES: Final = ("prompt is too long", "input length and `max_tokens` exceed")


class PreviousResponseNotFound(InvalidRequest):
    code = "previous_response_not_found"

    def __init__(self, response_id: str) -> None:
        super().__init__(
            f"Previous response with id '{response_id}' not found.", param="previous_response_id"
        )


class MissingApiKey(ClientError):
    status = 401
    code = "invalid_api_key"
    messages_type = "authentication_error"
    text = "Auth rejected: no API key provided"
    permanent = True

    def headers(self) -> dict[str, str]:
        return super().headers() | {"www-authenticate": "Bearer"}


class InvalidApiKey(MissingApiKey):
    """Unknown, revoked, expired and malformed keys alike: the answer is no oracle."""

    text = "Invalid token"


class PermissionDenied(ClientError):
    status = 403
    code = "permission_denied"
    messages_type = "permission_error"
    text = "This key may not do that"
    permanent = True


class InvalidUrl(ClientError):
    """An unknown path; the message names method and path as the specification words it."""

    status = 404
    messages_type = "not_found_error"
    permanent = True

    def __init__(self, method: str, path: str, *, hint: str | None = None) -> None:
        message = f"Invalid URL ({method} {path})"
        super().__init__(f"{message}: {hint}" if hint else message)


class UnknownModelId(ClientError):
    """`GET /v1/models/{id}` for an id that the key cannot use."""

    status = 404
    code = "model_not_found"
    messages_type = "not_found_error"
    permanent = True

    def __init__(self, model: str) -> None:
        super().__init__(f"The model '{model}' does not exist", param="model")


class MethodNotAllowed(ClientError):
    status = 405
    text = "Method not allowed"
    permanent = True

    def __init__(self, allowed: str) -> None:
        super().__init__()
        self.allowed = allowed

    def headers(self) -> dict[str, str]:
        return super().headers() | {"allow": self.allowed}


class RequestTimeout(ClientError):
    status = 408
    code = "request_timeout"
    text = "The request body did not arrive in time"


class RequestTooLarge(ClientError):
    status = 413
    code = "request_too_large"
    messages_type = "request_too_large"
    text = "Request entity too large"
    permanent = True


class UnsupportedMediaType(ClientError):
    status = 415
    code = "unsupported_media_type"
    text = "The request body must be application/json without content-encoding"
    permanent = True


class UpgradeRequired(ClientError):
    """A websocket upgrade: 426 makes clients fall back to plain HTTP at once."""

    status = 426
    code = "websocket_not_supported"
    text = "WebSocket is not supported here: use HTTP"

    def headers(self) -> dict[str, str]:
        return super().headers() | {"upgrade": "HTTP/1.1", "connection": "upgrade"}


class MalformedRequest(ClientError):
    """Bytes that are no HTTP request we serve; the connection is closed after the answer."""

    code = "malformed_request"
    text = "Malformed HTTP request"
    permanent = True


class InternalError(GatewayError):
    """A fault of ours."""


class FormatNotServed(GatewayError):
    """What was asked cannot be said in the format of the model's channels."""

    code = "convert_request_failed"
    text = "not implemented (convert_request_failed)"
    permanent = True


class UpstreamForbidden(GatewayError):
    """The upstream refuses the gateway's own credential: nothing the client can mend."""

    status = 502
    code = "upstream_forbidden"
    text = "Upstream access forbidden"
    permanent = True


class BadUpstreamReply(GatewayError):
    status = 502
    code = "bad_upstream_response"
    text = "Bad upstream response"


class UpstreamTlsFailed(BadUpstreamReply):
    code = "upstream_tls"
    text = "Service unavailable"


class EmptyUpstreamReply(BadUpstreamReply):
    code = "empty_upstream_response"


class UpstreamEventTooLarge(BadUpstreamReply):
    code = "upstream_event_too_large"


class UpstreamReplyTooLarge(BadUpstreamReply):
    code = "upstream_response_too_large"


class ModelNotFound(GatewayError):
    """The key's group has no channel for the model: permanent, though it is a 503."""

    status = 503
    code = "model_not_found"
    type = "invalid_request_error"
    permanent = True

    def __init__(self, model: str, *, detail: str | None = None) -> None:
        super().__init__(
            f"model_not_found: no channel for model {model} in this group",
            param="model",
            detail=detail,
        )


class NoAvailableAccounts(GatewayError):
    status = 503
    code = "no_available_accounts"
    messages_type = "overloaded_error"
    text = "No available accounts"
    retry_after = 30


class ServiceUnavailable(GatewayError):
    status = 503
    code = "server_is_overloaded"
    messages_type = "overloaded_error"
    text = "Service unavailable"
    retry_after = 5


class UpstreamTimeout(ServiceUnavailable):
    code = "upstream_timeout"


class TooManyRequests(GatewayError):
    """One of our own limits; an upstream's 429 is never passed on as one. `never`: what was asked
    would not pass at any other time either. `whose` is the kind and id of the limit's holder."""

    status = 429
    holder: tuple[str, str] | None = None
    code = "rate_limit_exceeded"
    type = "requests"
    messages_type = "rate_limit_error"
    text = "Too Many Requests"

    def __init__(
        self, *, reason: str = "", retry_after: float | None = None, permanent: bool = False
    ) -> None:
        message = f"{self.text}: {reason}" if reason else None
        super().__init__(message, retry_after=retry_after)
        self.permanent = permanent


class TooManyTokens(TooManyRequests):
    type = "tokens"


class InsufficientQuota(GatewayError):
    """A budget is spent."""

    status = 429
    messages_status = 402
    code = "insufficient_quota"
    type = "insufficient_quota"
    messages_type = "billing_error"
    text = "Insufficient quota"
    permanent = True


class UpstreamRejected(GatewayError):
    """A fault of the client's that only the upstream could see: its status and its own words.

    Raised for upstream 400, 404, 413 and 422; the message is already cleaned of addresses,
    account names and keys.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        detail: str | None = None,
    ) -> None:
        super().__init__(message, param=param, detail=detail)
        self.status = status
        self.code = code
        self.type = "invalid_request_error"
        self.messages_type = _MESSAGES_TYPES.get(status, "invalid_request_error")


_MESSAGES_TYPES = {404: "not_found_error", 413: "request_too_large"}
