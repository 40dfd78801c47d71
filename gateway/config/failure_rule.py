"""What an operator knows better about an upstream's failures. It must not know what follows."""

from __future__ import annotations

import re
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from gateway.config.quantity import Seconds
from gateway.config.section import ConfigModel


class FailureRule(ConfigModel):
    """Whose fault it is when an upstream answers with one of the statuses and in words that fit all
    of the patterns given. The first rule that fits decides; where none does, the gateway knows."""

    blame: Literal["client", "account", "capacity", "transport", "upstream"]
    """client: it is told at once, and nobody else is asked; account: it is left out for all models;
    capacity: it is left out for this model; transport, upstream: it counts as a failure."""
    status: tuple[Annotated[int, Field(ge=100, le=599)], ...] = ()
    """The HTTP statuses, or those that an error within a stream stands for; none: any."""
    type: re.Pattern[str] | None = None
    """A regular expression that the error's whole type must match."""
    code: re.Pattern[str] | None = None
    """A regular expression that the error's whole code must match."""
    text: re.Pattern[str] | None = None
    """A regular expression that is looked for in the error's message and body; (?i) at its begin
    makes capitals and small letters the same."""
    seconds: Seconds | None = Field(default=None, alias="for")
    """How long the account is left out; null: as the gateway finds right."""

    @model_validator(mode="after")
    def _check_not_empty(self) -> Self:
        if not (self.status or self.type or self.code or self.text):
            raise PydanticCustomError("rule", "fits everything: give status, type, code or text")
        if self.blame == "client" and self.seconds is not None:
            raise PydanticCustomError("rule", "for: a client's fault keeps no account out")
        return self
