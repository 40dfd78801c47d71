"""The layout of the code: which package imports which, and where tests are.

    cli, doctor, daemon                              put everything together
      → alerts, console, admin, fleet, credentials, app   wings, and the routes
      → server/{stored, images, search, compaction,  wings of requests
        passthrough}
      → server/proxy → server/http → server/record   the way of a request
      → runtime → {upstream, admission, telemetry, store} → {wire, routing, quota}
      → config → core → errors

The core serves a request without a wing: it imports none. The tests read all imports, also those
inside functions and for types, without running the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "gateway"
TESTS = ROOT / "tests"

VALUES = frozenset({"core", "errors"})
CONFIG = VALUES | {"config"}
UPSTREAM = CONFIG | {"wire", "routing", "upstream"}
STORE = CONFIG | {"store"}
ADMISSION = STORE | {"routing", "quota", "admission"}
TELEMETRY = STORE | {"scheduler", "telemetry"}
RUNTIME = UPSTREAM | ADMISSION | TELEMETRY | {"replicas", "runtime", "scheduler", "turns"}
RECORD = RUNTIME | {"server/record"}
HTTP = RECORD | {"server/http"}
PROXY = HTTP | {"server/proxy"}
CORE = PROXY | {"server", "__init__"}
"""A request from its socket to its settled row."""

ADMIN = CONFIG | {"routing", "quota", "store", "admission", "runtime", "scheduler", "admin"}
CONSOLE = ADMIN | {"console"}
REQUEST_WINGS = frozenset(
    f"server/{name}" for name in ("stored", "images", "search", "compaction", "passthrough")
)
"""Optional features of requests, which `app` registers."""
APP = PROXY | REQUEST_WINGS | CONSOLE | {"app"}
ALERTS = ADMIN | {"upstream", "telemetry", "alerts"}
FLEET = RUNTIME | {"fleet"}
CREDENTIALS = RUNTIME | {"credentials"}
DAEMON = APP | ALERTS | FLEET | CREDENTIALS | {"daemon"}
DOCTOR = DAEMON | {"doctor"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "scheduler": frozenset(),
    "turns": frozenset(),
    "core": VALUES,
    "config": CONFIG,
    "wire": VALUES | {"wire"},
    "routing": CONFIG | {"routing"},
    "quota": CONFIG | {"quota"},
    "upstream": UPSTREAM,
    "store": STORE,
    "admission": ADMISSION,
    "telemetry": TELEMETRY,
    "replicas": TELEMETRY | {"routing"},
    "runtime": RUNTIME,
    "server": frozenset(),
    "server/record": RECORD,
    "server/http": HTTP,
    "server/proxy": PROXY,
    "server/stored": PROXY | {"server/stored"},
    "server/images": PROXY | {"server/images"},
    "server/search": PROXY | {"server/search"},
    "server/compaction": PROXY | {"server/compaction"},
    "server/passthrough": PROXY | {"server/passthrough"},
    "fleet": FLEET,
    "credentials": CREDENTIALS,
    "admin": ADMIN,
    "console": CONSOLE,
    "app": APP,
    "alerts": ALERTS,
    "daemon": DAEMON,
    "simulator": frozenset({"simulator"}),
    "doctor": DOCTOR,
    "cli": DOCTOR | {"simulator", "cli"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset(),
}
"""Package, folder of the server or top-level module → those that it can import. `gateway` itself,
which only has the version, is open to all but the simulator."""

WINGS = frozenset(MAY_IMPORT) - CORE - {"app", "daemon", "__main__"}
MAY_IMPORT_WINGS = {
    "alerts": {"admin"},
    "console": {"admin"},
    "doctor": WINGS - {"cli", "simulator"},
    "cli": WINGS,
}
"""Wing → the other wings that it can import."""

PURE = ("core", "wire", "routing", "quota", "errors")
IMPURE = frozenset({"asyncio", "aiohttp", "time", "random", "secrets", "socket", "threading"})
"""Clocks, randomness and I/O are arguments of pure code."""

LONGEST = 600
"""Lines of a module."""
MOST_MODULES = 25
"""Of a folder."""

FORMATS = ("chat", "messages", "responses")
FORMAT_MODULES = (
    *("codec", "parse_prompt", "render_prompt", "content", "tools"),
    *("decode", "encode", "native", "usage"),
)
"""Every format has these; others are for what it alone has."""

MODULES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted(path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists())


class Import(NamedTuple):
    module: str
    line: int

    @property
    def package(self) -> str | None:
        """Its package, folder of the server or top-level module; `gateway` for the package itself,
        None for others."""
        first, *rest = self.module.split(".")
        return (_package(rest) if rest else first) if first == "gateway" else None


def _package(parts: list[str]) -> str:
    return "/".join(parts[:2]) if parts[0] == "server" else parts[0]


def package_of(module: Path) -> str:
    folder = list(module.relative_to(SOURCE).parts[:-1])
    return _package(folder) if folder else module.stem


def imports(module: Path) -> Iterator[Import]:
    package = module.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(module.read_bytes(), module)):
        if isinstance(node, ast.Import):
            yield from (Import(each.name, node.lineno) for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else ()
            source = ".".join((*above, *([node.module] if node.module else ())))
            if source == "gateway":
                yield from (Import(_member(each.name), node.lineno) for each in node.names)
            else:
                yield Import(source, node.lineno)


def _member(name: str) -> str:
    """The module of `from gateway import name`."""
    return f"gateway.{name}" if name in MAY_IMPORT else "gateway"


def path_of(module: Path) -> str:
    return str(module.relative_to(ROOT))


def test_imports_point_one_way() -> None:
    wrong = []
    for module in MODULES:
        package = package_of(module)
        allowed = MAY_IMPORT[package] | (
            {"gateway"} - {package} if package != "simulator" else set()
        )
        wrong += [
            f"{path_of(module)}:{each.line}: {package} must not import {each.module}"
            for each in imports(module)
            if each.package is not None and each.package not in allowed
        ]
    assert wrong == []


def test_the_core_imports_no_wing_and_wings_import_few_others() -> None:
    for package, allowed in MAY_IMPORT.items():
        if package in CORE:
            assert allowed <= CORE
        elif package in WINGS:
            assert allowed & WINGS <= {package} | MAY_IMPORT_WINGS.get(package, set())


def test_no_files_import_each_other_in_a_circle() -> None:
    names = {_name_of(module): module for module in MODULES}
    graph = {name: _imported(module, names) - {name} for name, module in names.items()}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def _name_of(module: Path) -> str:
    parts = module.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def _imported(module: Path, names: dict[str, Path]) -> set[str]:
    """The names of the project's files that a file imports, also those of `from package import`."""
    found = set()
    for node in ast.walk(ast.parse(module.read_bytes(), module)):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            members = {f"{node.module}.{each.name}" for each in node.names}
            found |= (members & names.keys()) or {node.module}
        elif isinstance(node, ast.Import):
            found |= {each.name for each in node.names}
    return found & names.keys()


