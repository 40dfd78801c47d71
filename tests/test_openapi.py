"""`docs/openapi.yaml` and the client endpoints agree; `tests/admin` checks the admin API."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from gateway.admin import API_PATH
from gateway.app import build_app
from tests.support.gateway import RunningGateway
from tests.support.paths import ROOT
from tests.test_docs import error_table

DOCUMENT: dict[str, Any] = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader)
PATHS: dict[str, dict[str, Any]] = DOCUMENT["paths"]

NO_ENDPOINTS = {
    ("get", "/"): "leads browsers to the console",
    ("get", "/v1/model/info"): "is the same as /model/info",
    ("get", "/v1/responses"): "tells clients that there are no WebSockets",
}
OF_THE_PROTOCOL = {405, 426, 431}
"""Statuses of requests that no operation describes."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, offered in PATHS.items():
        for method, operation in offered.items():
            if method != "parameters":
                yield method, path, operation


CLIENT_OPERATIONS = [each for each in operations() if not each[1].startswith(API_PATH)]


def statuses(operation: dict[str, Any]) -> set[int]:
    return {int(status) for status in operation["responses"] if status != "default"}


def referred(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "$ref":
                yield value
            yield from referred(value)
    elif isinstance(part, list):
        for value in part:
            yield from referred(value)


async def test_every_endpoint_is_described(gateway: RunningGateway) -> None:
    app = build_app(gateway.daemon.runtime)
    offered = {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.resource is not None and route.method not in ("HEAD", "OPTIONS", "*")
    }
    described = {(method, path) for method, path, _ in CLIENT_OPERATIONS}
    assert offered == described | set(NO_ENDPOINTS)


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in CLIENT_OPERATIONS],
)
def test_statuses_are_those_of_the_error_table(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    in_table = {int(cells[0]) for cells in error_table()}
    if path.startswith("/v1/messages"):
        in_table |= {402}
    in_table |= {422}  # forwarded
    written = statuses(operation) - {200}
    assert written <= in_table - OF_THE_PROTOCOL
    assert {400, 408} <= written
    needs_key = {"x-api-key": []} in operation["security"]
    assert ({401, 403, 404, 429, 500, 503} <= written) is needs_key
    assert (415 in written) is ("requestBody" in operation)


def test_every_status_of_the_error_table_is_described() -> None:
    described = set().union(*(statuses(operation) for *_, operation in CLIENT_OPERATIONS))
    assert {int(cells[0]) for cells in error_table()} <= described | OF_THE_PROTOCOL


@pytest.mark.parametrize("path", list(PATHS))
def test_path_parameters_are_described(path: str) -> None:
    named = {part[1:-1] for part in path.split("/") if part.startswith("{")}
    assert {each["name"] for each in PATHS[path].get("parameters", [])} == named


def test_references_and_components_match() -> None:
    kinds = DOCUMENT["components"]
    there = {
        f"#/components/{kind}/{name}" for kind in ("schemas", "responses") for name in kinds[kind]
    }
    assert set(referred(DOCUMENT)) == there


def test_operation_names_are_unique() -> None:
    names = [operation["operationId"] for *_, operation in operations()]
    assert len(set(names)) == len(names)


def test_tags_and_security_schemes_are_declared() -> None:
    tags = {tag for *_, operation in operations() for tag in operation["tags"]}
    assert tags == {each["name"] for each in DOCUMENT["tags"]}
    security = [each for *_, operation in operations() for each in operation.get("security", [])]
    named = {name for each in [*security, *DOCUMENT["security"]] for name in each}
    assert named == set(DOCUMENT["components"]["securitySchemes"])
