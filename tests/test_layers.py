"""Holds the code to the picture of the house: who may import whom, and where tests live.

    cli → daemon → app → {server, console → admin} → runtime → {upstream, admission}
        → {wire, routing, quota, store} → config → core → errors

It reads imports, also those inside functions, and never runs what it reads.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[1]
HOUSE = ROOT / "gateway"
TESTS = ROOT / "tests"

CORE = frozenset({"core", "errors"})
CONFIG = CORE | {"config"}
UPSTREAM = CONFIG | {"wire", "routing", "upstream"}
STORE = CONFIG | {"store"}
ADMISSION = STORE | {"routing", "quota", "admission"}
RUNTIME = UPSTREAM | ADMISSION | {"runtime", "scheduler"}
SERVER = RUNTIME | {"server"}
ADMIN = CONFIG | {"routing", "quota", "store", "runtime", "admin"}
CONSOLE = ADMIN | {"admission", "console"}
APP = SERVER | CONSOLE | {"app"}
DAEMON = APP | {"daemon"}

MAY_IMPORT: dict[str, frozenset[str]] = {
    "errors": frozenset(),
    "scheduler": frozenset(),
    "core": CORE,
    "config": CONFIG,
    "wire": CORE | {"wire"},
    "routing": CONFIG | {"routing"},
    "quota": CONFIG | {"quota"},
    "upstream": UPSTREAM,
    "store": STORE,
    "admission": ADMISSION,
    "runtime": RUNTIME,
    "server": SERVER,
    "admin": ADMIN,
    "console": CONSOLE,
    "app": APP,
    "daemon": DAEMON,
    "simulator": frozenset({"simulator"}),
    "cli": DAEMON | {"simulator", "cli"},
    "__main__": frozenset({"cli"}),
    "__init__": frozenset(),
}
"""Room → rooms that its modules may import. `gateway` itself, the bare version, is free to all but
the simulator."""

PURE = ("core", "wire", "routing", "quota", "errors")
IMPURE = frozenset({"asyncio", "aiohttp", "time", "random", "secrets", "socket", "threading"})
"""Clocks, chance and I/O are arguments of what is pure."""

LONGEST = 600
"""Lines of a file: a room that one person reads in one sitting."""

MODULES = sorted(HOUSE.rglob("*.py"))
ROOMS = sorted(path.name for path in HOUSE.iterdir() if (path / "__init__.py").exists())


class Import(NamedTuple):
    module: str
    line: int

    @property
    def room(self) -> str | None:
        """Of ours; `gateway` where it is none of the rooms."""
        first, _, rest = self.module.partition(".")
        return (rest.partition(".")[0] or first) if first == "gateway" else None


def room_of(module: Path) -> str:
    return module.relative_to(HOUSE).parts[0].removesuffix(".py")


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
    """What `from gateway import name` stands for."""
    return f"gateway.{name}" if name in MAY_IMPORT else "gateway"


def name_of(module: Path) -> str:
    return str(module.relative_to(ROOT))


def test_imports_point_one_way() -> None:
    astray = []
    for module in MODULES:
        room = room_of(module)
        allowed = MAY_IMPORT[room] | ({"gateway"} - {room} if room != "simulator" else set())
        astray += [
            f"{name_of(module)}:{each.line}: {room} must not import {each.module}"
            for each in imports(module)
            if each.room is not None and each.room not in allowed
        ]
    assert astray == []


@pytest.mark.parametrize("room", PURE)
def test_what_is_pure_knows_no_clock_and_no_network(room: str) -> None:
    astray = [
        f"{name_of(module)}:{each.line}: {each.module}"
        for module in MODULES
        if room_of(module) == room
        for each in imports(module)
        if each.module.partition(".")[0] in IMPURE
    ]
    assert astray == []


def test_every_room_is_in_the_picture() -> None:
    assert {room_of(module) for module in MODULES} == set(MAY_IMPORT)


def test_the_picture_has_no_way_back() -> None:
    """However the table is changed: no two rooms may import each other."""
    both_ways = [
        (one, other)
        for one, others in MAY_IMPORT.items()
        for other in others
        if one < other and one in MAY_IMPORT.get(other, ())
    ]
    assert both_ways == []


def test_a_module_says_what_it_is_for_and_is_short() -> None:
    texts = {name_of(module): module.read_text() for module in MODULES}
    assert [name for name, text in texts.items() if text.count("\n") > LONGEST] == []
    nameless = [name for name, text in texts.items() if not ast.get_docstring(ast.parse(text))]
    assert [name for name in nameless if texts[name].strip()] == []


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_has_its_tests(room: str) -> None:
    assert list((TESTS / room).rglob("test_*.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_tests_of_a_room_are_named_after_its_modules(room: str) -> None:
    strangers = [
        name_of(test)
        for test in sorted((TESTS / room).rglob("test_*.py"))
        if not _mirrored(test.relative_to(TESTS))
    ]
    assert strangers == []


def _mirrored(test: Path) -> bool:
    """Whether the test's own path points at a module or a room; one with much to test may have
    several files: `test_<module>_<aspect>.py`. What the tests themselves stand on may have its
    tests beside it."""
    name = test.stem.removeprefix("test_")
    modules = {each.stem for each in (HOUSE / test.parent).glob("*")}
    beside = {each.stem for each in (TESTS / test.parent).glob("*.py")} - {test.stem}
    return any(name == each or name.startswith(f"{each}_") for each in modules | beside)
