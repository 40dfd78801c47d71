"""What the desk will not do, in words for the operator and a code for scripts.

This room must not know HTTP, nor who asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gateway.store.records import Token


class DeskError(Exception):
    """What the desk will not do; the message is for the operator, `code` for scripts."""

    code = "refused"


class UnknownKey(DeskError):
    code = "key_not_found"

    def __init__(self, token_id: str) -> None:
        super().__init__(f"No key has the id {token_id}.")


class UnknownGroup(DeskError):
    """`known` are the names of the groups that exist."""

    code = "group_not_found"

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"There is no group {name}; the groups are: {', '.join(known) or 'none'}.")


class UnknownRequest(DeskError):
    code = "request_not_found"

    def __init__(self, request_id: str) -> None:
        super().__init__(f"The ledger has no request {request_id}.")


class UnknownAccount(DeskError):
    """`name` is channel/account."""

    code = "account_not_found"

    def __init__(self, name: str) -> None:
        super().__init__(f"The running configuration has no account {name}.")


class UnknownModel(DeskError):
    """`known` are the models that the channel has; `sent` is None where it was to be any."""

    code = "model_not_found"

    def __init__(self, channel: str, sent: str | None, known: Sequence[str]) -> None:
        what = f"no model {sent}" if sent is not None else "no model of the catalog"
        super().__init__(f"Channel {channel} has {what}; it has: {', '.join(known)}.")


class NothingToReload(DeskError):
    code = "nothing_to_reload"

    def __init__(self) -> None:
        super().__init__("No gateway that was started with a configuration file serves here.")


class TooManySubscribers(DeskError):
    code = "too_many_subscribers"

    def __init__(self, limit: int) -> None:
        super().__init__(f"{limit} subscribers follow the feed already: try again later.")


class GroupExists(DeskError):
    code = "group_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"There is a group {name} already.")


class GroupInUse(DeskError):
    """Revoked keys count too: their token goes on naming the group."""

    code = "group_in_use"

    def __init__(self, name: str, users: Sequence[Token]) -> None:
        shown = ", ".join(f"{token.name} ({token.id})" for token in users[:5])
        more = f" and {len(users) - 5} more" if len(users) > 5 else ""
        super().__init__(f"Group {name} is still named by keys: {shown}{more}.")


class KeyRevoked(DeskError):
    code = "key_revoked"

    def __init__(self, token: Token) -> None:
        super().__init__(f"{token.name} ({token.id}) was revoked for good: mint another key.")


class ExpiryPassed(DeskError):
    code = "expiry_passed"

    def __init__(self) -> None:
        super().__init__(
            "The expiry must be in the future; to end a key now, disable it or revoke it."
        )


@dataclass(frozen=True, slots=True)
class Slip:
    """What is wrong with one of many: `index` counts them from 0, `field` is a path such as
    `limits.budget`, empty where it is all of it."""

    index: int
    field: str
    message: str


class ImportRefused(DeskError):
    """Nothing of it was made. `slips` are all that could be found."""

    code = "import_refused"

    def __init__(self, slips: Sequence[Slip]) -> None:
        super().__init__("; ".join(f"{each.index}.{each.field}: {each.message}" for each in slips))
        self.slips = tuple(slips)
