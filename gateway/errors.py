"""Every error that a client can get, with its status, code and types.

Statuses and stable texts are from the specification ("Errors"); `gateway.wire` renders the bodies.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeVar

_MAX_MESSAGE: Final = 4096
"""Characters of a message."""
MAX_RETRY_AFTER: Final = 60
"""Seconds in `retry-after`: some client libraries sleep for any value."""


Error = TypeVar("Error", bound=BaseException)


def without_traceback(error: Error) -> Error:
    """The error, which may now be kept: the frames of its traceback, and of what caused it, refer
    to the request, which would wait for the garbage collection."""
    cause: BaseException | None = error
    while cause is not None:
        cause.__traceback__, cause = None, cause.__cause__ or cause.__context__
    return error


class GatewayError(Exception):
    """The base class; subclasses set status, code and types.

    `type` is for chat and responses, `messages_type`, `messages_status` (if it differs) and
    `details` are for messages. `param` is the path of the invalid field (`messages.0.role`).
    `detail` is for the request log only. `retry_after` is in seconds; the header has 1 to 60 whole
    seconds, and the message has a longer wait. `permanent`: a retry is useless. `extra_headers`
    are names and values of response headers.
    """

    status: int = 500
    messages_status: ClassVar[int | None] = None
    code: str | None = None
    type: str = "server_error"
    messages_type: str = "api_error"
    text: ClassVar[str] = "Internal server error"
    permanent: bool = False
    details: Mapping[str, Any] | None = None
    retry_after: float | None = None
    extra_headers: tuple[tuple[str, str], ...] = ()

    def __init__(
        self,
        message: str | None = None,
        *,
        param: str | None = None,
        retry_after: float | None = None,
        detail: str | None = None,
    ) -> None:
        self.message = message or self.text
        if len(self.message) > _MAX_MESSAGE:  # it repeats what the client has sent
            self.message = f"{self.message[:_MAX_MESSAGE]}..."
        self.param = param
        self.detail = detail
        if retry_after is not None:
            self.retry_after = retry_after
            if retry_after > MAX_RETRY_AFTER:
                self.message += f" (retry after {math.ceil(retry_after)} s)"
        super().__init__(self.message)

    @property
    def messages_text(self) -> str:
        """The message in the messages format."""
        return self.message

    def headers(self) -> dict[str, str]:
        """Additional response headers."""
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["retry-after"] = str(min(MAX_RETRY_AFTER, max(1, math.ceil(self.retry_after))))
        if self.permanent or (self.retry_after or 0) > MAX_RETRY_AFTER:
            headers["x-should-retry"] = "false"
        return headers | dict(self.extra_headers)


class ClientError(GatewayError):
    """An error that only the client can fix."""

    status = 400
    type = "invalid_request_error"
    messages_type = "invalid_request_error"


class AboutName(ClientError):
    """An error about what the client has named in the field `field`: `text` has {} in its place."""

    field: ClassVar[str]

    def __init__(self, name: str) -> None:
        super().__init__(self.text.format(name), param=self.field)


class InvalidRequest(ClientError):
    """`param` is the path of the invalid field."""

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


class UnsupportedByUpstream(InvalidRequest):
    """A request that the upstream of one candidate cannot take; another's may."""


class UnsupportedField(UnsupportedByUpstream):
    """Translation would silently change the meaning of the field `param`."""

    code = "convert_request_failed"
    text = "Not supported in the format of the model's upstream"

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}", param=field)


class ThreadUnsupported(UnsupportedByUpstream):
    """A message thread on the translated lane. `details` tells client libraries to send the whole
    conversation instead."""

    code = "thread_unsupported_request"
    text = "thread: message threads are not supported for this model"
    details = {"error_code": code, "unsupported": ["thread"]}  # noqa: RUF012  # never changed

    def __init__(self) -> None:
        super().__init__(param="thread")


class ContextLengthExceeded(InvalidRequest):
    """Prompt and requested reply exceed the context window. `message` is the upstream's, `used` and
    `limit` are tokens if it has them, `output` those of the reply if only they are too many.
    Messages clients recognise the error by its prefix, and agents shorten the conversation, or the
    reply."""

    code = "context_length_exceeded"

    def __init__(
        self,
        message: str,
        *,
        used: int | None = None,
        limit: int | None = None,
        output: int | None = None,
        param: str | None = None,
    ) -> None:
        super().__init__(message, param=param)
        self._counts = f"prompt is too long: {used} tokens > {limit} maximum"
        if not (used and limit):
            self._counts = "prompt is too long"
        elif output:
            self._counts = (
                f"{_CONTEXT_PREFIXES[1]} context limit: {used - output} + {output} > {limit}"
            )

    @property
    def messages_text(self) -> str:
        if self.message.startswith(_CONTEXT_PREFIXES):
            return self.message
        return f"{self._counts} ({self.message})"


