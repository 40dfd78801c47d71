"""Errors of admin operations: a message for people, a code for scripts, an HTTP status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from gateway.store.records import Token


class AdminError(Exception):
    """`text` is the template of the message, `details` are further fields of the error's JSON."""

    status = 400
    code = "refused"
    text = "{}"
    details: Mapping[str, Any] = {}

    def __init__(self, *values: object) -> None:
        super().__init__(self.text.format(*values))


@dataclass(frozen=True, slots=True)
class FieldError:
    """`path` leads to the field from the form inwards; it is empty for the form as a whole."""

    path: tuple[str | int, ...]
    message: str

    def __str__(self) -> str:
        path = ".".join(map(str, self.path))
        return f"{path}: {self.message}" if path else self.message


class FormError(AdminError):
    """The message has every invalid field."""

    code = "invalid_request"

    def __init__(self, *field_errors: FieldError) -> None:
        super().__init__("; ".join(map(str, field_errors)))
        self.field_errors = field_errors
        self.details = {"mistakes": field_errors}


class NotFound(AdminError):
    status = 404


class Conflict(AdminError):
    status = 409


class UnknownKey(NotFound):
    code = "key_not_found"
    text = "No key has the id {}."


class UnknownWebhook(NotFound):
    code = "webhook_not_found"
    text = "There is no webhook {}; the configuration has {}."


class NoWebhooks(Conflict):
    code = "no_webhooks"
    text = "The configuration has no webhooks: add them under alerts."


class UnknownGroup(NotFound):
    code = "group_not_found"

    def __init__(self, name: str, existing: Sequence[str]) -> None:
        super().__init__(
            f"There is no group {name}; the groups are: {', '.join(existing) or 'none'}."
        )


class UnknownRequest(NotFound):
    code = "request_not_found"
    text = (
        "The request log has no request {}. Requests without a valid key and those to unknown "
        "paths have no row."
    )


class UnknownResponse(NotFound):
    code = "response_not_found"
    text = "There is no stored response {}."


class UnknownAccount(NotFound):
    code = "account_not_found"
    text = "The running configuration has no account {}/{}."


class UnknownModel(NotFound):
    """`requested` is None if any model of the channel would do."""

    code = "model_not_found"

    def __init__(self, channel: str, requested: str | None, existing: Sequence[str]) -> None:
        missing = "no model of the catalog" if requested is None else f"no model {requested}"
        super().__init__(f"Channel {channel} has {missing}; it has: {', '.join(existing)}.")


class UnknownAdmin(NotFound):
    code = "admin_not_found"
    text = "There is no admin {}."


class UnknownToken(NotFound):
    code = "token_not_found"
    text = "There is no admin token {}."


class AdminExists(Conflict):
    code = "admin_exists"
    text = "Admin {} already exists."


class LastAdmin(Conflict):
    code = "last_admin"
    text = "{} is the last admin with the role admin: add another one first."


class TokenNameTaken(Conflict):
    code = "token_exists"
    text = "There already is an admin token {}: revoke it first, or choose another name."


class PermissionRequired(AdminError):
    status = 403
    code = "forbidden"
    text = "This needs the permission {}, which {} does not have."


class ReloadUnavailable(Conflict):
    code = "nothing_to_reload"
    text = "No gateway with a configuration file is running."


class UnknownSnapshot(NotFound):
    code = "snapshot_not_found"
    text = "The history of the configuration has no undamaged snapshot {}."


class UnknownSection(NotFound):
    code = "section_not_found"
    text = "The configuration file has no {}, or not on lines of its own."


class FileChanged(Conflict):
    code = "file_changed"
    text = (
        "The file has changed since this page was opened, so nothing was written. Open it again "
        "in another tab, and repeat the change there."
    )


class FileNotWritable(Conflict):
    code = "file_not_writable"


class NewSecret(AdminError):
    code = "new_secret"
    text = (
        "Line {} has a new secret, which does not belong into the text: store it below, and write "
        "its reference there. A <secret N> that was not there before has no value."
    )

    def __init__(self, line: int, secrets: Sequence[str]) -> None:
        """`secrets` are never shown again."""
        super().__init__(line)
        self.secrets = tuple(secrets)


class GroupExists(Conflict):
    code = "group_exists"
    text = "Group {} already exists."


MAX_LISTED_USERS: Final = 5


class GroupInUse(Conflict):
    """Revoked keys count too: their rows still refer to the group."""

    code = "group_in_use"

    def __init__(self, name: str, tokens: Sequence[Token], count: int) -> None:
        """`tokens` are the first `MAX_LISTED_USERS` of them."""
        listed = ", ".join(f"{token.name} ({token.id})" for token in tokens)
        more = f" and {count - len(tokens)} more" if count > len(tokens) else ""
        super().__init__(f"Group {name} still has keys: {listed}{more}.")


class KeyRevoked(Conflict):
    code = "key_revoked"
    text = "{0.name} ({0.id}) is revoked permanently: create another key."


class ExpiryPassed(AdminError):
    code = "expiry_passed"
    text = "The expiry must be in the future; to end a key now, disable it or revoke it."


class TooManySubscribers(AdminError):
    status = 503
    code = "too_many_subscribers"
    text = "The feed has {} subscribers, the maximum: try again later."


@dataclass(frozen=True, slots=True)
class ImportRowError:
    """`index` counts the rows from 0, `field` is a path such as `limits.budget`, empty for the row
    as a whole."""

    index: int
    field: str
    message: str


class ImportRejected(AdminError):
    """No key was created; `row_errors` has everything that is wrong."""

    code = "import_refused"

    def __init__(self, row_errors: Sequence[ImportRowError]) -> None:
        super().__init__("; ".join(f"{e.index}.{e.field}: {e.message}" for e in row_errors))
        self.row_errors = tuple(row_errors)
