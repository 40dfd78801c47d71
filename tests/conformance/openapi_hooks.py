"""What schemathesis loads: a check of server errors, and a record of all statuses."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import schemathesis

from tests.test_docs import error_table

STATUSES_FILE: Final = "GATEWAY_TEST_STATUSES"
"""The variable that names the file: a line `METHOD path status` for each response."""

_KNOWN: Final = {(int(cells[0]), cells[3].strip("`")) for cells in error_table()}
_NO_CODE: Final = "none"
_BUG: Final = "Internal server error"


@schemathesis.check
def server_errors_are_known(ctx: Any, response: Any, case: Any) -> None:
    """A status of 5xx has a code of the error table, and is no bug of the gateway. `/readyz` has
    a body of its own, and the admin API codes of its own."""
    if response.status_code < 500 or case.path == "/readyz":
        return
    error = response.json()["error"]
    assert error["message"] != _BUG and error.get("code") != "internal_error", error
    if case.path.startswith("/v1/messages"):
        return  # its errors have no code
    if case.path.startswith("/v1"):
        assert (response.status_code, error["code"] or _NO_CODE) in _KNOWN, error


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    with Path(os.environ[STATUSES_FILE]).open("a") as file:
        file.write(f"{case.method} {case.path} {response.status_code}\n")
