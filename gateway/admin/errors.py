"""What the desk will not do, in words for the operator and a code for scripts.

This room must not know HTTP, nor who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.store.records import Token


class AdminError(Exception):
    """What the desk will not do; the message is for the operator, `code` for scripts."""

    code = "refused"


class UnknownKey(AdminError):
    code = "key_not_found"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"No key has the id {token_id}.")


class UnknownGroup(AdminError):
    """`known` are the names of the groups that exist."""

    code = "group_not_found"

    def __init__(self, name: str, existing: Sequence[str]) -> None:
        super().__init__(
            f"There is no group {name}; the groups are: {', '.join(existing) or 'none'}."
        )


class UnknownRequest(AdminError):
    code = "request_not_found"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The ledger has no request {request_id}.")


class UnknownAccount(AdminError):
    """`name` is channel/account."""

    code = "account_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The running configuration has no account {name}.")


class UnknownModel(AdminError):
    """`known` are the models that the channel has; `sent` is None where it was to be any."""

    code = "model_not_found"

    def __init__(self, channel: str, requested: str | None, existing: Sequence[str]) -> None:
        what = f"no model {requested}" if requested is not None else "no model of the catalog"
        super().__init__(f"Channel {channel} has {what}; it has: {', '.join(existing)}.")


class ReloadUnavailable(AdminError):
    code = "nothing_to_reload"

    def __init__(self) -> None:
        super().__init__("No gateway that was started with a configuration file serves here.")


class TooManySubscribers(AdminError):
    code = "too_many_subscribers"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} subscribers follow the feed already: try again later.")


class GroupExists(AdminError):
    code = "group_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a group {name} already.")


class GroupInUse(AdminError):
    """Revoked keys count too: their token goes on naming the group."""

    code = "group_in_use"

    def __init__(self, name: str, users: Sequence[Token]) -> None:
        shown = ", ".join(f"{token.name} ({token.id})" for token in users[:5])
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""
        super().__init__(f"Group {name} is still named by keys: {shown}{more}.")


class KeyRevoked(AdminError):
    code = "key_revoked"

    def __init__(self, token: Token) -> None:
        super().__init__(f"{token.name} ({token.id}) was revoked for good: mint another key.")


class ExpiryPassed(AdminError):
    code = "expiry_passed"

    def __init__(self) -> None:
        super().__init__(
            "The expiry must be in the future; to end a key now, disable it or revoke it."
        )


@dataclass(frozen=True, slots=True)
class ImportRowError:
    """What is wrong with one of many: `index` counts them from 0, `field` is a path such as
    `limits.budget`, empty where it is all of it."""

    index: int
    field: str
    message: str


class ImportRejected(AdminError):
    """Nothing of it was made. `slips` are all that could be found."""

    code = "import_refused"

    def __init__(self, slips: Sequence[ImportRowError]) -> None:
        super().__init__("; ".join(f"{each.index}.{each.field}: {each.message}" for each in slips))
        self.row_errors = tuple(slips)
