"""The documentation agrees with the code: links, paths, errors, commands, columns."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from gateway import __version__, errors
from gateway.cli import main
from gateway.config.load import parse_config
from gateway.config.monitoring import AlertKind
from gateway.config.presets import presets
from gateway.store import schema
from gateway.store.records import AttemptRow, ExchangeState
from tests.support.cases import in_one_test

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
FOLDERS = {
    path.name
    for base in (ROOT, ROOT / "gateway")
    for path in base.iterdir()
    if path.is_dir() and path.name != "var"
}
ADR = ROOT / "docs" / "adr"
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
PACKAGES = sorted(path.parent.name for path in ROOT.glob("gateway/*/__init__.py"))
FOLDERS = sorted(ROOT.glob("gateway/*/**/__init__.py"))
UNNAMED = ("console/pages", "store/migrations")
"""Folders that the layout does not name."""
STATE = (ROOT / "docs" / "state.md").read_text()
CODE = "".join(
    path.read_text() for path in ROOT.glob("gateway/**/*.py") if path.name != "errors.py"
)
WITHOUT_DEFAULT = (
    errors.InvalidRequest,
    errors.PermissionDenied,
    errors.TooManyTokens,
    errors.InsufficientQuota,
)
"""Their messages always have details: the field, the limit."""


def rows(kind: type[errors.GatewayError]) -> Iterator[type[errors.GatewayError]]:
    for child in kind.__subclasses__():
        yield child
        yield from rows(child)


NO_ROWS = (
    *(errors.ClientError, errors.AboutName, errors.NotFound),
    *(errors.UnsupportedByUpstream, errors.UpstreamRejected),
)
"""Base classes, and the upstream's own status and message."""
ROWS = [row for row in rows(errors.GatewayError) if row not in NO_ROWS]


def error_table() -> Iterator[tuple[str, ...]]:
    """Status, message, cause, code, type, type on messages."""
    for line in (ROOT / "docs" / "errors.md").read_text().splitlines():
        cells = tuple(cell.strip() for cell in line.strip("|").split("|"))
        if len(cells) == 6 and cells[0].isdigit():
            yield cells


def quoted(text: str | None) -> str:
    return f"`{text}`" if text else "none"


def commands(group: click.Group, path: str = "gateway") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, f"{path} {name}")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{path} {name}", command


COMMANDS = dict(commands(main))


def options(command: click.Command) -> set[str]:
    switches = (parameter.secondary_opts for parameter in command.params)
    return {
        *(option for parameter in command.params for option in parameter.opts),
        *(option for options in switches for option in options),
        "--help",
    }


def named_command(text: str) -> str | None:
    """The longest prefix of a text that is a command."""
    words = text.split()
    prefixes = (" ".join(words[:length]) for length in range(len(words), 1, -1))
    return next((prefix for prefix in prefixes if prefix in COMMANDS), None)


def written_commands(page: Path) -> Iterator[str]:
    """Every command line in backticks or in a console block."""
    text = page.read_text()
    output = re.findall(r"`(gateway \w[^`]*)`", text)
    for block in re.findall(r"```console\n(.*?)```", text, re.DOTALL):
        typed = re.sub(r" {2,}#.*|sudo -u gateway", "", block.replace("\\\n", " "))
        output += re.findall(r"[ /](gateway \w.*)", typed)
    return iter(output)


def named_paths(page: Path) -> Iterator[str]:
    """Paths in backticks, from the repository or from `gateway/`; `{a,b}` is expanded."""
    for text in re.findall(r"`([^`\n]+)`", page.read_text()):
        path = text.partition("::")[0]
        first, slash, _ = path.partition("/")
        if slash and first in FOLDERS and not re.search(r"\s|[A-Z]{3}", path.replace(", ", ",")):
            before, brace, rest = path.partition("{")
            names, _, after = rest.partition("}")
            yield from (before + name + after for name in names.split(",") if brace or name == "")


