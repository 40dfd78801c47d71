"""The layout of the code: which package imports which, and where tests are.

    cli → doctor → daemon → {app → {server, console → admin}, alerts → admin, cluster → shared}
        → runtime → {replicas → telemetry, upstream, admission} → {wire, routing, quota, store}
        → config → core → errors

The tests read all imports, also those inside functions, without running the code.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "gateway"
TESTS = ROOT / "tests"

CORE = frozenset({"core", "errors"})
CONFIG = CORE | {"config"}
UPSTREAM = CONFIG | {"wire", "routing", "upstream"}
STORE = CONFIG | {"store"}
ADMISSION = STORE | {"routing", "quota", "admission"}
SHARED = ADMISSION | {"shared"}
TELEMETRY = STORE | {"telemetry"}
RUNTIME = UPSTREAM | ADMISSION | TELEMETRY | {"replicas", "runtime", "scheduler", "turns"}
SERVER = RUNTIME | {"server"}
ADMIN = CONFIG | {"routing", "quota", "store", "admission", "runtime", "admin"}
CONSOLE = ADMIN | {"admission", "console"}
APP = SERVER | CONSOLE | {"app"}
ALERTS = ADMIN | {"upstream", "telemetry", "alerts"}
CLUSTER = RUNTIME | SHARED | {"cluster"}
DAEMON = APP | ALERTS | CLUSTER | {"daemon"}
DOCTOR = DAEMON | {"doctor"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "scheduler": frozenset(),
    "turns": frozenset(),
    "core": CORE,
    "config": CONFIG,
    "wire": CORE | {"wire"},
    "routing": CONFIG | {"routing"},
    "quota": CONFIG | {"quota"},
    "upstream": UPSTREAM,
    "store": STORE,
    "admission": ADMISSION,
    "shared": SHARED,
    "telemetry": TELEMETRY,
    "replicas": TELEMETRY | {"routing"},
    "runtime": RUNTIME,
    "server": SERVER,
    "admin": ADMIN,
    "console": CONSOLE,
    "app": APP,
    "alerts": ALERTS,
    "cluster": CLUSTER,
    "daemon": DAEMON,
    "simulator": frozenset({"simulator"}),
    "doctor": DOCTOR,
    "cli": DOCTOR | {"simulator", "cli"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset(),
}
"""Package or top-level module → those that it can import. `gateway` itself, which only has the
version, is open to all but the simulator."""

WITHIN_SERVER = {"record": frozenset({"record"}), "http": frozenset({"record", "http"})}
"""Folder of the server → those of its folders that it can import, and no module beside them."""

PURE = ("core", "wire", "routing", "quota", "errors")
IMPURE = frozenset({"asyncio", "aiohttp", "time", "random", "secrets", "socket", "threading"})
"""Clocks, randomness and I/O are arguments of pure code."""

SERVER_WINGS = ("stored", "images", "search")
"""Optional features of requests, which `app` registers."""

LONGEST = 600
"""Lines of a module."""

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
        """Its package or top-level module; `gateway` for the package itself, None for others."""
        first, _, rest = self.module.partition(".")
        return (rest.partition(".")[0] or first) if first == "gateway" else None


def package_of(module: Path) -> str:
    return module.relative_to(SOURCE).parts[0].removesuffix(".py")


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
            elif source == "gateway.server":
                yield from (Import(f"{source}.{each.name}", node.lineno) for each in node.names)
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


@pytest.mark.parametrize("folder", WITHIN_SERVER)
def test_folders_of_the_server_import_one_way(folder: str) -> None:
    wrong = [
        f"{path_of(module)}:{each.line}: {each.module}"
        for module in (SOURCE / "server" / folder).glob("*.py")
        for each in imports(module)
        if each.module.startswith("gateway.server.")
        and each.module.split(".")[2] not in WITHIN_SERVER[folder]
    ]
    assert wrong == []


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


def test_the_core_of_the_server_imports_no_wing_and_no_wing_another() -> None:
    wrong = []
    for module in MODULES:
        package = module.relative_to(SOURCE).parts[:-1]
        if package[:1] != ("server",):
            continue
        others = [f"gateway.server.{wing}" for wing in SERVER_WINGS if wing not in package]
        wrong += [
            f"{path_of(module)}:{each.line}: {each.module}"
            for each in imports(module)
            if any(f"{each.module}.".startswith(f"{other}.") for other in others)
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
