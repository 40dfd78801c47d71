"""Requests that schemathesis generates from `docs/openapi.yaml`, to a gateway of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import pytest

from tests.conformance.openapi_hooks import STATUSES_FILE
from tests.support.paths import ROOT

CHECKS = (
    "server_errors_are_known",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "ignored_auth",
)
pytestmark = [pytest.mark.processes, pytest.mark.timeout(300)]


@dataclass(frozen=True, slots=True)
class Demo:
    address: str
    key: str
    password: str

    def sign_in(self) -> str:
        """The cookie of a session."""
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=10)
        form = urlencode({"password": self.password, "next": "/console"})
        headers = {
            "content-type": "application/x-www-form-urlencoded",
            "sec-fetch-site": "same-origin",
        }
        with closing(connection):
            connection.request("POST", "/console/sign-in", form, headers)
            return (connection.getresponse().getheader("set-cookie") or "").partition(";")[0]


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    command = [sys.executable, "-m", "gateway", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(
        [*command, "--state-dir", tmp_path / "state"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        lines = iter(process.stdout.readline, "")
        text = ""
        for line in lines:
            text += line
            if line.startswith("Ctrl-C"):
                break
        (address,) = re.findall(r"serving on (\S+)", text)
        (key,) = re.findall(r"^key: (\S+)", text, re.MULTILINE)
        (password,) = re.findall(r"password for this run: (\S+)", text)
        yield Demo(address, key, password)
        process.terminate()
        assert process.wait(20) == 0


def generate(demo: Demo, tmp_path: Path, *options: str) -> dict[str, Counter[int]]:
    """How often each operation gave each status."""
    record = tmp_path / "statuses"
    done = subprocess.run(
        [
            *(
                Path(sys.executable).with_name("schemathesis"),
                "run",
                ROOT / "docs" / "openapi.yaml",
            ),
            *("--url", demo.address, "--seed", "16", "--max-examples", "10"),
            *("--phases", "examples,coverage,fuzzing", "--checks", ",".join(CHECKS)),
            *("--continue-on-failure", "--warnings", "off", "--no-color", *options),
        ],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": str(ROOT),
            "SCHEMATHESIS_HOOKS": "tests.conformance.openapi_hooks",
            STATUSES_FILE: str(record),
        },
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    counts: dict[str, Counter[int]] = defaultdict(Counter)
    for line in record.read_text().splitlines():
        operation, _, status = line.rpartition(" ")
        counts[operation][int(status)] += 1
    return counts


@pytest.mark.slow("sends some thousand generated requests")
def test_client_endpoints(demo: Demo, tmp_path: Path) -> None:
    credential = ("--header", f"Authorization: Bearer {demo.key}")
    counts = generate(
        demo, tmp_path, *credential, "--include-path-regex", "^/(v1/|healthz|readyz|metrics)"
    )
    for path in ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/conversations"):
        assert counts[f"POST {path}"][200] > 0
        assert counts[f"POST {path}"][400] > 0
    assert counts["GET /readyz"][200] > 0 and counts["GET /metrics"][200] > 0
    assert sum(counter.total() for counter in counts.values()) > 1000


@pytest.mark.slow("sends some thousand generated requests")
@pytest.mark.full
def test_admin_api(demo: Demo, tmp_path: Path) -> None:
    session = ("--header", f"Cookie: {demo.sign_in()}", "--header", "Sec-Fetch-Site: same-origin")
    counts = generate(
        demo,
        tmp_path,
        *session,
        *("--include-path-regex", "^/admin/api", "--exclude-path-regex", "/events$"),
    )
    for operation in ("GET /admin/api/keys", "POST /admin/api/keys", "GET /admin/api/requests"):
        assert counts[operation][200] + counts[operation][201] > 0
    assert counts["POST /admin/api/keys"][400] > 0
