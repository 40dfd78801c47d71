"""`gateway doctor --client`: replays a client against each channel."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import aiohttp
import click
import orjson

from gateway.admin.units import format_count
from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused, GatewayUnreachable, report_config_errors
from gateway.cli.options import now_us
from gateway.cli.output import (
    Column,
    Record,
    print_json,
    print_note,
    print_row,
    print_table,
    state_cell,
)
from gateway.config.load import load_config
from gateway.config.schema import Config
from gateway.core.value import replace, value
from gateway.doctor.clients.plan import ChannelPlan, plan_isolated, plan_running
from gateway.doctor.clients.profile import Profile, load_profile
from gateway.doctor.clients.replay import (
    Attempt,
    Lookup,
    StepResult,
    Target,
    run_replay,
)
from gateway.doctor.clients.reply import Fault
from gateway.doctor.network import address_of
from gateway.doctor.temporary import temporary_gateway

KEY_VARIABLE: Final = "GATEWAY_KEY"
_KEY_LIFETIME_US: Final = 3600 * 1_000_000
_MAX_KEY_FILE: Final = 4096
_LOOKUP_TRIES: Final = 20
_LOOKUP_PAUSE: Final = 0.1
"""Seconds: the request log is written in batches."""
_INPUT_TOKENS: Final = 600
"""The input tokens of one request, about."""


@value(kw_only=True)
class ReplayOptions:
    """The options of the command; empty tuples for all."""

    client: str
    base_url: str | None
    key_file: Path | None
    group: str
    channels: tuple[str, ...]
    models: tuple[str, ...]
    all_models: bool
    isolated: bool
    yes: bool
    as_json: bool


class _Run:
    """One replay: its profile, what the user asked for, and the results so far."""

    def __init__(self, options: ReplayOptions) -> None:
        self.options = options
        self.profile: Profile = load_profile(options.client)
        self.results: list[StepResult] = []

    def choose(self, plans: Sequence[ChannelPlan]) -> list[ChannelPlan]:
        """Chooses the plans, each with its first model or the models that were named; asks before
        anything is sent."""
        chosen = []
        for plan in plans:
            models = plan.models
            if not (self.options.all_models or self.options.models):
                models = models[:1]
            chosen.append(replace(plan, models=models))
        self._confirm(sum(len(plan.models) for plan in chosen))
        return chosen

    def _confirm(self, models: int) -> None:
        if not models:
            return
        requests, output = self.profile.cost(models)
        text = (
            f"{self.profile.name} ({self.profile.source}): {requests} real requests, about "
            f"{format_count(requests * _INPUT_TOKENS)} input tokens and at most "
            f"{format_count(output)} output tokens."
        )
        if self.options.yes:
            print_note(text)
            return
        click.confirm(f"{text} Send them?", abort=True, err=True)

    def replay(self, plan: ChannelPlan, target: Target) -> None:
        if not plan.models:
            fault = Fault(
                f"not replayed: {plan.reason}",
                "--isolated replays against each channel alone; gateway route explains",
                breaks=False,
            )
            self.results.append(StepResult("all", "", (plan.channel or "",), (fault,), ()))
            return
        is_first = not any(each.requests for each in self.results)
        self.results += asyncio.run(
            run_replay(self.profile, plan.models, target, once=is_first, report=_report)
        )


def run_client(
    options: ReplayOptions, config: Config | None, file: Path | None, state_dir: Path
) -> None:
    """Prints the results; exit code 1 if something breaks."""
    run, key = _Run(options), _read_key(options.key_file)
    if options.isolated:
        _replay_isolated(run, file, state_dir)
    elif options.base_url is not None and key is not None:
        _replay_remote(run, options.base_url, key)
    elif _is_running(state_dir):
        with connect(state_dir, may_serve=False) as client:
            _replay_running(run, config, client, key)
    elif options.base_url is not None:
        where = options.base_url
        raise CommandRefused(f"A key is needed for {where}: --key-file, or ${KEY_VARIABLE}.")
    else:
        print_note("No gateway runs here: each channel gets a temporary one.")
        _replay_isolated(run, file, state_dir)
    _print(run)
    if any(result.state == "problem" for result in run.results):
        sys.exit(1)


def _read_key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(KEY_VARIABLE) or None
    try:
        with file.open("rb") as opened:
            return opened.read(_MAX_KEY_FILE).decode("ascii", "replace").strip()
    except OSError as error:
        raise CommandRefused(f"{file}: {error.strerror}.") from None


def _is_running(state_dir: Path) -> bool:
    """Whether this command can use the gateway's admin socket."""
    try:
        with connect(state_dir, may_serve=False):
            return True
    except (GatewayUnreachable, CommandRefused):
        return False


def _replay_remote(run: _Run, base_url: str, key: str) -> None:
    """Replays against what answers at an address; its channels are known if it names them."""
    address = _without_path(base_url)
    models = run.options.models or tuple(asyncio.run(_list_models(address, key)))
    target = Target(address, key, _no_attempts)
    for plan in run.choose([ChannelPlan(channel=None, models=tuple(models), reason="no models")]):
        run.replay(plan, target)


def _replay_running(run: _Run, config: Config | None, client: Client, key: str | None) -> None:
    options = run.options
    if options.base_url is None and config is None:
        raise CommandRefused("The address is unknown without a configuration: --base-url URL.")
    address = _without_path(options.base_url or address_of((config or Config()).server))
    with _key(client, options.group, key) as secret:
        target = Target(address, secret, _lookup(client))
        _replay_channels(run, client, target)


