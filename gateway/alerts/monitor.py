"""The task that checks all conditions, and tells the webhooks what has begun and what is over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Any, Final, NoReturn

from gateway.admin.api.alerts import AlertView, WebhookTest
from gateway.alerts.conditions import (
    Condition,
    DiskProbe,
    account_conditions,
    budget_conditions,
    disk_condition,
    error_rate_condition,
    gateway_conditions,
)
from gateway.alerts.delivery import Delivery, DeliveryFailed, Message, build_message
from gateway.alerts.error_rate import ErrorCounter
from gateway.alerts.incidents import Incident, Incidents, Status, new_incident_id
from gateway.alerts.replicas import Report, exchange, merge
from gateway.alerts.webhook_queue import Retries, WebhookQueue
from gateway.config.monitoring import AlertKind, Alerts, Webhook
from gateway.runtime import Runtime
from gateway.scheduler import running
from gateway.store.database import Database
from gateway.store.errors import StoreError, error_reason
from gateway.store.records import Token
from gateway.store.settings import load_alerts, save_alerts

MAX_EVENTS: Final = 100
"""Keys that are reported for new clients at a time."""
BUDGETS_SHARE: Final = 0.02
"""The share of the time that checks of budgets may take at most."""
MAX_KNOWN_CLIENTS: Final = 5000
"""Announced clients of keys that are remembered."""

_IDLE: Final = 1.0
"""Seconds between two looks at the configuration, while there is no section `alerts`."""
_CLOSE_TIMEOUT: Final = 2.0

log = logging.getLogger(__name__)


class AlertMonitor:
    """Watches one runtime."""

    def __init__(
        self,
        runtime: Runtime,
        database: Database,
        delivery: Delivery | None = None,
        retries: Retries | None = None,
    ) -> None:
        self._runtime = runtime
        self._database = database
        self._delivery = delivery or Delivery(runtime.now)
        self._retries = retries or Retries()
        self._incidents = Incidents()
        self._queues: dict[str, WebhookQueue] = {}
        self._errors = ErrorCounter()
        self._budgets: list[Condition] = []
        self._budgets_due = 0.0
        self._disk = DiskProbe(runtime.config.state_dir)
        self._new_clients: dict[str, tuple[Token, str]] = {}
        self._clients: Sequence[tuple[str, str]] = ()
        self._reported: list[tuple[str, str]] = []
        self._has_announced = False
        self._known_clients: dict[str, None] = {}  # digests of what was announced, oldest first
        self._started = asyncio.get_running_loop().time()
        self._undelivered: dict[str, list[Message]] = {}  # of an earlier run
        self._is_changed = False
        self._storing_problem = ""
        self._failure = ""

    def note_new_client(self, token: Token, origin: str) -> None:
        """A key is used by a new client; of several between two checks the last is reported."""
        is_watched = self._runtime.config.alerts is not None
        if is_watched and len(self._new_clients) < MAX_EVENTS:
            self._new_clients[token.id] = token, origin

    def firing(self) -> list[AlertView] | None:
        """Returns what fires now, oldest first; None if the configuration has no alerts."""
        if self._runtime.config.alerts is None:
            return None
        return [
            AlertView(
                id=each.id,
                alert=each.kind,
                severity=each.severity,
                subject=each.subject,
                summary=each.summary,
                details=each.details,
                since=each.since,
                deliveries=each.deliveries,
            )
            for each in self._incidents
        ]

    def held_back(self) -> dict[str, int]:
        return {kind.value: number for kind, number in self._incidents.held_back.items()}

    def webhooks(self) -> list[str]:
        """The names of those of the configuration."""
        return [each.name for each in self._webhooks()]

    async def test(self, names: Sequence[str]) -> list[WebhookTest]:
        """Sends a message to these webhooks at once, past their queues."""
        text, now = "This is a test of the webhook.", self._runtime.now()
        incident = _event(AlertKind.TEST, "test", text, {}, now)
        message = build_message(incident, Status.EVENT, self._runtime.config, now)
        webhooks = [each for each in self._webhooks() if each.name in names]
        return await asyncio.gather(*(self._test(each, message) for each in webhooks))

    async def _test(self, webhook: Webhook, message: Message) -> WebhookTest:
        loop = asyncio.get_running_loop()
        started, error = loop.time(), None
        try:
            await self._delivery.send(webhook, message)
        except DeliveryFailed as failed:
            error = str(failed)
        seconds = round(loop.time() - started, 3)
        return WebhookTest(webhook=webhook.name, ok=error is None, error=error, seconds=seconds)

    def _webhooks(self) -> Sequence[Webhook]:
        settings = self._runtime.config.alerts
        return settings.webhooks if settings is not None else ()

    async def load(self) -> None:
        """Loads what earlier runs have announced. Call it once, before `run`."""
        stored = await load_alerts(self._database)
        try:
            self._incidents.restore(stored.get("firing", ()))
            self._undelivered = {str(k): list(v) for k, v in stored.get("waiting", {}).items()}
            self._known_clients = dict.fromkeys(stored.get("clients", ()))
        except (KeyError, TypeError, ValueError):
            log.warning("what alerts had announced could not be read: some may be repeated")

    async def run(self) -> NoReturn:
        while True:
            settings = self._runtime.config.alerts
            try:
                await self.check()
                self._failure = ""
            except Exception as error:  # the next round tries again
                self._note_failure(error)
            await asyncio.sleep(_IDLE if settings is None else settings.check_every)

    async def check(self) -> None:
        """Runs one round. Of several replicas one announces; the others report to it."""
        settings = self._runtime.config.alerts
        if not await self._announces():
            if settings is not None:
                await exchange(
                    self._runtime, await self._own_report(settings), settings.check_every
                )
            return
        await self._apply(settings)
        if settings is None:
            await self._save()
            return
        runtime, now = self._runtime, asyncio.get_running_loop().time()
        conditions = await self._conditions(settings, now)
        at = runtime.now()
        changes = self._incidents.update(conditions, settings.clear_after, now, at)
        changes += [(each, Status.EVENT) for each in self._events(self._clients, at)]
        messages = [self._message(incident, status, at) for incident, status in changes]
        if changes:
            self._is_changed = True
        for queue in self._queues.values():
            queue.put(each for each in messages if queue.webhook.takes(AlertKind(each["alert"])))
        await self._save()

    async def close(self) -> None:
        """Sends what can be sent at once; the rest is kept for the next run."""
        closing = (queue.close(_CLOSE_TIMEOUT) for queue in self._queues.values())
        await asyncio.gather(*closing)
        self._observe(False)
        if not self._runtime.fleet.is_replica or self._has_announced:
            await self._save()

    async def _announces(self) -> bool:
        """Whether this replica does. One that begins to goes on where the earlier one ended; one
        that does not shows what was announced."""
        announces = self._runtime.fleet.is_leader
        if not self._runtime.fleet.is_replica:
            return True
        if self._has_announced and not announces:
            await asyncio.gather(*(queue.close() for queue in self._queues.values()))
            self._queues.clear()
        if not (self._has_announced and announces):
            self._incidents.clear()
            await self.load()
        self._has_announced = announces
        return announces

    async def _own_report(self, settings: Alerts) -> Report:
        """Reports what only this replica sees."""
        now = asyncio.get_running_loop().time()
        report = Report(list(gateway_conditions(self._runtime)))
        if settings.disk_free is not None:
            space = await self._disk.measure()
            report.conditions.append(disk_condition(settings.disk_free, space))
        self._observe(settings.error_rate is not None)
        if settings.error_rate is not None:
            report.requests, report.failed = self._errors.rate(settings.error_rate.window, now)
        taken, self._new_clients = self._new_clients, {}
        report.clients = [(token.id, origin) for token, origin in taken.values()]
        if self._runtime.fleet.is_replica:  # again: the other one may miss a report
            self._reported = (self._reported + report.clients)[-MAX_EVENTS:]
            report.clients = list(self._reported)
        return report

    async def _conditions(self, settings: Alerts, now: float) -> list[Condition]:
        runtime, own = self._runtime, await self._own_report(settings)
        others = await exchange(runtime, own, settings.check_every)
        report = merge(own, others)
        self._clients = report.clients
        found = [*account_conditions(runtime, now), *report.conditions]
        found += await self._budget_conditions(settings, now)
        if (rate := settings.error_rate) is not None:
            counts = report.requests, report.failed
            is_complete = now - self._started > rate.window
            found.append(error_rate_condition(rate, *counts, complete=is_complete))
        return found

    async def _budget_conditions(self, settings: Alerts, now: float) -> list[Condition]:
        """Checks budgets; those of many keys take long, and are checked less often: `BUDGETS_SHARE`
        of the time."""
        if now >= self._budgets_due:
            self._budgets = await budget_conditions(self._runtime, settings.budget)
            took = asyncio.get_running_loop().time() - now
            self._budgets_due = now + took / BUDGETS_SHARE
        return self._budgets

    async def _apply(self, settings: Alerts | None) -> None:
        """The webhooks and the counter of the current configuration."""
        webhooks = {each.name: each for each in settings.webhooks} if settings is not None else {}
        for name, queue in list(self._queues.items()):
            if webhooks.get(name) != queue.webhook:
                del self._queues[name]
                await queue.close()
                if queue.waiting:
                    self._undelivered[name] = queue.waiting
        for name, webhook in webhooks.items():
            if name not in self._queues:
                queue = WebhookQueue(
                    webhook,
                    self._delivery,
                    self._retries,
                    self._note_result,
                    self._runtime.random_float,
                )
                self._queues[name] = queue
                queue.put(self._undelivered.pop(name, ()))
        if self._undelivered:
            for name, messages in self._undelivered.items():
                log.warning("webhook %s is gone: %d messages are given up", name, len(messages))
            self._undelivered, self._is_changed = {}, True
        if settings is None and self._incidents.clear():
            self._is_changed = True
        self._observe(settings is not None and settings.error_rate is not None)

    def _observe(self, wanted: bool) -> None:
        """Counts failed requests, or no longer."""
        runtime, observe = self._runtime, self._errors.observe
        if wanted is not (observe in runtime.observers):
            others = tuple(each for each in runtime.observers if each != observe)
            runtime.observers = (*others, observe) if wanted else others

    def _events(self, clients: Sequence[tuple[str, str]], at: int) -> list[Incident]:
        """Returns new clients that were never announced: after a restart each is new once more."""
        events = []
        for token_id, origin in clients:
            digest = blake2b(f"{token_id} {origin}".encode(), digest_size=8).hexdigest()
            token = self._runtime.registry.token(token_id)
            if digest in self._known_clients or token is None:
                continue
            self._known_clients[digest] = None
            if len(self._known_clients) > MAX_KNOWN_CLIENTS:
                del self._known_clients[next(iter(self._known_clients))]
            text = f"Key {token.name} is used by a new client: {origin}."
            details = {"key": token.id, "client": origin}
            kind = AlertKind.KEY_NEW_CLIENT
            events.append(_event(kind, f"key {token.name}", text, details, at))
        return events

    def _message(self, incident: Incident, status: Status, at: int) -> Message:
        level = logging.INFO if status is Status.RESOLVED else logging.WARNING
        log.log(level, "alert %s %s: %s", incident.kind, status, incident.summary)
        if status is Status.FIRING:
            incident.deliveries = {
                name: "waiting"
                for name, queue in self._queues.items()
                if queue.webhook.takes(incident.kind)
            }
        return build_message(incident, status, self._runtime.config, at)

    def _note_result(self, webhook: str, message: Message, result: str) -> None:
        self._is_changed = True
        incident = self._incidents.find(message["incident"])
        if incident is not None and message["status"] == Status.FIRING:
            incident.deliveries[webhook] = result

    def _note_failure(self, error: Exception) -> None:
        """Notes a failure once, however long a database server cannot be reached."""
        reason = error_reason(error)
        if reason != self._failure:
            self._failure = reason
            is_expected = isinstance(error, StoreError)
            log.error("alerts cannot be checked: %s", reason, exc_info=not is_expected)

    async def _save(self) -> None:
        """A failure, such as a full disk, must not stop the messages about it."""
        if not self._is_changed:
            return
        state: dict[str, Any] = {
            "firing": [incident.stored() for incident in self._incidents],
            "waiting": {name: q.waiting for name, q in self._queues.items() if q.waiting},
            "clients": list(self._known_clients),
        }
        self._is_changed, problem = False, ""
        try:
            await save_alerts(self._database, state)
        except Exception as error:  # the next round tries again
            self._is_changed, problem = True, error_reason(error)
        if problem and problem != self._storing_problem:
            log.warning(
                "the state of alerts cannot be stored, a restart might repeat some: %s", problem
            )
        elif self._storing_problem and not problem:
            log.info("the state of alerts is stored again")
        self._storing_problem = problem


@asynccontextmanager
async def run_alerts(runtime: Runtime, database: Database) -> AsyncIterator[AlertMonitor]:
    """Checks conditions for the time of the block."""
    monitor = AlertMonitor(runtime, database)
    await monitor.load()
    runtime.key_origins.on_new_origin = monitor.note_new_client
    try:
        async with running(monitor.run()):
            yield monitor
    finally:
        await monitor.close()


def _event(
    kind: AlertKind, subject: str, summary: str, details: dict[str, Any], at: int
) -> Incident:
    return Incident(new_incident_id(), kind, "", at, subject, summary, details)
