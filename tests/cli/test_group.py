"""`gateway group`, as operators and scripts see it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.shell import Shell, Standing

CONFIG = """\
models:
  - {id: beta-5.4, family: beta}
"""


def test_the_shapes_for_scripts(shell: Shell) -> None:
    added = shell.json("group", "add", "équipe", "--models", "beta-*", "family:alpha")
    assert added == {
        "name": "équipe",
        "patterns": ["beta-*", "family:alpha"],
        "created_at": added["created_at"],
    }
    changed = shell.json("group", "set", "équipe", "--models", "beta-5.4", "--models", "beta-5.5")
    assert changed == added | {"patterns": ["beta-5.4", "beta-5.5"]}
    default, team = shell.json("group", "list")
    assert (default["name"], default["patterns"]) == ("default", ["*"])
    assert team == changed


def test_the_table_for_people(shell: Shell) -> None:
    shell("group", "add", "team", "--models", "beta-*", "family:alpha")
    lines = shell("group", "list").stdout.splitlines()
    assert [line.split()[:3] for line in lines] == [
        ["Name", "Models", "Created"],
        ["default", "*", lines[1].split()[2]],
        ["team", "beta-*", "family:alpha"],
    ]


def test_a_running_gateway_knows_at_once(shell: Shell, gateway: Standing) -> None:
    version = gateway.registry.version
    assert shell("group", "add", "team", "--models", "beta-*").exit_code == 0
    assert shell("group", "set", "team", "--models", "alpha-*").exit_code == 0
    group = gateway.registry.group("team")
    assert group is not None
    assert group.patterns == ("alpha-*",)
    result = shell("group", "remove", "team")
    assert (result.exit_code, result.stderr) == (0, "Removed: group team.\n")
    assert gateway.registry.group("team") is None
    assert gateway.registry.version == version + 3


def test_a_group_that_keys_name_stays(shell: Shell) -> None:
    minted = shell.mint("alice")
    result = shell("group", "remove", "default")
    assert result.exit_code == 1
    assert f"alice ({minted['id']})" in result.stderr


def test_a_pattern_that_names_nothing_is_a_warning(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text(CONFIG)
    arguments = ("--models", "beta-*", "alpha-*", "family:alpha")
    result = shell("group", "add", "team", *arguments, "--config", str(file))
    assert result.exit_code == 0
    assert f"Warning: alpha-* names no model of {file}." in result.stderr
    assert f"Warning: family:alpha names no model of {file}." in result.stderr
    assert "Warning: beta-*" not in result.stderr


def test_a_wrong_configuration_warns_of_nothing(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "channels.yaml"
    file.write_text("models: [nonsense]\n")
    result = shell("group", "add", "team", "--models", "zzz", "--config", str(file))
    assert result.exit_code == 0
    assert "Warning" not in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("add", "default", "--models", "*"), 1, "There is a group default already."),
        (("add", "a b", "--models", "*"), 1, "name: may have letters"),
        (("add", "team", "--models", "a,b", "family:x"), 1, "patterns.0: must be one id"),
        (("add", "team", "--models", "a,b", "family:x"), 1, "patterns.1: must be family:alpha"),
        (("add", "team"), 2, "Missing option '--models'"),
        (("set", "team", "--models", "*"), 1, "There is no group team; the groups are: default."),
        (("set", "../../keys", "--models", "*"), 1, "There is no group ../../keys"),
        (("remove", "team"), 1, "There is no group team; the groups are: default."),
    ],
)
def test_refusals(shell: Shell, arguments: tuple[str, ...], code: int, message: str) -> None:
    shell.mint("alice")
    result = shell("group", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert len(shell.json("group", "list")) == 1
