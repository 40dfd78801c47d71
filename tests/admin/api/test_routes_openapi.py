"""`docs/openapi.yaml` and the admin application agree, in both directions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from functools import partial
from typing import Any, NamedTuple

import pytest
import yaml

from gateway.admin import API_PATH
from gateway.admin.access.permissions import requirement_of
from gateway.admin.accounts import AccountView
from gateway.admin.api.access import (
    AuditForm,
    CreateAdminForm,
    CreateTokenForm,
    UpdateAdminForm,
    add_access_routes,
)
from gateway.admin.api.alerts import AlertView, WebhookTest, add_alert_routes
from gateway.admin.api.console import BackupForm, PasswordForm, add_session_routes
from gateway.admin.api.feed import add_feed_routes
from gateway.admin.api.forms import (
    CheckForm,
    ConfigForm,
    ExportForm,
    FeedForm,
    Form,
    LogPageForm,
    OverviewForm,
    ProbeForm,
    RefusalsForm,
    RouteForm,
    TrafficForm,
    UsageForm,
    WebhookForm,
)
from gateway.admin.api.key_forms import (
    CreateGroupForm,
    CreateKeyForm,
    ImportedKeyForm,
    ImportKeysForm,
    LimitsForm,
    RevokeKeyForm,
    RotateKeyForm,
    UpdateGroupForm,
    UpdateKeyForm,
)
from gateway.admin.api.live import add_live_routes
from gateway.admin.api.replicas import ReplicaView, add_replica_routes
from gateway.admin.api.responses import ResponseForm, ResponsePageForm
from gateway.admin.api.routes import build_admin_app
from gateway.admin.feed import Feed
from gateway.admin.repricing import Repriced, RepriceForm
from gateway.admin.route_preview import CandidatePreview, ExcludedChannel, RoutePreview
from gateway.core.limits import Limits
from gateway.server.proxy.account_probe import ProbeResult, probe_account
from gateway.store.log.integrity import Discrepancy, Report
from gateway.store.log.overview import Breakdown, FailureGroup, Overview, TimeBucket
from gateway.store.log.traffic_report import Percentiles, TrafficRow
from gateway.store.log.usage import Metrics, UsageRow
from gateway.store.records import (
    Admin,
    AdminToken,
    AttemptRow,
    AuditRow,
    Group,
    RequestRow,
    SearchRow,
    StoredResponse,
    Token,
)
from tests.support.gateway import RunningGateway
from tests.support.paths import ROOT

DOCUMENT = yaml.load((ROOT / "docs" / "openapi.yaml").read_text(), yaml.CSafeLoader)
SCHEMAS = DOCUMENT["components"]["schemas"]

QUERIES: dict[tuple[str, str], type[Form]] = {
    ("get", "/config"): ConfigForm,
    ("get", "/usage"): UsageForm,
    ("get", "/traffic"): TrafficForm,
    ("get", "/overview"): OverviewForm,
    ("get", "/requests"): LogPageForm,
    ("get", "/refusals"): RefusalsForm,
    ("get", "/requests/export"): ExportForm,
    ("get", "/check"): CheckForm,
    ("get", "/requests/events"): FeedForm,
    ("get", "/route"): RouteForm,
    ("get", "/responses"): ResponsePageForm,
    ("get", "/audit"): AuditForm,
    ("get", "/responses/{id}"): ResponseForm,
    ("post", "/accounts/{channel}/{account}/try"): ProbeForm,
    ("post", "/alerts/test"): WebhookForm,
    ("delete", "/keys/{id}"): RevokeKeyForm,
}

BODIES: dict[tuple[str, str], type[Form]] = {
    ("post", "/keys"): CreateKeyForm,
    ("post", "/keys/import"): ImportKeysForm,
    ("patch", "/keys/{id}"): UpdateKeyForm,
    ("post", "/keys/{id}/rotate"): RotateKeyForm,
    ("post", "/usage/reprice"): RepriceForm,
    ("post", "/groups"): CreateGroupForm,
    ("patch", "/groups/{name}"): UpdateGroupForm,
    ("put", "/password"): PasswordForm,
    ("post", "/backups"): BackupForm,
    ("post", "/admins"): CreateAdminForm,
    ("patch", "/admins/{name}"): UpdateAdminForm,
    ("post", "/tokens"): CreateTokenForm,
}

ANSWERS = {
    "Limits": Limits,
    "Key": Token,
    "Group": Group,
    "UsageRow": UsageRow,
    "TrafficRow": TrafficRow,
    "Percentiles": Percentiles,
    "Repriced": Repriced,
    "TimeBucket": TimeBucket,
    "Metrics": Metrics,
    "Breakdown": Breakdown,
    "FailureGroup": FailureGroup,
    "Overview": Overview,
    "Discrepancy": Discrepancy,
    "Report": Report,
    "Account": AccountView,
    "Alert": AlertView,
    "Replica": ReplicaView,
    "WebhookTest": WebhookTest,
    "RoutePreview": RoutePreview,
    "CandidatePreview": CandidatePreview,
    "ExcludedChannel": ExcludedChannel,
    "ProbeResult": ProbeResult,
    "Admin": Admin,
    "AdminToken": AdminToken,
}
BESIDES = {
    "Key": {"digest", "old_digest", "refused"},
    "Report": {"clean"},
    "Admin": {"password_digest", "epoch", "ended"},
    "AdminToken": {"digest", "token"},
    "ProbeResult": {"channel", "account", "model", "upstream_model", "format"},
}
"""What an answer has besides its record, or lacks of it."""


def operations() -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, offered in DOCUMENT["paths"].items():
        if not path.startswith(API_PATH):
            continue
        for method, operation in offered.items():
            if method != "parameters":
                yield method, path.removeprefix(API_PATH), operation


def described(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema behind a reference."""
    resolved: dict[str, Any] = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    return resolved