def exists(path: str) -> bool:
    """A path can leave out `.py`, and `*` stands for any name."""
    return any(
        next(base.glob(path.rstrip("/") + suffix), None) is not None
        for base in (ROOT, ROOT / "gateway")
        for suffix in ("", ".py")
    )


@in_one_test("page", PAGES, ids=lambda page: page.name)
def test_named_paths_exist(page: Path) -> None:
    assert [path for path in named_paths(page) if not exists(path)] == []


@in_one_test("page", PAGES, ids=lambda page: page.name)
def test_links_have_a_target(page: Path) -> None:
    for target, _, anchor in re.findall(r"\]\((?!https?:)([^)#]*)(#([^)]*))?\)", page.read_text()):
        linked = page.parent / target if target else page
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.MULTILINE)
            assert anchor in {anchor_of(heading) for heading in headings}


@pytest.mark.parametrize("index", ["README.md", "llms.txt"])
def test_the_indexes_have_every_page(index: str) -> None:
    folder = ROOT / "docs"
    linked = re.findall(r"\]\((?!https?:)([^)#]*)", (folder / index).read_text())
    assert [link for link in linked if not (folder / link).exists()] == []
    pages = {page.name for page in folder.glob("*.md")} - {"README.md"}
    assert pages - set(linked) == set()


