"""What the guard answers instead of a handler: a status, a code for scripts, a text for people."""

from __future__ import annotations

from typing import Final

from gateway.core.value import value


@value
class Rejection:
    status: int
    code: str
    message: str


NOT_SIGNED_IN: Final = Rejection(401, "not_signed_in", "Sign in first.")
INVALID_TOKEN: Final = Rejection(
    401, "invalid_token", "The admin token is unknown, expired or revoked: gateway admin token list"
)
TOO_MANY_ATTEMPTS: Final = Rejection(
    429, "too_many_attempts", "Too many attempts with invalid tokens at once. Try again."
)
TOKEN_IN_QUERY: Final = Rejection(
    400,
    "token_in_query",
    "Send the admin token in the header Authorization: Bearer. Addresses are kept in histories and "
    "logs: revoke this one.",
)
INSECURE_TRANSPORT: Final = Rejection(
    403,
    "insecure_transport",
    "Admin tokens are not accepted without TLS, as they could be intercepted: put a TLS proxy in "
    "front and configure server.public_url, or connect on the gateway's machine without a proxy. "
    "Revoke this one.",
)
CROSS_SITE: Final = Rejection(
    403, "cross_site", "The request came from another site and was rejected."
)
TIMED_OUT: Final = Rejection(408, "request_timeout", "The body took too long.")
TOO_LARGE: Final = Rejection(413, "request_too_large", "The body is too large.")


def unsupported_media_type(expected: str) -> Rejection:
    return Rejection(415, "unsupported_media_type", f"The body must be {expected}.")


def forbidden(actor: str, permission: str | None) -> Rejection:
    """`permission` is None if nobody has it."""
    if permission is None:
        return Rejection(403, "forbidden", "Nobody is allowed to do this over the network.")
    text = f"This needs the permission {permission}, which {actor} does not have."
    return Rejection(403, "forbidden", text)
