"""The error that the client receives for a failed attempt.

Statuses and texts: Specification, "Errors". An upstream's own errors never look like the client's:
its 401 and 403 become 502, its 429 becomes `No available accounts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Final

from gateway.config.redaction import Redactor
from gateway.core.events import Failure, FailureKind
from gateway.errors import (
    CONTENT_POLICY_CODE,
    BadUpstreamReply,
    ContextLengthExceeded,
    EmptyUpstreamReply,
    GatewayError,
    ImageDownloadFailed,
    ImageTooLarge,
    InvalidImage,
    ModelNotFound,
    NoAvailableAccounts,
    RequestTooLarge,
    ServiceUnavailable,
    UpstreamEventTooLarge,
    UpstreamForbidden,
    UpstreamRejected,
    UpstreamReplyTooLarge,
    UpstreamTimeout,
    UpstreamTlsFailed,
)
from gateway.routing.failure_policy import (
    CONTENT_POLICY,
    MODEL_NOT_FOUND,
    Blame,
    FailurePolicy,
    context_overflow,
)
from gateway.wire.json.fields import redact_json

_NETWORK_ERRORS: dict[FailureKind, type[GatewayError]] = {
    FailureKind.CONNECT: ServiceUnavailable,
    FailureKind.TLS: UpstreamTlsFailed,
    FailureKind.TIMEOUT: UpstreamTimeout,
    FailureKind.DISCONNECT: BadUpstreamReply,
    FailureKind.REUSED: BadUpstreamReply,
    FailureKind.TRUNCATED: BadUpstreamReply,
    FailureKind.MALFORMED: BadUpstreamReply,
    FailureKind.PAGE: BadUpstreamReply,
    FailureKind.EMPTY: EmptyUpstreamReply,
    FailureKind.TOO_LARGE: UpstreamReplyTooLarge,
    FailureKind.EVENT_TOO_LARGE: UpstreamEventTooLarge,
    FailureKind.UNWRITABLE: BadUpstreamReply,
    FailureKind.CREDENTIAL: UpstreamForbidden,
}
_CLIENT_STATUSES = frozenset({400, 404, 413, 422})
_REJECTED_STATUSES = _CLIENT_STATUSES | {409}
_FORBIDDEN_STATUSES = frozenset({401, 403})
_TIMEOUT_STATUSES = frozenset({408, 504, 524})
_QUOTA_STATUSES = frozenset({402, 429})

_DEFAULT_POLICY: Final = FailurePolicy()

_CONVERSATION_FIELDS: Final = ("messages", "input")
_IS_DOWNLOAD_ERROR: Final = re.compile(
    r"(?:fail|unable|could not|couldn't|cannot|error|time)[^.:]{0,40}\b(?:download|fetch)\w*"
    r"[^.:]{0,40}\b(?:image|file|media)\b",
    re.IGNORECASE,
)
_DOWNLOAD_FAILED: Final = "Failed to download image"
"""The specification's text."""
_IMAGE_CODES: Final = (
    (re.compile(r"\bimage exceeds\b.{0,40}\bmaximum\b", re.IGNORECASE), ImageTooLarge.code),
    (re.compile(r"\bcould not process image\b", re.IGNORECASE), InvalidImage.code),
)
"""The codes of texts that upstreams without codes send."""
_UNSUPPORTED: Final = r"(?:not (?:support|allow|permit|accept)|unsupported|unknown|unrecognized)"
_CAPABILITIES: Final = tuple(
    (re.compile(f"{name}.{{0,60}}{_UNSUPPORTED}|{_UNSUPPORTED}.{{0,60}}{name}", re.I), capability)
    for name, capability in (
        (r"\breasoning[ _.]?effort\b", "effort_unsupported"),
        (r"\bimages?\b|\bimage_url\b", "image_block"),
    )
)
"""What upstreams of other formats say of what a model lacks, and the words of agents for it."""
_MAX_DETAILS: Final = 4096
"""Characters of an error's details, as JSON."""
_FIELD_END: Final = re.compile(r"[.\[]")

_MAX_MESSAGE: Final = 2000
_MAX_WORD: Final = 200
"""Characters of an upstream's text that a client receives."""


def client_text(redactor: Redactor, upstream_model: str, client_model: str, text: str) -> str:
    """An upstream's text as a client may read it: redacted, and with the client's name of the
    model. A name that is an ordinary word, such as `default`, is replaced only in quotes."""
    text = redactor.redact_all(text)
    if upstream_model == client_model:
        return text
    name = re.escape(upstream_model)
    if upstream_model.isalpha():
        pattern = rf"""(?<=['"`]){name}(?=['"`])"""
    else:
        pattern = rf"(?<![\w-])(?<!\w\.){name}(?![\w-]|[.:]\w)"
    return re.sub(pattern, lambda _: client_model, text, flags=re.IGNORECASE)


