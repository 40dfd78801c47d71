"""`gateway doctor`: checks an installation, its upstreams and what clients need."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import click

from gateway.cli.client import Client, connect, quote_path
from gateway.cli.errors import CommandRefused, GatewayHangs, GatewayUnreachable, StateDirMissing
from gateway.cli.options import FILE, add_options, config_option, json_option
from gateway.cli.output import (
    Column,
    Record,
    print_json,
    print_note,
    print_row,
    print_table,
    state_cell,
)
from gateway.config.document import ConfigError
from gateway.config.load import load_config
from gateway.config.locate import find_config, find_state_dir
from gateway.config.schema import Config
from gateway.doctor.accounts import check_probes, check_skew, check_states
from gateway.doctor.configuration import check_channels, check_configuration, secret_files
from gateway.doctor.database import check_database
from gateway.doctor.files import check_files
from gateway.doctor.findings import Area, Finding, has_problem
from gateway.doctor.host import check_clock, check_process, check_versions, hanging_process
from gateway.doctor.network import check_network
from gateway.doctor.process import read_process
from gateway.doctor.servers import check_servers
from gateway.doctor.temporary import temporary_gateway

_PROBE_TIMEOUT: Final = 60.0

_COLUMNS: Final[dict[str, Column]] = {
    "State": state_cell,
    "Area": "area",
    "Subject": "subject",
    "Finding": "text",
}


_CLIENT_OPTIONS: Final = (
    click.option(
        "--client",
        type=click.Choice(["claude-code", "codex", "opencode", "aider", "openai", "anthropic"]),
        help="Replay what this client sends.",
    ),
    click.option("--base-url", help="The gateway's address, if not that of the configuration."),
    click.option(
        "--key-file", type=FILE, help="The key to use; default: $GATEWAY_KEY, else a new one."
    ),
    click.option("--group", default="default", show_default=True, help="The group of the new key."),
    click.option("--channel", "channels", multiple=True, help="Only this channel; repeatable."),
    click.option("--model", "models", multiple=True, help="Only this model; repeatable."),
    click.option("--all-models", is_flag=True, help="Every model, not the first of each channel."),
    click.option("--isolated", is_flag=True, help="Each channel alone, in a temporary gateway."),
    click.option("--yes", is_flag=True, help="Send the requests without asking."),
)


@click.command()
@config_option
@click.option("--state-dir", type=FILE, help="The state directory.")
@click.option("--probe", is_flag=True, help="Send one small real request to each account.")
@add_options(*_CLIENT_OPTIONS)
@json_option
def doctor(
    config: Path | None, state_dir: Path | None, probe: bool, as_json: bool, **options: Any
) -> None:
    """Check the installation: what is wrong, and what to do about it.

    Nothing is changed, and without --probe nothing is sent to an upstream. Exit code 1 if there is
    a problem; warnings are no problem.

    With --client: replay what that client sends against each channel, and say what breaks. The
    running gateway is used, with a key that is revoked at the end; without one, or with --isolated,
    a temporary gateway for each channel. These are real requests: their number is shown first.
    """
    file = find_config(config)
    if options["client"] is not None:
        _replay(file, state_dir, as_json=as_json, options=options)
        return
    findings = _check(file, state_dir, probe=probe)
    records = [
        {
            "area": each.area,
            "subject": each.subject,
            "state": each.state.value,
            "text": each.text,
            "remedy": each.remedy,
        }
        for each in findings
    ]
    failed = has_problem(findings)
    if as_json:
        print_json({"ok": not failed, "findings": records})
    else:
        print_findings(records)
        if not probe:
            click.echo("No upstream was asked: --probe sends each account a small request.")
    if failed:
        sys.exit(1)


def _replay(
    file: Path | None, directory: Path | None, *, as_json: bool, options: dict[str, Any]
) -> None:
    from gateway.cli.doctor_client import ReplayOptions, run_client

    config, _ = check_configuration(file, directory)
    state_dir = config.state_dir if config is not None else _state_dir(directory, file)
    run_client(ReplayOptions(as_json=as_json, **options), config, file, state_dir)


def print_findings(records: list[Record]) -> None:
    """The table of all, then what to do about those that are not ok."""
    print_table(records, _COLUMNS)
    open_ = [record for record in records if record["state"] != "ok"]
    if open_:
        click.echo("\nWhat to do:")
    for record in open_:
        print_row(state_cell(record), f"{record['subject']}: {record['remedy']}")
    problems = sum(record["state"] == "problem" for record in records)
    click.echo(f"\n{problems} problems, {len(open_) - problems} warnings, {len(records)} checks.")


def _check(file: Path | None, directory: Path | None, *, probe: bool) -> list[Finding]:
    config, findings = check_configuration(file, directory)
    state_dir = config.state_dir if config is not None else _state_dir(directory, file)
    running, hung, findings_of_socket = _ask_gateway(state_dir)
    findings += check_files(file, secret_files(config) if config is not None else (), state_dir)
    is_started = running is not None or hung is not None
    found, is_on_server = check_servers(file)
    findings += found
    if not is_on_server:
        findings += check_database(state_dir, running=is_started)
    server = (config or Config()).server
    if config is not None:
        findings += check_network(server, running=running is not None, hangs=hung is not None)
    findings += findings_of_socket
    pid = running["pid"] if running is not None else hung.pid if hung is not None else None
    if pid is not None or hung is None:
        findings += check_process(read_process(pid) if pid is not None else None, server)
    findings += check_clock()
    findings += check_versions(running["version"] if running is not None else None)
    if config is not None:
        findings += check_channels(file, config, running=is_started)
    if running is not None:
        findings += check_states(running["accounts"])
    if probe and config is not None:
        findings += _probe(config, file, directory, running=running is not None)
    return findings


def _state_dir(flag: Path | None, file: Path | None) -> Path:
    """Finds the state directory, also if the file cannot be read."""
    try:
        return find_state_dir(flag, file)
    except ConfigError:
        return find_state_dir(flag, None)


def _ask_gateway(state_dir: Path) -> tuple[Record | None, GatewayHangs | None, list[Finding]]:
    """Version, process id and accounts of the running gateway; None without one, or if it hangs."""
    area = Area("process")
    try:
        with connect(state_dir, may_serve=False) as client:
            about: Record = client.get("")
            return about | client.get("/accounts"), None, area.findings
    except GatewayHangs as error:
        return None, error, hanging_process(state_dir, error.pid)
    except GatewayUnreachable as error:
        if "No gateway runs" not in error.message:
            area.problem("gateway", error.message, "journalctl -u gateway -n 50")
    except StateDirMissing:
        pass  # the check of files says so
    except (CommandRefused, OSError) as error:
        area.warn("gateway", str(error), "run this command as the gateway's own user")
    return None, None, area.findings


def _probe(
    config: Config, file: Path | None, directory: Path | None, *, running: bool
) -> list[Finding]:
    """Probes the accounts by the running gateway, else by a temporary one with the same file."""
    area = Area("probe")
    findings = check_skew(config.channels)
    if running:
        with connect(config.state_dir, may_serve=False, timeout=_PROBE_TIMEOUT) as client:
            return findings + check_probes(_try_all(client))
    try:
        loaded = load_config(file, state_dir=directory)
    except ConfigError as error:
        remedy = "see the findings of channels; as a service, start it and run this command again"
        area.problem("accounts", f"not probed, as secrets are missing: {error}", remedy)
        return findings + area.findings
    with (
        temporary_gateway(loaded) as temporary,
        connect(temporary.state_dir, may_serve=False, timeout=_PROBE_TIMEOUT) as client,
    ):
        return findings + check_probes(_try_all(client))


def _try_all(client: Client) -> Iterator[Record]:
    states = client.get("/accounts")["accounts"]
    for channel, account in dict.fromkeys((each["channel"], each["account"]) for each in states):
        print_note(f"Probing {channel}/{account} ...")
        path = f"/accounts/{quote_path(channel)}/{quote_path(account)}/try"
        result: Record = client.post(path, None)
        yield result
