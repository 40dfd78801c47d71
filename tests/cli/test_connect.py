"""`gateway connect`: what is printed, and what becomes of the client's own file."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import orjson
import pytest

from tests.cli.cli_runner import CommandRunner
from tests.support.cases import in_one_test
from tests.support.snippets import PAGE_ADDRESS, snippet

CONFIG = """\
server: {{port: 8080{server}}}
state_dir: {state}
models:
  - {{id: beta-5.4, family: beta}}
  - {{id: alpha-sonnet-4-6, family: alpha, multiplier: 1.5}}
  - {{id: alpha-haiku-4-5-20251001, family: alpha, multiplier: 0.5}}
  - {{id: alpha-unserved, family: alpha, multiplier: 0.1}}
channels:
  - name: main
    format: chat
    base_url: http://127.0.0.1:9/v1
    models: [beta-5.4, alpha-sonnet-4-6, alpha-haiku-4-5-20251001]
    accounts: [{{name: main, key: "${{NOT_SET}}"}}]
"""
FILES = {
    "claude-code": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
}
SECTIONS = {
    "claude-code": ("Claude Code", "sh"),
    "codex": ("Codex", "toml"),
    "opencode": ("opencode", "json"),
    "aider": ("aider", "sh"),
}
FOREIGN = {
    "claude-code": b'{ "permissions": {"allow": ["Bash(ls)"]},\n'
    b'\t"env": {"ANTHROPIC_API_KEY": "sk-other", "EDITOR": "vi", "ANTHROPIC_MODEL": "m"}}',
    "codex": b'# mine\napproval_policy = "never"\r\n\n[model_providers.other]\nname = "o"\n'
    b'[projects."/x"]\ntrust_level = "trusted"',
    "opencode": '{"theme": "tokyo–night", "provider": {"own": {"npm": "x"}}, "model": "own/m"}'
    "\n\n".encode(),
}


@pytest.fixture
def home(shell: CommandRunner, tmp_path: Path) -> Path:
    """The home directory of the commands; `channels.yaml` beside it is their configuration."""
    (tmp_path / "home").mkdir()
    shell.environ["HOME"] = str(tmp_path / "home")
    configure(shell, tmp_path)
    return tmp_path / "home"


def configure(shell: CommandRunner, folder: Path, server: str = "") -> None:
    file = folder / "channels.yaml"
    file.write_text(CONFIG.format(server=server, state=shell.state_dir))
    shell.environ["GATEWAY_CONFIG"] = str(file)


def file_of(home: Path, client: str, data: bytes | None) -> Path:
    file = home / FILES[client]
    file.parent.mkdir(parents=True, exist_ok=True)
    if data is not None:
        file.write_bytes(data)
        file.chmod(0o640)
    return file


def content_of(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    content: dict[str, Any]
    content = tomllib.loads(data.decode()) if file.suffix == ".toml" else orjson.loads(data)
    return content


def inside(content: Any, part: Any) -> bool:
    """Whether `content` has all that `part` has."""
    if isinstance(part, dict) and isinstance(content, dict):
        return all(key in content and inside(content[key], part[key]) for key in part)
    return bool(content == part)


@pytest.mark.parametrize("client", SECTIONS)
def test_the_settings_are_those_of_the_page(shell: CommandRunner, home: Path, client: str) -> None:
    section, language = SECTIONS[client]
    wanted = snippet(section, language, PAGE_ADDRESS)
    result = shell("connect", client)
    assert result.exit_code == 0, result.output
    if language == "sh":
        *lines, start = wanted.splitlines()
        assert set(result.stdout.splitlines()) == set(lines)
        assert result.stderr.endswith(f"The shell needs GATEWAY_KEY. Then: {start}\n")
    elif language == "toml":
        assert tomllib.loads(result.stdout) == tomllib.loads(wanted)
    else:
        printed, page = orjson.loads(result.stdout), orjson.loads(wanted)
        page["provider"]["gateway"]["models"].pop("alpha-sonnet-4-6")
        assert printed == page
    assert list(home.iterdir()) == []


def test_libraries(shell: CommandRunner, home: Path) -> None:
    assert shell("connect", "openai").stdout.splitlines() == [
        "export OPENAI_BASE_URL=http://127.0.0.1:8080/v1",
        "export OPENAI_API_KEY=$GATEWAY_KEY",
    ]
    report = shell.json("connect", "anthropic")
    assert (report["base_url"], report["model"]) == (PAGE_ADDRESS, "alpha-sonnet-4-6")
    assert report["settings"].splitlines()[1] == "export ANTHROPIC_API_KEY=$GATEWAY_KEY"
    result = shell("connect", "openai", "--write")
    assert result.exit_code == 1
    assert "openai has no file" in result.stderr


def test_where_the_address_and_the_model_come_from(
    shell: CommandRunner, home: Path, tmp_path: Path
) -> None:
    chosen = ("--base-url", "https://ai.example/x/v1/", "--model", "m; id")
    assert (
        "export OPENAI_API_BASE=https://ai.example/x/v1\n"
        in shell("connect", "aider", *chosen).stdout
    )
    assert "--model openai/'m; id'" in shell("connect", "aider", *chosen).stderr
    configure(shell, tmp_path, ", public_url: https://gateway.example")
    assert shell.json("connect", "codex")["base_url"] == "https://gateway.example"
    del shell.environ["GATEWAY_CONFIG"]
    demo = shell("connect", "claude-code")
    assert "ANTHROPIC_BASE_URL=http://127.0.0.1:8080\n" in demo.stdout
    assert "No configuration" in demo.stderr
    remote = shell.json("connect", "opencode", "--base-url", "https://a.example", "--model", "beta")
    assert orjson.loads(remote["settings"])["small_model"] == "gateway/beta"


@pytest.mark.parametrize("client", FILES)
@pytest.mark.parametrize("before", ["none", "foreign", "link"])
def test_written_twice_and_undone(
    shell: CommandRunner, home: Path, client: str, before: str
) -> None:
    data = None if before == "none" else FOREIGN[client]
    file = file_of(home, client, data)
    if before == "link":
        (home / "dotfiles").mkdir()
        file.symlink_to(file.rename(home / "dotfiles" / file.name))
    report = shell.json("connect", client, "--write")
    assert report == {"client": client, "file": str(file), "state": "written"}
    assert file.is_symlink() is (before == "link")
    assert file.stat().st_mode & 0o777 == (0o600 if data is None else 0o640)
    backup = file.resolve().with_name(f"{file.name}.before-gateway")
    assert backup.read_bytes() == (data or b"")
    assert backup.stat().st_mode == file.stat().st_mode

    written = content_of(file)
    printed = shell.json("connect", client)["settings"]
    if client == "claude-code":
        assert written["env"]["ANTHROPIC_BASE_URL"] == PAGE_ADDRESS
        assert written["env"]["ANTHROPIC_MODEL"] == "alpha-sonnet-4-6"
        assert not {"ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_API_KEY"} & written["env"].keys()
    else:
        assert inside(
            written, tomllib.loads(printed) if client == "codex" else orjson.loads(printed)
        )
    if data is not None:
        old = tomllib.loads(data.decode()) if client == "codex" else orjson.loads(data)
        for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_MODEL"):
            old.get("env", {}).pop(name, None)
        old.pop("model", None)
        assert inside(written, old)

    first = file.read_bytes()
    assert shell.json("connect", client, "--write")["state"] == "unchanged"
    assert file.read_bytes() == first
    assert shell.json("connect", client, "--write", "--model", "beta-9")["state"] == "written"
    assert b"beta-9" in file.read_bytes()
    assert backup.read_bytes() == (data or b"")

    assert shell.json("connect", client, "--undo")["state"] == "restored"
    assert (file.read_bytes() if file.exists() else None) == data
    assert file.is_symlink() is (before == "link")
    if data is not None:
        assert file.stat().st_mode & 0o777 == 0o640
    assert [each for each in file.resolve().parent.iterdir() if each.name != file.name] == []
    assert shell.json("connect", client, "--undo")["state"] == "unchanged"


@in_one_test(
    ("client", "change", "kept"),
    [
        ("claude-code", (b'"permissions"', b'"later": 1, "permissions"'), {"later": 1}),
        ("opencode", (b'"theme"', b'"later": 1, "theme"'), {"later": 1}),
        ("codex", (b"# mine", b"later = 1"), {"later": 1}),
        ("codex", (b"# <<< ", b"model_effort = 1\n# <<< "), {"model_effort": 1}),
    ],
)
def test_undo_keeps_later_changes(
    shell: CommandRunner,
    home: Path,
    client: str,
    change: tuple[bytes, bytes],
    kept: dict[str, Any],
) -> None:
    file = file_of(home, client, FOREIGN[client])
    before = content_of(file)
    shell("connect", client, "--write")
    file.write_bytes(file.read_bytes().replace(*change))
    assert shell.json("connect", client, "--undo")["state"] == "restored"
    assert content_of(file) == before | kept


def test_a_new_backup_after_an_undo_by_hand(shell: CommandRunner, home: Path) -> None:
    file = file_of(home, "claude-code", b'{"a": 1}')
    shell("connect", "claude-code", "--write")
    file.write_bytes(b'{"b":  2}')
    result = shell("connect", "claude-code", "--undo")
    assert result.exit_code == 1
    assert "has none of the settings; what was there is in " in result.stderr
    shell("connect", "claude-code", "--write")
    shell("connect", "claude-code", "--undo")
    assert file.read_bytes() == b'{"b":  2}'


@in_one_test(
    ("client", "data", "message"),
    [
        ("claude-code", b'{"env": {} // mine\n}', "is not an object in JSON, without comments"),
        ("claude-code", b"[]", "is not an object in JSON"),
        ("claude-code", b'{"env": ["sk-1"]}', "env is no object"),
        ("opencode", b"\xff", "is not an object in JSON"),
        ("opencode", b"[" * 100_000, "is not an object in JSON"),
        ("opencode", b" " * (2**20 + 1), "is not a file of at most 1 MiB"),
        ("codex", b'model = "sk-1', "is not TOML"),
        ("codex", b"\xff", "is not TOML"),
        ("codex", b'model = "gpt"\n', "has another model: remove it"),
        ("codex", b"[model_providers.gateway]\nname = 'x'\n", "has another model_providers"),
        ("codex", b"model_providers = 7\n", "has another model_providers"),
        ("codex", b"model_providers = {a = {}}\n", "is not TOML"),
    ],
)
def test_what_cannot_be_changed_stays(
    shell: CommandRunner, home: Path, client: str, data: bytes, message: str
) -> None:
    file = file_of(home, client, data)
    result = shell("connect", client, "--write")
    assert result.exit_code == 1, result.output
    assert message in result.stderr
    assert "sk-1" not in result.stderr
    assert file.read_bytes() == data
    assert [each.name for each in file.parent.iterdir()] == [file.name]


def test_what_is_no_file(shell: CommandRunner, home: Path) -> None:
    file_of(home, "codex", None).mkdir()
    os.mkfifo(file_of(home, "claude-code", None))
    (home / ".config").mkdir()
    (home / ".config" / "opencode").touch()
    for client in FILES:
        for action in ("--write", "--undo"):
            result = shell("connect", client, action)
            assert result.exit_code == 1, result.output
            assert FILES[client] in result.stderr


@in_one_test(
    ("arguments", "code", "message"),
    [
        (("codex", "--write", "--undo"), 2, "either --write or --undo"),
        (("codex", "--base-url", "ftp://x"), 2, "must begin with http"),
        (("codex", "--base-url", "http://me:secret@x"), 2, "must not"),
        (("codex", "--model", "a\nb"), 2, "must be the name of a model"),
        (("cursor",), 2, "'cursor' is not one of"),
    ],
)
def test_wrong_usage(
    shell: CommandRunner, home: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    result = shell("connect", *arguments)
    assert result.exit_code == code
    assert message in result.stderr


def test_any_free_port(shell: CommandRunner, home: Path) -> None:
    file = Path(shell.environ["GATEWAY_CONFIG"])
    file.write_text(file.read_text().replace("8080", "0"))
    result = shell("connect", "codex")
    assert result.exit_code == 2
    assert "give --base-url" in result.stderr
    file.write_text("channels: 7\n")
    assert shell("connect", "codex").exit_code == 78
