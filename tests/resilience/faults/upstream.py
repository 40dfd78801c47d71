"""An upstream that fails as it is told, by the URL it is asked at: `/s/<plan>/v1/...`.

A channel's `base_url` chooses the fault; `set_plan` overrules it, for one account, model or
endpoint. Requests of one account for one model at one endpoint take a plan's steps in turn.
Independent of the gateway; `scenarios` has the meaning of each step.
"""

from __future__ import annotations

import ssl
from collections import Counter
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from urllib.parse import quote, unquote

from gateway.core.formats import Format
from tests.resilience.faults.fault_dsl import parse_plan
from tests.resilience.faults.scenarios import play_step
from tests.support.upstream import ReceivedRequest, Script, ScriptedUpstream, run_upstream

_FRONT = "/s/"
_SOUND = "ok"


@dataclass(frozen=True, slots=True)
class _Rule:
    plan: str
    key: str | None
    model: str | None
    endpoint: str | None

    def fits(self, request: ReceivedRequest) -> bool:
        return (
            self.key in (None, request.key)
            and self.model in (None, request.model)
            and (self.endpoint is None or request.path.endswith(self.endpoint))
        )


class FaultUpstream(ScriptedUpstream):
    """The `target` of its requests is without the plan."""

    def __init__(self) -> None:
        super().__init__()
        self._rules: list[_Rule] = []
        self._turns: Counter[tuple[str, str, str, str]] = Counter()

    def base_url(self, upstream_format: Format, plan: str = _SOUND) -> str:
        """What stands in a channel of that format."""
        parse_plan(plan)
        base = f"{self.address}{_FRONT}{quote(plan, safe=':,*=')}"
        return base if upstream_format is Format.MESSAGES else f"{base}/v1"

    def set_plan(
        self,
        plan: str,
        *,
        key: str | None = None,
        model: str | None = None,
        endpoint: str | None = None,
    ) -> None:
        """From now on, whatever the URL says; the plan's turns begin anew. The last rule that fits
        a request counts. `endpoint` is how its path ends."""
        parse_plan(plan)
        rule = _Rule(plan, key, model, endpoint)
        self._rules = [each for each in self._rules if each != rule]
        self._rules.append(rule)
        for place in [each for each in self._turns if each[0] == plan and key in (None, each[1])]:
            del self._turns[place]

    def clear_plans(self) -> None:
        """The URL decides again."""
        self._rules.clear()

    def choose(self, request: ReceivedRequest) -> Script:
        request.plan = _SOUND
        if request.target.startswith(_FRONT):
            plan, _, target = request.target.removeprefix(_FRONT).partition("/")
            request.plan, request.target = unquote(plan), f"/{target}"
        rules = [rule for rule in self._rules if rule.fits(request)]
        request.plan = rules[-1].plan if rules else request.plan
        place = (request.plan, request.key, request.model, request.path)
        step = parse_plan(request.plan).step(self._turns[place])
        self._turns[place] += 1
        request.step = step.text
        return partial(play_step, step=step)


def fault_upstream(tls: ssl.SSLContext | None = None) -> AbstractAsyncContextManager[FaultUpstream]:
    """A fault upstream on a loopback port of its own."""
    return run_upstream(FaultUpstream(), tls)