def client_error(
    failure: Failure,
    redact: Callable[[str], str],
    client_fields: Collection[str] | None = None,
    *,
    model: str,
    policy: FailurePolicy = _DEFAULT_POLICY,
) -> GatewayError:
    """`redact` gives an upstream's text as a client may read it. `client_fields` are the fields of
    the client's own body where it was translated: no others may be named. `model` is the client's
    name of it, `policy` has the operator's rules."""
    if failure.kind is not FailureKind.RESPONSE:
        return _NETWORK_ERRORS[failure.kind](detail=failure.message)
    verdict = policy.classify(failure)
    if verdict.reason == MODEL_NOT_FOUND:
        return ModelNotFound(model, detail=failure.message)
    if verdict.blame is Blame.CLIENT:
        return _request_error(failure, verdict.reason, redact, client_fields)
    if verdict.blame is Blame.ACCOUNT and verdict.alert:
        return UpstreamForbidden()
    if verdict.blame is Blame.ACCOUNT or _is_quota_error(failure):
        return NoAvailableAccounts(retry_after=failure.retry_after)
    return _upstream_error(failure)


def _request_error(
    failure: Failure,
    reason: str,
    redact: Callable[[str], str],
    client_fields: Collection[str] | None,
) -> GatewayError:
    message = redact(failure.message)[:_MAX_MESSAGE]
    param = _param(failure.param, client_fields)
    error: GatewayError
    if overflow := context_overflow(failure):
        fields = client_fields or ()
        param = param or next((field for field in _CONVERSATION_FIELDS if field in fields), None)
        used, limit, output = overflow.used, overflow.limit, overflow.output
        param = _clip(param, redact)
        error = ContextLengthExceeded(message, used=used, limit=limit, output=output, param=param)
    else:
        error = rejected = _rejection(failure, reason, message, _clip(failure.code, redact))
        if client_fields is not None and reason != CONTENT_POLICY:
            named = (name for text, name in _CAPABILITIES if text.search(message))
            rejected.capability = next(named, None)
        error.param = _clip(param, redact)
    if failure.should_retry is not None:
        error.extra_headers = (("x-should-retry", failure.should_retry),)
    if client_fields is None and failure.details and len(failure.body or "") <= _MAX_DETAILS:
        error.details = redact_json(failure.details, redact)
    return error


def _rejection(failure: Failure, reason: str, message: str, code: str | None) -> UpstreamRejected:
    """Builds the error of a rejected request, with the code that clients know if the upstream's
    format has none."""
    status = failure.status
    if status not in _REJECTED_STATUSES or reason == CONTENT_POLICY:
        status = 400
    if reason == CONTENT_POLICY:
        code = code if failure.status in _CLIENT_STATUSES and code else CONTENT_POLICY_CODE
    elif code == ImageDownloadFailed.code or _IS_DOWNLOAD_ERROR.search(message):
        code = code or ImageDownloadFailed.code
        if not message.startswith(_DOWNLOAD_FAILED):
            message = f"{_DOWNLOAD_FAILED}: {message}"
    elif status == 413:
        code = code or RequestTooLarge.code
    elif code is None:
        code = next((code for text, code in _IMAGE_CODES if text.search(message)), None)
    return UpstreamRejected(status, message, code=code)


def _param(param: str | None, client_fields: Collection[str] | None) -> str | None:
    """The upstream's name of the invalid field. Of a translated body only the top-level field is
    known to the client."""
    if param is None or client_fields is None:
        return param
    field = _FIELD_END.split(param, maxsplit=1)[0]
    return field if field in client_fields else None


def _upstream_error(failure: Failure) -> GatewayError:
    status = failure.status or 500
    if status in _FORBIDDEN_STATUSES:
        return UpstreamForbidden()
    if status in _TIMEOUT_STATUSES:
        return UpstreamTimeout()
    if 300 <= status < 400:
        return BadUpstreamReply()
    return ServiceUnavailable(retry_after=failure.retry_after)


def may_forward(failure: Failure) -> bool:
    """Tells whether a client may receive the upstream's own error frame within a stream: an error
    of the client or of the upstream, but nothing about the gateway's credentials and limits."""
    if failure.kind is not FailureKind.RESPONSE or _is_quota_error(failure):
        return False
    status = failure.status or 500
    return status in _CLIENT_STATUSES or status >= 500


def _is_quota_error(failure: Failure) -> bool:
    return failure.status in _QUOTA_STATUSES or "insufficient_quota" in (failure.code, failure.type)


def _clip(text: str | None, redact: Callable[[str], str]) -> str | None:
    return redact(text)[:_MAX_WORD] if text else None
