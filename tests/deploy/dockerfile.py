"""Reads the Dockerfile, and executes its steps below a directory instead of in a container."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import orjson

from tests.support.paths import ROOT

_OWN_PATHS: Final = re.compile(
    r"(?<![\w./-])/(?:opt/model-gateway|src|var/lib/gateway|etc/gateway|run/secrets)\b"
)
"""The paths of the image that are not those of its base."""


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """Each instruction with its arguments, in upper case; continued lines are joined."""
    lines = (line for line in text.splitlines() if not line.startswith("#"))
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if line.strip():
            name, _, arguments = line.partition(" ")
            yield name.upper(), arguments.strip()


@dataclass(slots=True)
class ScratchImage:
    """What the Dockerfile makes, below `root`. The stages share it, and one owner if not root."""

    root: Path
    python: str
    arguments: Mapping[str, str]
    env: dict[str, str] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """USER, ENTRYPOINT and the others that state something once; of the last stage."""
    workdir: Path = Path("/")

    def build(self, text: str) -> None:
        base = self.root / "usr" / "local"
        subprocess.run([self.python, "-m", "venv", base], check=True, timeout=60)
        for name, arguments in instructions(text):
            self._execute(name, arguments)
        shutil.rmtree(self.root / "src")  # of the first stage, of which the second copies a part

    def map(self, text: str) -> str:
        """Paths of the image as paths below the root."""
        return _OWN_PATHS.sub(lambda found: f"{self.root}{found[0]}", text)

    def command(self, *names: str) -> list[str]:
        """The arguments of settings in exec form, joined."""
        parts = [orjson.loads(re.sub(r"^[^\[]*", "", self.settings[name])) for name in names]
        return [self.map(part) for each in parts for part in each]

    def _execute(self, name: str, arguments: str) -> None:
        match name:
            case "FROM":
                path = f"{self.root}/usr/local/bin:{os.environ['PATH']}"
                network = {k: v for k, v in os.environ.items() if k.startswith(("PIP_", "SSL_"))}
                self.env = {**network, "PATH": path}
                self.settings = {}
            case "ARG":
                variable, _, default = arguments.partition("=")
                if (value := self.arguments.get(variable, default)) or self.env:
                    self.env[variable] = value
            case "ENV":
                for word in shlex.split(arguments):
                    variable, _, value = word.partition("=")
                    self.env[variable] = self.map(value.replace("${PATH}", self.env["PATH"]))
            case "WORKDIR":
                self.workdir = Path(self.map(arguments))
                self.workdir.mkdir(parents=True, exist_ok=True)
            case "RUN":
                self._run(arguments)
            case "COPY":
                self._copy(shlex.split(arguments))
            case _:
                self.settings[name] = arguments

    def _run(self, command: str) -> None:
        if os.geteuid() != 0:
            command = command.replace("-o 10001 -g 10001", "")
        subprocess.run(
            ["sh", "-ec", self.map(command)],
            env=self.env,
            cwd=self.workdir if self.workdir.is_dir() else self.root,
            stdin=subprocess.DEVNULL,
            check=True,
            timeout=300,
        )

    def _copy(self, words: list[str]) -> None:
        *sources, destination = words
        target = self.workdir / self.map(destination)
        if sources[0].startswith("--from="):
            assert [self.map(source) for source in sources[1:]] == [str(target)]
            return
        for source in sources:
            to = target / Path(source).name if len(sources) > 1 or target.is_dir() else target
            if (ROOT / source).is_dir():
                ignored = shutil.ignore_patterns("__pycache__")
                shutil.copytree(ROOT / source, target, ignore=ignored, dirs_exist_ok=True)
            else:
                to.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / source, to)
