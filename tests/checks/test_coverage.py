from __future__ import annotations

from pathlib import Path

import orjson

from tests.checks.coverage import by_package


def test_files_are_added_up_by_package(tmp_path: Path) -> None:
    counts = {
        "gateway/app.py": (4, 4),
        "gateway/wire/text.py": (30, 20),
        "gateway/wire/json/values.py": (10, 10),
        "gateway/wire/__init__.py": (0, 0),
        "gateway/quota/__init__.py": (0, 0),
    }
    files = {
        name: {"summary": {"num_statements": number, "covered_lines": covered}}
        for name, (number, covered) in counts.items()
    }
    report = tmp_path / "coverage.json"
    assert by_package(report) == []
    report.write_bytes(orjson.dumps({"files": files}))
    assert by_package(report) == [("wire", 40, 75.0), ("(root)", 4, 100.0)]