CONTENT_POLICY_CODE: Final = "content_policy_violation"
_CONTEXT_PREFIXES: Final = ("prompt is too long", "input length and `max_tokens` exceed")


class InvalidImage(UnsupportedByUpstream):
    """An image that no upstream, or none of the model's, accepts: here because it has no pixels,
    in subclasses for other reasons. `path` is that of its data or URL in the body."""

    code = "invalid_image"

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}", param=path)


class UnsupportedImageType(InvalidImage):
    code = "unsupported_image_media_type"


class InvalidImageBase64(InvalidImage):
    code = "invalid_base64_image"


class EmptyImage(InvalidImage):
    code = "empty_image_file"


class InvalidImageUrl(InvalidImage):
    code = "invalid_image_url"


class ImageTooLarge(InvalidImage):
    code = "image_too_large"


class TooManyImages(InvalidImage):
    """`path` is that of the messages or items."""

    code = "too_many_images"


class ImageDownloadFailed(UnsupportedByUpstream):
    """A failed download, for any reason: clients must not learn which addresses answer, or what.
    `host` is the host of the image's URL, `path` the URL's in the body."""

    code = "failed_to_download_image"

    def __init__(self, path: str, host: str, *, detail: str | None = None) -> None:
        message = f"Failed to download image from {host} ({path})"
        super().__init__(message, param=path, detail=detail)


class PreviousResponseNotFound(AboutName, InvalidRequest):
    code = "previous_response_not_found"
    text = "Previous response with id '{}' not found."
    field = "previous_response_id"


class ItemNotFound(InvalidRequest):
    """An `item_reference` in the input names no item of a stored response of the key."""

    code = "item_not_found"

    def __init__(self, item_id: str, path: str) -> None:
        super().__init__(f"Item with id '{item_id}' not found.", param=path)


class StoredChainTooLarge(InvalidRequest):
    """A chain of stored responses exceeds what can be continued."""

    code = "previous_response_too_large"

    def __init__(self, response_id: str, limit: str) -> None:
        super().__init__(
            f"Previous response with id '{response_id}' continues {limit}: start a new conversation"
            ", or send the whole input without it",
            param="previous_response_id",
        )


class NotFound(ClientError):
    """A path at which nothing is, or an id that nothing has; subclasses say what."""

    status = 404
    messages_type = "not_found_error"
    permanent = True


class ResponseNotFound(AboutName, NotFound):
    """`/v1/responses/{id}` for an id of no stored response of the key."""

    text = "Response with id '{}' not found."
    field = "id"


class NotInBackground(AboutName, InvalidRequest):
    code = "response_not_cancellable"
    text = (
        "Response with id '{}' was not created in the background: only such responses can be "
        "cancelled"
    )
    field = "id"


class MissingApiKey(ClientError):
    status = 401
    code = "invalid_api_key"
    type = "authentication_error"
    messages_type = "authentication_error"
    text = "Auth rejected: no API key provided"
    permanent = True
    extra_headers = (("www-authenticate", "Bearer"),)


class InvalidApiKey(MissingApiKey):
    """Unknown, revoked, expired and malformed keys get the same response."""

    text = "Invalid token"


class PermissionDenied(ClientError):
    status = 403
    code = "permission_denied"
    messages_type = "permission_error"
    text = "Not permitted for this key"
    permanent = True


class InvalidUrl(NotFound):
    """The message has method and path, as in the specification."""

    def __init__(self, method: str, path: str, *, hint: str | None = None) -> None:
        message = f"Invalid URL ({method} {path})"
        super().__init__(f"{message}: {hint}" if hint else message)


class UnknownModelId(AboutName, NotFound):
    """`GET /v1/models/{id}` for an id that is not available to the key."""

    code = "model_not_found"
    text = "The model '{}' does not exist"
    field = "model"


class ConversationNotFound(AboutName, NotFound):
    """Unknown, deleted, expired, or another key's."""

    code = "conversation_not_found"
    text = "Conversation with id '{}' not found."
    field = "conversation"


class ConversationItemNotFound(AboutName, NotFound):
    code = "item_not_found"
    text = "Item with id '{}' not found in the conversation."
    field = "item_id"


class ConversationLocked(AboutName):
    """Two requests would extend it at once, and one of them would be lost."""

    status = 409
    code = "conversation_locked"
    text = "Another request is extending the conversation '{}'. Try again once it has ended."
    field = "conversation"
    retry_after = 1.0