def test_folders_are_small() -> None:
    folders = {module.parent for module in MODULES}
    sizes = {
        path_of(folder): len(set(folder.glob("*.py")) - {folder / "__init__.py"})
        for folder in folders
    }
    assert {folder: size for folder, size in sizes.items() if size > MOST_MODULES} == {}


@pytest.mark.parametrize("package", PURE)
def test_pure_packages_import_no_clock_and_no_network(package: str) -> None:
    wrong = [
        f"{path_of(module)}:{each.line}: {each.module}"
        for module in MODULES
        if package_of(module) == package
        for each in imports(module)
        if each.module.partition(".")[0] in IMPURE
    ]
    assert wrong == []


def test_every_package_has_its_imports_listed() -> None:
    assert {package_of(module) for module in MODULES} == set(MAY_IMPORT)


def test_no_two_packages_may_import_each_other() -> None:
    cycles = [
        (one, other)
        for one, others in MAY_IMPORT.items()
        for other in others
        if one < other and one in MAY_IMPORT.get(other, ())
    ]
    assert cycles == []


def test_modules_are_short_and_have_a_docstring() -> None:
    texts = {path_of(module): module.read_text() for module in MODULES}
    assert [path for path, text in texts.items() if text.count("\n") > LONGEST] == []
    without = [path for path, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert [path for path in without if texts[path].strip()] == []


@pytest.mark.parametrize("format", FORMATS)
def test_formats_have_the_same_modules(format: str) -> None:
    modules = {path.stem for path in (SOURCE / "wire" / format).glob("*.py")}
    assert set(FORMAT_MODULES) <= modules


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_tests(package: str) -> None:
    assert list((TESTS / package).rglob("test_*.py"))


@pytest.mark.parametrize("package", [*PACKAGES, "support"])
def test_tests_are_named_after_modules(package: str) -> None:
    wrong = [
        path_of(test)
        for test in sorted((TESTS / package).rglob("test_*.py"))
        if not _mirrors_a_module(test.relative_to(TESTS))
    ]
    assert wrong == []


def _mirrors_a_module(test: Path) -> bool:
    """`test_MODULE.py` or `test_MODULE_ASPECT.py`, of a module or package in the same folder of the
    gateway, or of a support module of the tests."""
    name = test.stem.removeprefix("test_")
    modules = {each.stem for each in (SOURCE / test.parent).glob("*")}
    support = {each.stem for each in (TESTS / test.parent).glob("*.py")} - {test.stem}
    return any(name == each or name.startswith(f"{each}_") for each in modules | support)
