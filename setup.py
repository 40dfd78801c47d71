"""What setup.cfg cannot state: the commit, where this copy of the project is published, and
archives that depend on nothing but the source."""

from __future__ import annotations

import os
import sys
import tarfile
from gzip import GzipFile
from pathlib import Path
from typing import Any

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

sys.path.insert(0, str(Path(__file__).parent))
from gateway import commit

COMMIT = os.environ.get("GATEWAY_COMMIT") or commit() or ""
URL = os.environ.get("PROJECT_URL", "").rstrip("/")
# The times in archives; the first that a zip file can have.
EPOCH = int(os.environ.setdefault("SOURCE_DATE_EPOCH", "315532800"))


def write_commit(root: str) -> None:
    file = Path(root, "gateway", "commit.txt")
    file.unlink(missing_ok=True)  # a source distribution has links to the files of the tree
    file.write_text(f"{COMMIT}\n", encoding="ascii")


class BuildWithCommit(build_py):
    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            write_commit(self.build_lib)


class SourceWithCommit(sdist):
    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        super().make_release_tree(base_dir, files)
        write_commit(base_dir)

    def make_archive(
        self, base_name: str, format: str, root_dir: Any = None, base_dir: Any = None, **_: Any
    ) -> str:
        """Without the times, owners and modes that files happen to have."""
        path = f"{base_name}.tar.gz"
        with (
            GzipFile(path, "wb", mtime=EPOCH) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            archive.add(base_dir, filter=_normalise)
        return path


def _normalise(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.mtime = EPOCH
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
    return member


setup(
    cmdclass={"build_py": BuildWithCommit, "sdist": SourceWithCommit},
    project_urls={"Source": URL, "Issues": f"{URL}/issues"} if URL else {},
)
