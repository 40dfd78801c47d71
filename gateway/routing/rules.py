"""The operator's rules about failures, in the form that judges go by.

It must not know what a rule leads to.
"""

from __future__ import annotations

from collections.abc import Iterable

from gateway.config import FailureRule
from gateway.routing.judgement import Blame, PolicyRule


def compile_rules(rules: Iterable[FailureRule]) -> tuple[PolicyRule, ...]:
    """The rules of `Config.rules`, in their order: the first that fits decides."""
    return tuple(
        PolicyRule(
            blame=Blame(rule.blame),
            status=frozenset(rule.status),
            type=rule.type,
            code=rule.code,
            text=rule.text,
            seconds=rule.seconds,
        )
        for rule in rules
    )
