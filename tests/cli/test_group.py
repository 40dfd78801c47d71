"""`gateway group`: output, exit codes and errors."""

from __future__ import annotations

from pathlib import Path

from gateway.core.limits import LIMIT_NAMES
from tests.cli.cli_runner import AdminGateway, CommandRunner
from tests.support.cases import in_one_test

CONFIG = """\
models:
  - {id: beta-5.4, family: beta}
"""


def cells(line: str) -> list[str]:
    """The cells of a table's line: two blanks part them."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]


def test_json_output(shell: CommandRunner) -> None:
    added = shell.json("group", "add", "équipe", "--models", "beta-*", "family:alpha")
    assert added == {
        "name": "équipe",
        "patterns": ["beta-*", "family:alpha"],
        "created_at": added["created_at"],
        "multiplier": "1",
        "limits": dict.fromkeys(LIMIT_NAMES),
        "user_agents": None,
        "user_agent_mode": "enforce",
        "store_replies": True,
        "on_shared_loss": "share",
    }
    changed = shell.json("group", "set", "équipe", "--models", "beta-5.4", "--models", "beta-5.5")
    assert changed == added | {"patterns": ["beta-5.4", "beta-5.5"]}
    default, team = shell.items("group", "list")
    assert (default["name"], default["patterns"]) == ("default", ["*"])
    assert team == changed


def test_the_table(shell: CommandRunner) -> None:
    shell("group", "add", "team", "--models", "beta-*", "family:alpha")
    limits = ("--rpm", "5", "--budget-day", "1.5k", "--multiplier", "0.50")
    shell("group", "set", "team", *limits, "--user-agents", "codex", "--user-agent-mode", "observe")
    lines = shell("group", "list").stdout.splitlines()
    (titles, default, team) = [cells(line) for line in lines]
    assert titles == ["Name", "Models", "Multiplier", "User agents", "Created", "Limits"]
    assert (default[:4], default[-1]) == (["default", "*", "1", "all"], "-")
    assert team[:4] == ["team", "beta-*, family:alpha", "0.5", "codex (observed)"]
    assert team[-1] == "RPM 5, Daily budget 1\u202f500"


def test_a_change_is_summarized(shell: CommandRunner) -> None:
    agents = ("--user-agents", "codex", "--user-agents", "re:my tool")
    output = shell("group", "add", "team", "--models", "*", *agents).stderr
    assert output == "Group team: models *; user agents codex, re:my tool.\n"
    output = shell("group", "set", "team", "--user-agent-mode", "observe", "--rpm", "5").stderr
    assert output == ("Group team: models *; RPM 5; user agents codex, re:my tool (observed).\n")
    output = shell("group", "set", "team", "--user-agents", "none").stderr
    assert output == "Group team: models *; RPM 5.\n"
    output = shell("group", "set", "team", "--no-store-replies").stderr
    assert output == "Group team: models *; RPM 5; stores no replies.\n"
    assert "none" in shell("group", "show", "team").stdout
    assert shell.json("group", "set", "team", "--store-replies")["store_replies"] is True
    output = shell("group", "set", "team", "--on-shared-loss", "refuse").stderr
    assert output == "Group team: models *; RPM 5; refused while shared limits are lost.\n"
    assert shell.json("group", "show", "team")["on_shared_loss"] == "refuse"


def test_details(shell: CommandRunner) -> None:
    shell("group", "add", "team", "--models", "beta-*", "--budget-month", "5M", "--tpm", "100k")
    lines = shell("group", "show", "team").stdout.splitlines()
    output = {parts[0]: parts[1] for line in lines if len(parts := cells(line)) == 2}
    assert output["Models"] == "beta-*"
    assert output["TPM"] == "100\u202f000"
    assert output["Monthly budget"] == "5\u202f000\u202f000 units, 0 spent"
    details = shell.json("group", "show", "team")
    names = [f"budget{each}{window}" for each in ("", "_usd") for window in ("", "_day", "_month")]
    assert details.pop("spent_micro") == dict.fromkeys(names, 0)
    assert details == shell.items("group", "list")[1]


def test_omitted_options_change_nothing_and_none_clears(shell: CommandRunner) -> None:
    settings = ("--rpm", "5", "--tpm", "7", "--user-agents", "codex", "--multiplier", "2")
    added = shell.json("group", "add", "team", "--models", "beta-*", *settings)
    changed = shell.json("group", "set", "team", "--rpm", "none", "--user-agents", "none")
    limits = added["limits"] | {"requests_per_minute": None}
    assert changed == added | {"limits": limits, "user_agents": None}
    assert changed["limits"]["tokens_per_minute"] == 7


def test_a_running_gateway_applies_changes_immediately(
    shell: CommandRunner, gateway: AdminGateway
) -> None:
    version = gateway.registry.version
    assert shell("group", "add", "team", "--models", "beta-*").exit_code == 0
    assert shell("group", "set", "team", "--models", "alpha-*").exit_code == 0
    group = gateway.registry.group("team")
    assert group is not None
    assert group.patterns == ("alpha-*",)
    result = shell("group", "remove", "team")
    assert (result.exit_code, result.stderr) == (0, "Removed group team.\n")
    assert gateway.registry.group("team") is None
    assert gateway.registry.version == version + 3


def test_a_group_with_keys_is_not_removed(shell: CommandRunner) -> None:
    created = shell.create_key("alice")
    result = shell("group", "remove", "default")
    assert result.exit_code == 1
    assert f"alice ({created['id']})" in result.stderr


def test_a_pattern_without_models_is_a_warning(shell: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(CONFIG)
    arguments = ("--models", "beta-*", "alpha-*", "family:alpha")
    result = shell("group", "add", "team", *arguments, "--config", str(file))
    assert result.exit_code == 0
    assert f"Warning: alpha-* matches no model of {file}." in result.stderr
    assert f"Warning: family:alpha matches no model of {file}." in result.stderr
    assert "Warning: beta-*" not in result.stderr


def test_an_invalid_configuration_gives_no_warnings(shell: CommandRunner, tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("models: [nonsense]\n")
    result = shell("group", "add", "team", "--models", "zzz", "--config", str(file))
    assert result.exit_code == 0
    assert "Warning" not in result.stderr


@in_one_test(
    ("arguments", "code", "message"),
    [
        (("add", "default", "--models", "*"), 1, "Group default already exists."),
        (("add", "a b", "--models", "*"), 1, "name: may have letters"),
        (("add", "team", "--models", "a,b", "family:x"), 1, "--models: must be one id"),
        (
            ("add", "team", "--models", "a,b", "family:x"),
            1,
            "--models, value 2: must be family:alpha",
        ),
        (("add", "team"), 2, "Missing option '--models'"),
        (("set", "default"), 2, "Nothing to change: give at least one option"),
        (("set", "default", "beta-*"), 2, "Unexpected argument beta-*: patterns follow --models."),
        (("set", "default", "--multiplier", "x"), 1, "--multiplier: must be a number from 0 to"),
        (("set", "default", "--user-agents", "re:("), 1, "is no regular expression"),
        (("show", "team"), 1, "There is no group team; the groups are: default."),
        (("set", "team", "--models", "*"), 1, "There is no group team; the groups are: default."),
        (("set", "../../keys", "--models", "*"), 1, "There is no group ../../keys"),
        (("remove", "team"), 1, "There is no group team; the groups are: default."),
    ],
)
def test_refusals(
    shell: CommandRunner, arguments: tuple[str, ...], code: int, message: str
) -> None:
    shell.state_dir.mkdir(exist_ok=True)
    result = shell("group", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(shell.items("group", "list")) == 1