async def test_paths_and_methods_match_the_router(simulated_gateway: RunningGateway) -> None:
    """And the permissions are those that the handlers state."""
    runtime = simulated_gateway.daemon.runtime
    app = build_admin_app(simulated_gateway.operations)
    add_live_routes(app, runtime, partial(probe_account, runtime))
    add_feed_routes(app, Feed(simulated_gateway.operations))
    add_alert_routes(app, simulated_gateway.daemon.console.alerts)
    add_replica_routes(app, runtime, simulated_gateway.operations.database)
    access = simulated_gateway.daemon.console.access
    add_access_routes(app, access)
    shared = offered(app)
    add_session_routes(app, access)
    on_socket = offered(app)
    written = {(method, path): operation for method, path, operation in operations()}
    assert set(written) == on_socket
    only = {each for each, operation in written.items() if operation.get("x-socket-only")}
    assert only == on_socket - shared
    for route in app.router.routes():
        stated = requirement_of(route.handler)
        if route.method != "HEAD":
            operation = written[route.method.lower(), route.resource.canonical]
            described = operation["x-permission"], operation.get("x-audit")
            assert described == stated, operation["operationId"]


def offered(app: Any) -> set[tuple[str, str]]:
    return {
        (route.method.lower(), route.resource.canonical)
        for route in app.router.routes()
        if route.method != "HEAD"
    }


@pytest.mark.parametrize(
    ("method", "path", "operation"),
    [pytest.param(*each, id=f"{each[0]} {each[1]}") for each in operations()],
)
def test_queries_and_bodies_match_the_forms(
    method: str, path: str, operation: dict[str, Any]
) -> None:
    form = QUERIES.get((method, path))
    parameters = operation.get("parameters", [])
    assert {each["in"] for each in parameters} <= {"query"}
    written = {each["name"]: each.get("required", False) for each in parameters}
    assert written == (
        {} if form is None else {k: v.is_required() for k, v in form.model_fields.items()}
    )
    form = BODIES.get((method, path))
    assert ("requestBody" in operation) is (form is not None)
    if form is not None:
        schema = operation["requestBody"]["content"]["application/json"]["schema"]
        same_fields(described(schema), form)


@pytest.mark.parametrize(
    ("name", "form"), [("LimitChanges", LimitsForm), ("ImportedKey", ImportedKeyForm)]
)
def test_nested_forms(name: str, form: type[Form]) -> None:
    same_fields(SCHEMAS[name], form)


def same_fields(schema: dict[str, Any], form: type[Form]) -> None:
    assert set(schema["properties"]) == set(form.model_fields)
    required = {name for name, field in form.model_fields.items() if field.is_required()}
    assert set(schema.get("required", [])) == required
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", ANSWERS)
def test_responses_match_the_records(name: str) -> None:
    expected = {field.name for field in fields(ANSWERS[name])} ^ BESIDES.get(name, set())
    assert set(SCHEMAS[name]["properties"]) == expected


@pytest.mark.parametrize(
    ("name", "row"),
    [("Request", RequestRow), ("Attempt", AttemptRow), ("Search", SearchRow), ("Action", AuditRow)],
)
def test_rows_match_the_records(name: str, row: type[NamedTuple]) -> None:
    assert set(SCHEMAS[name]["properties"]) == set(row._fields)


def test_stored_responses_match_the_records() -> None:
    texts = {"request", "reply", "events"}
    assert set(SCHEMAS["StoredResponse"]["properties"]) == set(StoredResponse._fields) - texts