def _replay_channels(run: _Run, client: Client, target: Target) -> None:
    """Replays against all channels of a gateway whose admin socket answers."""
    options = run.options

    def route(model: str) -> Record:
        preview: Record = client.get(
            "/route", group=options.group, model=model, format=run.profile.format.value
        )
        return preview

    accounts = client.get("/accounts")["accounts"]
    channels = list(dict.fromkeys(each["channel"] for each in accounts))
    if unknown := [name for name in options.channels if name not in channels]:
        raise CommandRefused(f"There is no channel {unknown[0]}; there are {', '.join(channels)}.")
    models = options.models or tuple(asyncio.run(_list_models(target.address, target.key)))
    for plan in run.choose(plan_running(channels, models, route, options.channels)):
        run.replay(plan, target)


def _replay_isolated(run: _Run, file: Path | None, state_dir: Path) -> None:
    options = run.options
    with report_config_errors(as_json=options.as_json):
        config = load_config(file, state_dir=state_dir)
    names = [channel.name for channel in config.channels]
    if unknown := [name for name in options.channels if name not in names]:
        raise CommandRefused(f"There is no channel {unknown[0]}; there are {', '.join(names)}.")
    plans = plan_isolated(config, run.profile.format, options.models, options.channels)
    for plan in run.choose(plans):
        with (
            temporary_gateway(config, plan.channel) as temporary,
            connect(temporary.state_dir, may_serve=False) as client,
            _key(client, "default", None) as secret,
        ):
            run.replay(plan, Target(temporary.address, secret, _lookup(client)))


@contextmanager
def _key(client: Client, group: str, given: str | None) -> Iterator[str]:
    """The given key, or one that is revoked at the end, and expires should that fail."""
    if given is not None:
        yield given
        return
    expiry = now_us() + _KEY_LIFETIME_US
    created = client.post("/keys", {"name": "doctor", "group": group, "expires_at": expiry})
    try:
        yield created["key"]
    finally:
        client.delete(f"/keys/{quote_path(created['id'])}")


def _lookup(client: Client) -> Lookup:
    """Looks attempts up in a thread, as a client of the admin socket is synchronous."""

    def read(request_id: str) -> list[Record] | None:
        try:
            row = client.get(f"/requests/{quote_path(request_id)}")
        except CommandRefused:
            return None
        if row["state"] == "running":
            return None
        attempts: list[Record] = client.get(f"/requests/{quote_path(request_id)}/attempts")[
            "attempts"
        ]
        return attempts

    async def lookup(request_id: str) -> list[Attempt]:
        for _ in range(_LOOKUP_TRIES):
            if (rows := await asyncio.to_thread(read, request_id)) is not None:
                fields = ("channel", "account", "lane", "status", "error")
                return [Attempt(*(row[name] for name in fields)) for row in rows]
            await asyncio.sleep(_LOOKUP_PAUSE)
        return []

    return lookup


async def _no_attempts(request_id: str) -> Sequence[Attempt]:
    return ()


async def _list_models(address: str, key: str) -> list[str]:
    headers = {"authorization": f"Bearer {key}"}
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as session,
            session.get(f"{address}/v1/models", headers=headers) as response,
        ):
            body = orjson.loads(await response.read())
            if response.status != 200:
                raise CommandRefused(f"{address}/v1/models: {response.status} {body.get('error')}")
            return [str(each["id"]) for each in body["data"]]
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise CommandRefused(
            f"{address} cannot be reached ({error}): give the address with --base-url."
        ) from None
    except (orjson.JSONDecodeError, KeyError, TypeError, AttributeError):
        raise CommandRefused(f"{address}/v1/models is no list of models.") from None


def _without_path(base_url: str) -> str:
    """Clients of chat have /v1 in it."""
    url = urlsplit(base_url)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise CommandRefused(f"{base_url} is no address: it begins with http:// or https://.")
    return base_url.rstrip("/").removesuffix("/v1")


def _report(result: StepResult) -> None:
    print_note(f"{result.state.value:8} {result.model or 'gateway'}: {result.step}")


_COLUMNS: Final[dict[str, Column]] = {
    "State": state_cell,
    "Channel": lambda record: ", ".join(record["channels"]) or None,
    "Model": lambda record: record["model"] or None,
    "Step": "step",
    "Finding": lambda record: "; ".join(
        [*(fault["text"] for fault in record["faults"]), *record["notes"]]
    ),
}


def _print(run: _Run) -> None:
    records: list[Record] = [
        {
            "client": run.profile.name,
            "step": result.step,
            "model": result.model,
            "channels": list(result.channels),
            "state": result.state.value,
            "faults": [
                {"text": fault.text, "remedy": fault.remedy, "breaks": fault.breaks}
                for fault in result.faults
            ],
            "notes": list(result.notes),
            "requests": list(result.requests),
        }
        for result in run.results
    ]
    works = not any(record["state"] == "problem" for record in records)
    if run.options.as_json:
        print_json({"ok": works, "client": run.profile.name, "steps": records})
        return
    print_table(records, _COLUMNS)
    _print_remedies(records)
    verdict = "works" if works else "does not work with all of these channels and models"
    click.echo(f"\n{run.profile.name} {verdict}: {len(records)} steps.")


def _print_remedies(records: Sequence[Record]) -> None:
    """Prints each remedy once, with the places that it concerns."""
    places: dict[str, list[str]] = {}
    for record in records:
        where = " ".join((*record["channels"], record["step"]))
        if record["requests"]:
            where += f" ({record['requests'][-1]})"
        for remedy in dict.fromkeys(fault["remedy"] for fault in record["faults"]):
            places.setdefault(remedy, []).append(where)
    if places:
        click.echo("\nWhat to do:")
    for remedy, concerned in places.items():
        print_row(f"- {remedy}")
        print_row(f"  for {', '.join(concerned)}")
