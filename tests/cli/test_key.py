"""`gateway key`, as operators and scripts see it."""

from __future__ import annotations

import stat

import pytest

from gateway.store.keys import digest, well_formed
from tests.cli.shell import Shell, Standing


def test_the_key_is_the_last_line_and_the_rest_is_on_stderr(shell: Shell) -> None:
    result = shell("key", "mint", "--name", "alice")
    assert result.exit_code == 0
    assert well_formed(result.stdout.removesuffix("\n"))
    assert "alice in group default" in result.stderr
    assert str(shell.state_dir) in result.stderr
    assert "sk-" not in result.stderr
    assert stat.S_IMODE(shell.state_dir.stat().st_mode) == 0o700
    assert sorted(path.name for path in shell.state_dir.iterdir()) == ["gateway.db", "lock"]


def test_the_shapes_for_scripts(shell: Shell) -> None:
    minted = shell.mint("Ünïcode 名前", group="default")
    key = minted.pop("key")
    assert well_formed(key)
    assert minted == {
        "id": minted["id"],
        "name": "Ünïcode 名前",
        "display": f"{key[:7]}...{key[-4:]}",
        "group": "default",
        "state": "active",
        "created_at": minted["created_at"],
        "revoked_at": None,
        "requests": 0,
        "input_tokens": 0,
        "output_tokens": 0,
        "last_used_at": None,
    }
    assert shell.json("key", "list") == [minted]
    assert shell.json("key", "show", "Ünïcode 名前") == minted
    assert shell.json("key", "show", minted["id"]) == minted
    assert shell.json("key", "revoke", minted["id"])["state"] == "revoked"


def test_the_tables_for_people(shell: Shell) -> None:
    minted = shell.mint("Ünïcode 名前")
    for command in (("list",), ("show", minted["id"])):
        result = shell("key", *command)
        assert result.exit_code == 0
        assert minted["id"] in result.stdout
        assert "Ünïcode 名前" in result.stdout
        assert minted["display"] in result.stdout
        assert minted["key"] not in result.stdout
        assert "\x1b" not in result.stdout, "no colours where nobody looks"


def test_a_running_gateway_knows_at_once(shell: Shell, gateway: Standing) -> None:
    minted = shell.mint("alice")
    token = gateway.registry.find(digest(minted["key"]))
    assert token is not None
    assert token.id == minted["id"]
    result = shell("key", "revoke", "alice")
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"Revoked: alice ({minted['id']})" in result.stderr
    assert gateway.registry.find(digest(minted["key"])) is None


def test_revoking_twice_says_so(shell: Shell) -> None:
    shell.mint("alice")
    shell("key", "revoke", "alice")
    result = shell("key", "revoke", "alice")
    assert result.exit_code == 0
    assert "was revoked already" in result.stderr


def test_a_name_that_several_keys_have(shell: Shell) -> None:
    first, second = shell.mint("alice"), shell.mint("alice")
    for command in ("show", "revoke"):
        result = shell("key", command, "alice")
        assert result.exit_code == 1
        assert "2 keys have the name alice: name one by its id." in result.stderr
        assert first["id"] in result.stderr
        assert second["id"] in result.stderr
    assert shell("key", "revoke", first["id"]).exit_code == 0
    assert shell.json("key", "revoke", "alice")["id"] == second["id"], "one is left to mean"


def test_a_name_that_looks_like_an_id(shell: Shell) -> None:
    first = shell.mint("alice")
    shell.mint(first["id"])
    assert shell.json("key", "show", first["id"])["name"] == "alice"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("mint", "--name", "bob", "--group", "nope"), 1, "no group nope; the groups are: default"),
        (("mint", "--name", " bob"), 1, "name: must not begin or end with a blank"),
        (("mint", "--name", "bob\x1b[2J"), 1, "name: must not have control characters"),
        (("mint",), 2, "Missing option '--name'"),
        (("mint", "--name", "bob", "sk-mine"), 2, "unexpected extra argument"),
        (("show", "bob"), 1, "No key has the id or name bob."),
        (("revoke", "bob"), 1, "No key has the id or name bob."),
    ],
)
def test_refusals(shell: Shell, arguments: tuple[str, ...], code: int, message: str) -> None:
    shell.mint("alice")
    result = shell("key", *arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr
    assert "\x1b" not in result.stderr
    assert len(shell.json("key", "list")) == 1


def test_a_key_itself_is_never_repeated(shell: Shell) -> None:
    key = shell("key", "mint", "--name", "ada").stdout.splitlines()[-1]
    result = shell("key", "revoke", key)
    assert result.exit_code == 1
    assert "by its id" in result.stderr
    assert key not in result.stderr + result.stdout
