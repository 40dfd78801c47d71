"""A process to be killed: writes rows as a gateway would, and says which were acknowledged.

Started as a program of its own with the path of a ledger, or that of a spool and the URL of a
server's database; prints `open ID` once the commit of an
intent is known, and then `settled ID` of the exchange before it, whose settlement was handed over
earlier than that intent.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from gateway.config.cluster import DatabaseServer
from gateway.store.log.recorder import Recorder
from gateway.store.open import open_database
from gateway.store.postgresql.spool import Spool
from tests.store.sample_rows import intent, settlement


async def run(path: str, first: int, url: str | None = None) -> None:
    spool = None if url is None else Spool(Path(path), 2**26)
    place = path if url is None else DatabaseServer.model_validate({"url": url})
    database = await open_database(place)
    recorder = Recorder(database, spool=spool)
    await recorder.start()
    numbers = iter(range(first, first + 1_000_000))

    async def exchanges() -> None:
        settled = ""
        for number in numbers:
            opening = intent(number)
            await recorder.record_intent(opening)
            print("open", opening.id, flush=True)
            if settled:
                print("settled", settled, flush=True)
            await asyncio.sleep(0.002 * (number % 5))
            recorder.record_settlement(settlement(number))
            settled = opening.id

    await asyncio.gather(*(exchanges() for _ in range(30)))


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:]))
