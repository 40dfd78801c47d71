"""`gateway key`: output, exit codes and errors."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.admin.reload import ConfigSource
from gateway.cli.output import format_time
from gateway.config.load import load_config
from gateway.core.formats import Format
from gateway.core.limits import DIMENSION_BUDGETS, LIMIT_NAMES
from gateway.daemon import run_daemon
from gateway.store.keys import digest, well_formed
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.cli.running_gateway import running_gateway
from tests.support.cases import in_one_test
from tests.support.gateway import channel
from tests.support.loop_thread import run_in_thread

UNSET = (
    *("last_used_at", "note", "expires_at", "models", "addresses", "user_agents", "trust"),
    *DIMENSION_BUDGETS,
    *("old_display", "old_expires_at", "first_used_at", "first_address", "first_agent"),
    *("changed_at", "changed"),
)


def test_only_the_key_is_on_stdout(shell: CommandRunner) -> None:
    result = shell("key", "mint", "--name", "alice")
    assert result.exit_code == 0
    assert well_formed(result.stdout.removesuffix("\n"))
    assert ") in group default of " in result.stderr
    assert str(shell.state_dir) in result.stderr
    assert "sk-" not in result.stderr
    assert stat.S_IMODE(shell.state_dir.stat().st_mode) == 0o700
    assert sorted(path.name for path in shell.state_dir.iterdir()) == ["gateway.db", "lock"]


def test_json_output(shell: CommandRunner) -> None:
    created = shell.create_key("Ünïcode 名前", group="default")
    key = created.pop("key")
    assert well_formed(key)
    assert created == {
        "id": created["id"],
        "name": "Ünïcode 名前",
        "display": f"{key[:7]}...{key[-4:]}",
        "group": "default",
        "state": "active",
        "created_at": created["created_at"],
        "revoked_at": None,
        "requests": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "cost_micro": 0,
        "usd_micro": 0,
        "probe": False,
        "let_run": False,
        "cost_in_usage": False,
        "refused": None,
        "limits": dict.fromkeys(LIMIT_NAMES),
    } | dict.fromkeys(UNSET)
    assert shell.items("key", "list") == [created]
    names = [f"budget{each}{window}" for each in ("", "_usd") for window in ("", "_day", "_month")]
    spent = {"spent_micro": dict.fromkeys(names, 0)}
    assert shell.json("key", "show", "Ünïcode 名前") == created | spent
    assert shell.json("key", "show", created["id"]) == created | spent
    assert shell.json("key", "revoke", created["id"])["state"] == "revoked"


def test_the_tables(shell: CommandRunner) -> None:
    created = shell.create_key("Ünïcode 名前")
    for command in (("list",), ("show", created["id"])):
        result = shell("key", *command)
        assert result.exit_code == 0
        assert created["id"] in result.stdout
        assert "Ünïcode 名前" in result.stdout
        assert created["display"] in result.stdout
        assert created["key"] not in result.stdout
        assert "\x1b" not in result.stdout, "no colours where nobody looks"


def test_a_running_gateway_applies_changes_immediately(
    shell: CommandRunner, gateway: AdminGateway
) -> None:
    created = shell.create_key("alice")
    token = gateway.registry.find(digest(created["key"]))
    assert token is not None
    assert token.id == created["id"]
    result = shell("key", "revoke", "alice")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"alice ({created['id']}) revoked." in result.stderr
    assert gateway.registry.find(digest(created["key"])) is None


def test_revoking_twice(shell: CommandRunner) -> None:
    shell.create_key("alice")
    shell("key", "revoke", "alice")
    result = shell("key", "revoke", "alice")
    assert result.exit_code == 0
    assert "was already revoked at " in result.stderr


def test_an_ambiguous_name(shell: CommandRunner) -> None:
    first, second = shell.create_key("alice"), shell.create_key("alice")
    for command in ("show", "revoke"):
        result = shell("key", command, "alice")
        assert result.exit_code == 1
        assert "2 keys have the name alice; use an id:" in result.stderr
        assert first["id"] in result.stderr
        assert second["id"] in result.stderr
    assert shell("key", "revoke", first["id"]).exit_code == 0
    assert shell.json("key", "revoke", "alice")["id"] == second["id"], "one is left to mean"


def test_a_name_that_looks_like_an_id(shell: CommandRunner) -> None:
    first = shell.create_key("alice")
    shell.create_key(first["id"])
    assert shell.json("key", "show", first["id"])["name"] == "alice"


@pytest.fixture
def alice(shell: CommandRunner) -> Iterator[None]:
    """A key that no refused command changes."""
    created = shell.create_key("alice")
    yield
    del created["key"]
    assert shell.items("key", "list") == [created]


@in_one_test(
    ("arguments", "code", "message"),
    [
        (("mint", "--name", "bob", "--group", "nope"), 1, "no group nope; the groups are: default"),
        (("mint", "--name", " bob"), 1, "--name: must not begin or end with a blank"),
        (("mint", "--name", "bob\x1b[2J"), 1, "--name: must not have control characters"),
        (("mint",), 2, "Missing option '--name'"),
        (("mint", "--name", "bob", "sk-mine"), 2, "unexpected extra argument"),
        (("mint", "--name", "bob", "--expires", "soon"), 2, "must be a date such as 2026-12-31"),
        (("mint", "--name", "bob", "--expires", "2020-01-01"), 1, "must be in the future"),
        (("mint", "--name", "bob", "--budget", "5X"), 2, "must be units such as 5M, 250k or 0.5"),
        (("mint", "--name", "bob", "--rpm", "-1"), 2, "must be a whole number such as 600"),
        (("mint", "--name", "bob", "--addresses", "10.0.0.1/8"), 1, "write 10.0.0.0/8 for all"),
        (("mint", "--name", "=1+1"), 1, "--name: must not begin with = + - or @"),
        (("set", "alice", "--addresses", "10.0.0"), 1, "Error: --addresses: must be an address"),
        (
            ("set", "alice", "--models", "*", "--models", "a b"),
            1,
            "Error: --models, value 2: must be one id",
        ),
        (("set", "alice", "--budget-day", "1001G"), 2, "must be at most 1000G"),
        (("set", "alice", "--user-agents", "re:("), 1, "Error: --user-agents: is no regular"),
        (
            ("set", "alice", "--trust", "tag", "--budget-usd-day-per-user", "2"),
            1,
            "Error: --budget-usd-day-per-user: This budget needs a key that trusts end-user",
        ),
        (("mint", "--name", "b", "--budget-day-per-session", "1"), 1, "trusts session: trust"),
        (("set", "alice"), 2, "Nothing to change: give at least one option"),
        (("set", "bob", "--rpm", "1"), 1, "No key has the id or name bob."),
        (("set", "alice", "--group", "nope"), 1, "There is no group nope"),
        (("rotate", "alice", "--overlap", "never"), 2, "must be a duration such as 30d, 24h"),
        (("rotate", "alice", "--overlap", "400d"), 1, "overlap_s: Input should be less"),
        (("rotate", "bob"), 1, "No key has the id or name bob."),
        (("disable", "bob"), 1, "No key has the id or name bob."),
        (("show", "bob"), 1, "No key has the id or name bob."),
        (("revoke", "bob"), 1, "No key has the id or name bob."),
    ],
)
def test_refusals(
    shell: CommandRunner, alice: None, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = shell("key", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "\x1b" not in result.stderr


def test_a_secret_is_never_repeated(shell: CommandRunner) -> None:
    key = shell("key", "mint", "--name", "ada").stdout.splitlines()[-1]
    result = shell("key", "revoke", key)
    assert result.exit_code == 1
    assert "use the key's id" in result.stderr
    assert key not in result.stderr + result.stdout


def test_all_settings_of_a_key(shell: CommandRunner) -> None:
    options = (
        *("--expires", "2099-12-31", "--note", "for the team", "--probe"),
        *("--models", "beta-*", "--models", "family:alpha", "--addresses", "10.0.0.0/8"),
        *("--user-agents", "codex", "--user-agents", "re:claude.*"),
        *("--trust", "end-user", "--trust", "tag=x-team"),
        *("--rpm", "600", "--tpm", "100k", "--concurrent", "0"),
        *("--budget", "5M", "--budget-day", "1.5k", "--budget-month", "0.000001"),
        *(
            "--budget-5h",
            "2",
            "--budget-week",
            "3",
            "--budget-usd",
            "50",
            "--budget-usd-5h",
            "$1.5",
        ),
        *("--budget-usd-day", "0", "--budget-usd-week", "20", "--budget-usd-month", "1k"),
        *("--trust", "session=x-chat", "--budget-day-per-user", "2.5"),
        *("--budget-usd-day-per-user", "2", "--budget-day-per-session", "1k"),
        *("--budget-usd-day-per-session", "$0.5"),
    )
    created = shell.json("key", "mint", "--name", "alice", *options)
    limits = {
        "requests_per_minute": 600,
        "tokens_per_minute": 100_000,
        "concurrent": 0,
        "budget": 5_000_000_000_000,
        "budget_5h": 2_000_000,
        "budget_day": 1_500_000_000,
        "budget_week": 3_000_000,
        "budget_month": 1,
        "budget_usd": 50_000_000,
        "budget_usd_5h": 1_500_000,
        "budget_usd_day": 0,
        "budget_usd_week": 20_000_000,
        "budget_usd_month": 1_000_000_000,
    }
    settings = {
        "expires_at": 4_102_358_400_000_000,
        "note": "for the team",
        "probe": True,
        "models": ["beta-*", "family:alpha"],
        "addresses": ["10.0.0.0/8"],
        "user_agents": ["codex", "re:claude.*"],
        "trust": ["end-user", "tag=x-team", "session=x-chat"],
        "limits": limits,
        "budget_day_per_user": 2_500_000,
        "budget_usd_day_per_user": 2_000_000,
        "budget_day_per_session": 1_000_000_000,
        "budget_usd_day_per_session": 500_000,
    }
    assert {name: created[name] for name in settings} == settings
    key = created.pop("key")
    changed = shell.json(
        "key",
        "set",
        "alice",
        *("--name", "ada", "--expires", "never", "--note", "none", "--models", "none"),
        *("--rpm", "none", "--budget", "6M", "--no-probe"),
    )
    now = limits | {"requests_per_minute": None, "budget": 6_000_000_000_000}
    fields = {"name": "ada", "expires_at": None, "note": None, "models": None, "probe": False}
    assert changed == created | fields | {"limits": now}
    assert key not in str(changed)


def test_a_pattern_without_models_is_a_warning(shell: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("models:\n  - {id: beta-5.4, family: beta}\n")
    place = ("--config", str(file))
    models = ("--models", "beta-*", "--models", "alpha-*")
    for command in (("mint", "--name", "alice"), ("set", "alice")):
        result = shell("key", *command, *models, *place)
        assert result.exit_code == 0
        assert f"Warning: alpha-* matches no model of {file}." in result.stderr
        assert "Warning: beta-*" not in result.stderr


OTHER_FILE = """
state_dir: elsewhere
money: {unit_price: 5, currency: USD}
models: [{id: other-model, family: beta}]
"""


def test_the_file_of_another_gateway_says_nothing_of_a_key(
    shell: CommandRunner, tmp_path: Path
) -> None:
    """It warned of models that this file does not have, and showed costs by its prices."""
    file = tmp_path / "config" / "channels.yaml"
    file.parent.mkdir()
    file.write_text(OTHER_FILE)
    arguments = ("key", "mint", "--name", "alice", "--models", "beta-*", "--budget-usd", "5")
    assert "Warning" not in shell(*arguments).stderr
    assert "5.00 USD" not in shell("key", "show", "alice").stdout.split("Cost")[1]
    named = shell(*arguments, "--config", str(file))
    assert f"Warning: beta-* matches no model of {file}." in named.stderr
    file.write_text(OTHER_FILE.replace("elsewhere", str(shell.state_dir)))
    own = shell(*arguments)
    assert "Warning: beta-* matches no model of config/channels.yaml." in own.stderr


def test_a_running_gateway_says_which_file_is_its_own(shell: CommandRunner, tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "channels.yaml").write_text(OTHER_FILE)
    own = tmp_path / "own.yaml"
    own.write_text(f"state_dir: {shell.state_dir}\nmodels: [{{id: beta-5.4, family: beta}}]\n")
    source = ConfigSource(own, lambda: load_config(own))
    with run_in_thread(run_daemon(source.read(), source)):
        arguments = ("key", "mint", "--name", "alice", "--models", "beta-*", "--models", "alpha-*")
        result = shell(*arguments)
    assert f"Warning: alpha-* matches no model of {own}." in result.stderr
    assert "beta-*" not in result.stderr
    assert "Every request of it is refused: no models." in result.stderr


def test_a_key_whose_every_request_is_refused_is_not_active(shell: CommandRunner) -> None:
    """All of them were, but for the one that has expired."""
    with running_gateway(shell.state_dir, lambda _: []):
        assert [key["refused"] for key in shell.items("key", "list")] == ["no models"]
        assert "no models" in shell("key", "list").stdout
    served = channel(Format.CHAT, "http://127.0.0.1:9/v1")
    with running_gateway(shell.state_dir, lambda _: [served]):
        shell.create_key("spent", budget="0")
        shell.create_key("closed", rpm="0")
        states = {key["name"]: key["refused"] for key in shell.items("key", "list")}
        assert states == {"tests": None, "spent": "budget used up", "closed": "limit of 0"}
        changed = shell("key", "set", "spent", "--note", "x")
        assert "Every request of it is refused: budget used up." in changed.stderr
        assert "budget used up" in shell("key", "show", "spent").stdout
        assert shell.json("key", "show", "closed")["refused"] == "limit of 0"


def test_a_rotated_key(shell: CommandRunner, gateway: AdminGateway) -> None:
    created = shell.create_key("alice")
    result = shell("key", "rotate", "alice")
    second = result.stdout.removesuffix("\n")
    assert well_formed(second)
    assert f"The old key, {created['display']}, works until " in result.stderr
    for key in (created["key"], second):
        token = gateway.registry.find(digest(key))
        assert token is not None
        assert token.id == created["id"]
    result = shell("key", "show", "alice")
    assert f"{created['display']} works until " in result.stdout
    result = shell("key", "rotate", "alice", "--overlap", "0")
    assert ", is revoked." in result.stderr
    assert f"The key before it, {created['display']}, is revoked." in result.stderr
    assert gateway.registry.find(digest(second)) is None
    third = result.stdout.removesuffix("\n")
    assert gateway.registry.find(digest(third)) is not None
    assert second not in result.stderr
    assert set(shell.json("key", "rotate", "alice")) == set(created)


def test_an_old_key_expires_with_its_token(shell: CommandRunner) -> None:
    created = shell.create_key("alice", expires="1h")
    expiry = format_time(created["expires_at"])
    old = f"{created['display']}, works until {expiry}."
    assert old in shell("key", "rotate", "alice").stderr
    shell("key", "set", "alice", "--expires", "never")
    second = shell.json("key", "rotate", "alice")
    changed = shell.json("key", "set", "alice", "--expires", "2h")
    output = shell("key", "show", "alice").stdout
    assert f"{second['old_display']} works until {format_time(changed['expires_at'])}" in output


def test_a_disabled_key(shell: CommandRunner, gateway: AdminGateway) -> None:
    created = shell.create_key("alice")
    result = shell("key", "disable", "alice")
    assert f"disabled. To enable it: `gateway key enable {created['id']}`" in result.stderr
    assert gateway.registry.find(digest(created["key"])) is None
    assert "disabled" in shell("key", "list").stdout
    rotated = shell("key", "rotate", "alice")
    assert "It is disabled. To enable it: `gateway key enable" in rotated.stderr
    assert gateway.registry.find(digest(rotated.stdout.strip())) is None
    result = shell("key", "enable", "alice")
    assert (result.exit_code, result.stdout) == (0, "")
    assert gateway.registry.find(digest(rotated.stdout.strip())) is not None
    assert shell.json("key", "disable", "alice")["state"] == "disabled"


def test_what_a_key_runs_may_end_by_itself(shell: CommandRunner) -> None:
    shell.create_key("alice")
    for command in ("disable", "revoke"):
        assert shell.json("key", command, "alice", "--let-run")["let_run"]
        assert not shell.json("key", command, "alice")["let_run"]


def test_a_revoked_key_is_not_changed(shell: CommandRunner) -> None:
    shell.create_key("alice")
    shell("key", "revoke", "alice")
    for command in (("set", "alice", "--rpm", "1"), ("enable", "alice"), ("rotate", "alice")):
        result = shell("key", *command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert "is revoked permanently: create another key." in result.stderr
