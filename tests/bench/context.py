"""What every measurement gets: the options of the run, the servers, and a way to start more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import count
from pathlib import Path

from tests.bench import gateway_server, servers
from tests.bench.gateway_server import Checkout, Size
from tests.bench.report import REFERENCE
from tests.bench.servers import Server


@dataclass(frozen=True, slots=True)
class Options:
    """What to measure and how long. `only`: globs over the names of scenarios; `seconds`: length
    of a round; `rows`: of the large request log."""

    seconds: float
    rounds: int
    quick: bool = False
    only: tuple[str, ...] = ("*",)
    rows: int = 200_000
    peers: tuple[str, ...] = ()
    peer_folder: Path = Path("var/peers")
    also: tuple[Checkout, ...] = ()

    @property
    def checkouts(self) -> tuple[Checkout, ...]:
        return (Checkout(), *self.also)

    def chosen(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.only)


@dataclass(frozen=True, slots=True)
class Bench:
    """A run. `servers` are the relay, the gateway of every checkout, and the peers."""

    options: Options
    folder: Path
    upstream: Server
    servers: list[Server]
    tested_core: int | None
    progress: Callable[[str], None]
    _numbers: Iterator[int] = field(default_factory=count)

    def fresh_folder(self, name: str) -> Path:
        """A folder that does not exist yet."""
        return self.folder / f"{name}-{next(self._numbers)}"

    @contextmanager
    def servers_of(self, size: Size | None, small: Size | None) -> Iterator[list[Server]]:
        """Those of the run, or with a size fresh ones: a gateway of each checkout, beside a small
        gateway of this checkout as the reference, or beside the relay."""
        if size is None:
            yield self.servers
            return
        gateways = [(checkout, size) for checkout in self.options.checkouts]
        if small is not None:
            gateways.insert(0, (Checkout(REFERENCE), small))
        with ExitStack() as stack:
            started = []
            if small is None:
                relay = servers.relay(self.folder, self.upstream, self.tested_core)
                started.append(stack.enter_context(relay))
            for checkout, held in gateways:
                folder = self.fresh_folder(checkout.name)
                gateway = gateway_server.gateway(
                    folder, self.upstream, self.tested_core, checkout, held
                )
                started.append(stack.enter_context(gateway))
            yield started