class ThreadNotFound(AboutName):
    """A message thread that the gateway does not hold. `details` tells client libraries to send the
    whole conversation as a new thread."""

    status = 404
    code = "thread_not_found"
    messages_type = "not_found_error"
    text = "thread: the message '{}' is not known"
    field = "thread.previous_message_id"
    details = {"error_code": code}  # noqa: RUF012  # never changed


class MethodNotAllowed(ClientError):
    status = 405
    text = "Method not allowed"
    permanent = True

    def __init__(self, allowed: str) -> None:
        useful = set(allowed.split(", ")) - {"HEAD", "OPTIONS"}
        super().__init__(f"{self.text}: use {' or '.join(sorted(useful))}")
        self.extra_headers = (("allow", allowed),)


class RequestTimeout(ClientError):
    status = 408
    code = "request_timeout"
    text = "The request body did not arrive in time"


class HeadTimeout(ClientError):
    """The connection is closed after the response, as after the next one."""

    status = 408
    code = "request_timeout"
    text = "The request head did not arrive in time"


class HeadTooLarge(ClientError):
    status = 431
    code = "request_headers_too_large"
    text = "The request line and headers are too large together"
    permanent = True


class RequestTooLarge(ClientError):
    status = 413
    code = "request_too_large"
    messages_type = "request_too_large"
    text = "Request entity too large"
    permanent = True


class UnsupportedMediaType(ClientError):
    status = 415
    code = "unsupported_media_type"
    text = "The request body must be application/json, in gzip, deflate, br, zstd or no encoding"
    permanent = True
    extra_headers = (("accept-encoding", "gzip, deflate, br, zstd"),)


class UpgradeRequired(ClientError):
    """A websocket upgrade: on 426 clients fall back to HTTP."""

    status = 426
    code = "websocket_not_supported"
    text = "WebSocket is not supported here: use HTTP"
    extra_headers = (("upgrade", "HTTP/1.1"), ("connection", "upgrade"))


class MalformedRequest(ClientError):
    """The connection is closed after the response."""

    code = "malformed_request"
    text = "Malformed HTTP request"
    permanent = True


class InternalError(GatewayError):
    """A bug of the gateway."""


class FormatNotServed(GatewayError):
    """The endpoint is closed to the model's family."""

    code = "convert_request_failed"
    text = "not implemented (convert_request_failed)"
    permanent = True


class UpstreamForbidden(GatewayError):
    """The upstream rejects the gateway's credential."""

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
    """The key's group has no channel for the model."""

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


class AccountingUnavailable(ServiceUnavailable):
    """The request log cannot be written, and too much of it waits for that."""

    code = "accounting_unavailable"
    text = "Service unavailable: requests cannot be recorded at present"


class ReplicaOutOfContact(ServiceUnavailable):
    """A replica that cannot know whether keys were changed: neither the database nor the shared
    state answers, or other replicas have taken it for gone."""

    code = "replica_out_of_contact"
    text = "Service unavailable: this replica is out of contact"
    retry_after = 1


class LimitsUnavailable(ServiceUnavailable):
    """The server with the limits of all replicas cannot be reached, and the key's group refuses
    requests then, or this replica's share of a limit has no room for any."""

    code = "limits_unavailable"
    text = "Service unavailable: limits cannot be checked at present"
    retry_after = 2


class UpstreamTimeout(ServiceUnavailable):
    code = "upstream_timeout"


class TooManyRequests(GatewayError):
    """A limit of the gateway, never an upstream's 429. `permanent`: the request alone exceeds the
    limit. `holder` is the kind and id of the limit's holder."""

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
    """The request exceeds what is left of a budget, or a stream what it could reserve of it."""

    status = 429
    messages_status = 402
    code = "insufficient_quota"
    type = "insufficient_quota"
    messages_type = "billing_error"
    text = "Insufficient quota"
    permanent = True
    is_leased = False
    """Whether this replica may lease more of the budget."""


class UpstreamRejected(ClientError):
    """An upstream's 400, 404, 409, 413 or 422, with its status and its redacted message.
    `capability` is the word by which agents of the messages format know what they should do
    without, where the upstream has another format."""

    capability: str | None = None

    def __init__(self, status: int, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.messages_type = _MESSAGES_TYPES.get(status, self.messages_type)

    @property
    def messages_text(self) -> str:
        """Returns the message with the code that this format has no field for (Specification,
        "Errors"), or what agents recover by."""
        if self.capability is not None:
            return f"{self.message} (capability_rejected: {self.capability})"
        if self.code != CONTENT_POLICY_CODE or CONTENT_POLICY_CODE in self.message:
            return self.message
        return f"{CONTENT_POLICY_CODE}: {self.message}"


_MESSAGES_TYPES = {404: "not_found_error", 409: "conflict_error", 413: "request_too_large"}