def anchor_of(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_links_in_messages_have_a_target() -> None:
    """Paths with an anchor in texts of the code and of files that are installed."""
    files = [*ROOT.glob("gateway/**/*.py"), *ROOT.glob("systemd/*"), *ROOT.glob("config/*")]
    text = "".join(path.read_text() for path in files)
    links = re.findall(r"\b(docs/[\w/-]+\.md)(?:#([\w-]+))?", text)
    assert links
    for path, anchor in links:
        headings = re.findall(r"^#+ (.*)$", (ROOT / path).read_text(), re.MULTILINE)
        assert not anchor or anchor in {anchor_of(heading) for heading in headings}, path


def test_contributing_has_a_line_for_every_package() -> None:
    layout = CONTRIBUTING.partition("| Core |")[2].partition("`make modules`")[0]
    named = re.findall(r"^\| `([\w/]+)` \|", layout, re.MULTILINE)
    assert len(named) == len(set(named))
    assert {name.partition("/")[0] for name in named} == set(PACKAGES)
    folders = {str(path.parent.relative_to(ROOT / "gateway")) for path in FOLDERS}
    mentioned = set(re.findall(r"`([\w/]+)`", layout))
    assert {folder for folder in folders if not folder.startswith(UNNAMED)} <= mentioned


def test_the_list_of_modules_has_all_with_their_purpose() -> None:
    command = (sys.executable, ROOT / "scripts" / "modules")
    listed = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    sections = re.split(r"^(?=gateway)", listed, flags=re.MULTILINE)[1:]
    names = {
        f"{section.partition(':')[0]}/{name}.py"
        for section in sections
        for name in re.findall(r"^  (\w+) +\S", section, re.MULTILINE)
    }
    modules = {str(path.relative_to(ROOT)) for path in ROOT.glob("gateway/**/*.py")}
    assert names == {path for path in modules if not path.endswith("/__init__.py")}


def test_every_decision_is_in_the_index_with_its_status() -> None:
    index = (ADR / "README.md").read_text()
    for page in ADR.glob("[0-9]*.md"):
        number, title = page.read_text().splitlines()[0].removeprefix("# ").split(" ", 1)
        _, found, rest = index.partition(f"| [{number}]({page.name}) | {title} | ")
        assert found, page.name
        status, later = rest.splitlines()[0], re.findall(r"\[(\d+)\]", rest.splitlines()[0])
        assert re.match(r"accepted( \||, changed by \[)|superseded by \[", status), page.name
        assert all(other > number for other in later), page.name
        assert ("\nSuperseded by [" in page.read_text()) is status.startswith("superseded")


def test_the_version_is_the_newest_release_of_the_changelog() -> None:
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", headings[1])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.__name__)
def test_every_error_is_in_the_table(row: type[errors.GatewayError]) -> None:
    wanted = (str(row.status), *map(quoted, (row.code, row.type, row.messages_type)))
    found = [cells for cells in error_table() if (cells[0], *cells[3:]) == wanted]
    if row.__init__ is errors.GatewayError.__init__ and row not in WITHOUT_DEFAULT:
        found = [cells for cells in found if cells[1] == f"`{row.text}`"]
    assert found
    is_raised = re.search(rf"\b{row.__name__}\b", CODE) is not None
    assert any(("¹" in cells[2]) is not is_raised for cells in found)


def test_the_error_table_has_no_others() -> None:
    known = {(str(row.status), quoted(row.code)) for row in ROWS}
    assert {(cells[0], cells[3]) for cells in error_table()} == known


def test_configurations_of_the_documents_are_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the quick start, and that of each section about an upstream."""
    for example in (*yaml_blocks("quickstart"), *yaml_blocks("upstreams")):
        for name in re.findall(r"\$\{(\w+)\}", example):
            monkeypatch.setenv(name, "secret")
        assert parse_config(example).channels


def test_every_preset_is_documented() -> None:
    page = (ROOT / "docs" / "upstreams.md").read_text()
    assert [name for name in presets() if f"`{name}`" not in page] == []


def yaml_blocks(page: str) -> list[str]:
    text = (ROOT / "docs" / f"{page}.md").read_text()
    return re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)


def test_every_field_of_a_log_row_is_documented() -> None:
    assert [c.name for c in schema.requests.columns if f"`{c.name}`" not in STATE] == []
    assert [name for name in AttemptRow._fields if f"`{name}`" not in STATE] == []
    assert [state for state in ExchangeState if f"\n| `{state}` |" not in STATE] == []


@in_one_test("page", PAGES, ids=lambda page: page.name)
def test_commands_exist_with_their_options(page: Path) -> None:
    for text in written_commands(page):
        command = named_command(text)
        assert command is not None, text
        assert set(re.findall(r"--[a-z0-9-]+", text)) <= options(COMMANDS[command]), text


def test_the_reference_of_commands_is_current() -> None:
    command = (sys.executable, ROOT / "scripts" / "reference", "markdown")
    written = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout
    assert (ROOT / "docs" / "cli.md").read_text() == written, "run make cli"
    assert {path for path in COMMANDS if f"\n## {path}\n" in written} == set(COMMANDS)


def test_every_alert_is_in_the_runbook() -> None:
    """Those of webhooks, and those of the rules for Prometheus."""
    table, runbook = ((ROOT / "docs" / f"{name}.md").read_text() for name in ("alerts", "runbook"))
    kinds = [kind for kind in AlertKind if kind is not AlertKind.TEST]
    assert [kind for kind in kinds if f"\n| `{kind}` |" not in table] == []
    assert [kind for kind in kinds if f"\n## {kind}\n" not in runbook] == []
    rules = "".join(path.read_text() for path in ROOT.glob("docs/monitoring/*rules*.yml"))
    names = re.findall(r"- alert: (\w+)", rules)
    assert [name for name in names if not re.search(rf"\b{name}\b", runbook)] == []


def test_common_options_of_the_reference() -> None:
    for path, command in COMMANDS.items():
        having = options(command)
        assert ("--config" in having) is (path != "gateway completion")
        assert ("--state-dir" in having) is (path not in {"gateway check", "gateway completion"})
        assert ("--json" in having) is (
            path
            not in {
                *("gateway serve", "gateway group remove", "gateway responses delete"),
                "gateway completion",
            }
        )


def test_tests_of_the_checklist_exist() -> None:
    page = (ROOT / "docs" / "clients.md").read_text()
    lines = re.findall(r"^\| (\d+) \|.*\| `(tests/[^`:]+)::([^`]+)` \|$", page, re.MULTILINE)
    assert [int(number) for number, *_ in lines] == [*range(1, len(lines) + 1)]
    assert len(lines) == len(re.findall(r"^\| \d+ \|", page, re.MULTILINE))
    for _, path, name in lines:
        assert f"def {name}(" in (ROOT / path).read_text(), (path, name)
