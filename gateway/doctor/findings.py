"""What a check found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from gateway.core.value import value


class State(StrEnum):
    """A warning is worth knowing, or could not be checked; a problem breaks something."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@value
class Finding:
    """`subject` is what was checked, such as `database` or `chat-main/a1`. `remedy` is a command or
    a sentence, and None only where nothing has to be done. No field has a secret."""

    area: str
    subject: str
    state: State
    text: str
    remedy: str | None = None


def has_problem(findings: Iterable[Finding]) -> bool:
    return any(finding.state is State.PROBLEM for finding in findings)


class Area:
    """Findings of one area, in the order in which they were made."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.findings: list[Finding] = []

    def ok(self, subject: str, text: str) -> None:
        self.findings.append(Finding(self._name, subject, State.OK, text))

    def warn(self, subject: str, text: str, remedy: str) -> None:
        self.findings.append(Finding(self._name, subject, State.WARNING, text, remedy))

    def problem(self, subject: str, text: str, remedy: str) -> None:
        self.findings.append(Finding(self._name, subject, State.PROBLEM, text, remedy))
