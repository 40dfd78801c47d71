"""The options of alerts: problems, defaults, secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.document import ConfigError
from gateway.config.load import load_config, parse_config
from gateway.config.monitoring import AlertKind
from gateway.config.redaction import Redactor

CANARY = "canary-alert-7f3a9c"
HOOK = 'name: a, url: "https://hooks.example/x"'


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("webhooks: [{name: a}]", "alerts.webhooks[0].url: is missing"),
        ('webhooks: [{name: a, url: "ftp://x/"}]', "must begin with http:// or https://"),
        ('webhooks: [{name: a, url: "https://u:p@x/"}]', "must not have a username"),
        ('webhooks: [{name: a, url: "http://x/"}]', "http:// needs allowed_networks"),
        (f"webhooks: [{{{HOOK}, events: []}}]", "events: must not be empty"),
        (f"webhooks: [{{{HOOK}, events: [budgets]}}]", "events[0]: must be"),
        (f"webhooks: [{{{HOOK}, format: teams}}]", "format: must be 'json' or 'slack'"),
        (f"webhooks: [{{{HOOK}, allowed_networks: [x]}}]", "must be a network such as"),
        (f"webhooks: [{{{HOOK}, timeout: 2m}}]", "timeout: must be less than or equal to 60"),
        (f"webhooks: [{{{HOOK}}}, {{{HOOK}}}]", "webhook name already used on line 1"),
        (f"webhooks: [{{{HOOK}, secrets: x}}]", "unknown key; did you mean secret?"),
        ("budget: [0]", "budget[0]: must be greater than or equal to 1"),
        ("error_rate: {above: 2}", "error_rate.above: must be less than or equal to 1"),
        ("disk_free: {percent: 101}", "disk_free.percent: must be less than or equal to 100"),
        ("check_every: 0.01", "check_every: must be greater than or equal to 0.05"),
    ],
)
def test_problems(options: str, problem: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(f"alerts: {{{options}}}", "f.yaml")
    (line,) = str(caught.value).splitlines()
    assert line.startswith("f.yaml:1: alerts")
    assert problem in line


def test_the_section_alone_switches_it_on() -> None:
    assert parse_config("channels: []").alerts is None
    alerts = parse_config("alerts: {}").alerts
    assert alerts is not None and alerts.error_rate is not None and alerts.disk_free is not None
    assert (alerts.webhooks, alerts.budget) == ((), (80, 100))
    assert (alerts.error_rate.window, alerts.disk_free.bytes) == (300, 2**30)
    alerts = parse_config("alerts: {error_rate: null, disk_free: null, budget: []}").alerts
    assert alerts is not None
    assert (alerts.error_rate, alerts.disk_free, alerts.budget) == (None, None, ())


def test_a_webhook_takes_all_events_or_those_that_it_lists() -> None:
    text = f"alerts: {{webhooks: [{{{HOOK}}}, {{name: b, url: 'https://x', events: [disk_low]}}]}}"
    alerts = parse_config(text).alerts
    assert alerts is not None
    first, second = alerts.webhooks
    assert all(first.takes(kind) for kind in AlertKind)
    assert [kind for kind in AlertKind if second.takes(kind)] == ["disk_low", "test"]


def test_secrets_are_resolved_hidden_and_redacted(tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    (tmp_path / "url").write_text(f"https://hooks.example/{CANARY}-1?token={CANARY}-2\n")
    hook = (
        f'{{name: a, url: "file:{tmp_path}/url", secret: "${{SECRET}}",'
        ' headers: {x-token: "${TOKEN}"}}'
    )
    file.write_text(f"alerts: {{webhooks: [{hook}]}}\n")
    file.chmod(0o644)
    config = load_config(file, env={"SECRET": f"{CANARY}-3", "TOKEN": f"{CANARY}-4"})
    assert config.alerts is not None
    (webhook,) = config.alerts.webhooks
    assert webhook.url.get_secret_value().endswith(f"{CANARY}-2")
    assert webhook.secret is not None
    assert webhook.secret.get_secret_value() == f"{CANARY}-3"
    assert CANARY not in repr(config) + str(config.model_dump()) + config.model_dump_json()
    text = f"/{CANARY}-1 token={CANARY}-2 {CANARY}-3 {CANARY}-4"
    assert CANARY not in Redactor.from_config(config).redact_secrets(text)
    unresolved = load_config(file, resolve_secrets=False, env={})
    assert unresolved.alerts is not None


@pytest.mark.parametrize("option", [f"secret: {CANARY}", f"headers: {{x-token: {CANARY}}}"])
def test_a_literal_secret_needs_a_private_file(tmp_path: Path, option: str) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(f"alerts: {{webhooks: [{{{HOOK}, {option}}}]}}\n")
    file.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        load_config(file, env={})
    assert "a literal key is accepted only in a file" in str(caught.value)
    assert CANARY not in str(caught.value)
    file.chmod(0o600)
    assert load_config(file, env={}).alerts is not None
