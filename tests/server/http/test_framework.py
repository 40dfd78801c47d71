"""What one module uses of aiohttp's inside, and no other: the installed version has it."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.http_writer import StreamWriter
from aiohttp.test_utils import make_mocked_request

import gateway
from gateway.server.http import framework

SOURCE = Path(gateway.__file__).parent
FRAMEWORK = Path(framework.__file__)
OF_AIOHTTP = frozenset({"aiohttp.http", "aiohttp.http_exceptions", "aiohttp.http_writer"})
"""Modules that its documentation does not have."""

PRIVATE_NAMES = {
    "protocol": (
        *("_close", "_current_request", "_force_close", "_max_msg_queue_size", "_messages"),
        *("_msg_queue_resume_size", "_parser", "_request_factory", "_waiter"),
    ),
    "request": ("_match_info", "_message"),
    "response": ("_eof_sent", "_keep_alive", "_status"),
}
UNDOCUMENTED_NAMES = {
    "protocol": ("connection_lost", "finish_response", "force_close", "handle_error", "transport"),
    "protocol's base": ("writing_paused",),
    "server": ("connections", "request_factory", "request_handler"),
    "parser": ("feed_data", "feed_eof", "message_consumed", "pause_reading", "set_upgraded"),
    "writer": ("drain", "output_size"),
    "message": ("_replace", "raw_headers", "should_close"),
    "match": ("add_app", "apps", "freeze"),
}


@pytest.fixture
async def objects() -> dict[str, Any]:
    loop, server = asyncio.get_running_loop(), web.Server(lambda _: web.Response())
    protocol, request = web.RequestHandler(server, loop=loop), make_mocked_request("GET", "/")
    return {
        "protocol": protocol,
        "protocol's base": protocol,
        "request": request,
        "response": web.StreamResponse(),
        "server": server,
        "parser": protocol._parser,
        "writer": StreamWriter(protocol, loop),
        "message": request._message,
        "match": web.UrlMappingMatchInfo,
    }


@pytest.mark.parametrize("of", sorted({*PRIVATE_NAMES, *UNDOCUMENTED_NAMES}))
async def test_the_installed_version_has_each_name(of: str, objects: dict[str, Any]) -> None:
    names = PRIVATE_NAMES.get(of, ()) + UNDOCUMENTED_NAMES.get(of, ())
    assert [name for name in names if not hasattr(objects[of], name)] == []


def test_a_connection_takes_its_options() -> None:
    taken = inspect.signature(web.RequestHandler.__init__).parameters
    assert set(framework.CONNECTION_OPTIONS) <= set(taken)


def test_every_private_name_is_listed() -> None:
    used = {name for _, name in _private_names(FRAMEWORK)} - {"_replace"}
    assert used == {name for names in PRIVATE_NAMES.values() for name in names}


def test_no_other_module_uses_a_private_name() -> None:
    private = {name for names in PRIVATE_NAMES.values() for name in names}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {name}"
        for path in SOURCE.rglob("*.py")
        if path != FRAMEWORK and "aiohttp" in path.read_text()
        for line, name in _private_names(path)
        if name in private
    ]
    assert wrong == []


def test_no_other_module_imports_an_undocumented_one() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{node.lineno}: {node.module}"
        for path in SOURCE.rglob("*.py")
        if path != FRAMEWORK
        for node in ast.walk(ast.parse(path.read_bytes()))
        if isinstance(node, ast.ImportFrom) and node.module in OF_AIOHTTP
    ]
    assert wrong == []


def _private_names(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and names of private attributes that are no slots of the module's own: those of `self`
    in classes that derive from aiohttp's, and those of anything else."""
    tree = ast.parse(path.read_bytes())
    nodes = list(ast.walk(tree))
    own = {
        each.value
        for node in nodes
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
        for each in ast.walk(node.value)
        if isinstance(each, ast.Constant)
    }
    derived = {
        each
        for node in nodes
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(base).startswith(("web.", "Framework")) for base in node.bases)
        for each in ast.walk(node)
    }
    for node in nodes:
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            is_self = ast.unparse(node.value) == "self"
            if not is_self or (node in derived and node.attr not in own):
                yield node.lineno, node.attr
