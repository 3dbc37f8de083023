"""Writes runs of numbered messages with a running store until it is killed.

Started as a process of its own: `killed_writer.py ROOT PORT FIRST_RUN SLOW_SECONDS SIZES...`. Each
run that was put is acknowledged by a line with its number. It writes slowly at first, so that
recovery points are made and time goes by between the segments, and then as fast as it can.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import trio
from numbered_runs import is_batch, new_messages
from store_place import Geometry, StorePlace

from rmq.store.append import AppendStatus
from rmq.store.store import open_store

LIFE_S: Final = 60
_SLOW_PAUSE_S: Final = 0.01
_POINT_INTERVAL_MS: Final = 300


async def write(place: StorePlace, run: int, slow_s: float) -> None:
    config = place.config(recovery_point_interval_ms=_POINT_INTERVAL_MS)
    with trio.move_on_after(LIFE_S):
        async with open_store(config, store_host=place.store_host) as store:
            fast_from = trio.current_time() + slow_s
            while True:
                results = await store.put(new_messages(run), batch=is_batch(run))
                if any(result.status is not AppendStatus.PUT_OK for result in results):
                    raise RuntimeError(f"run {run} was refused: {results}")
                sys.stdout.write(f"{run}\n")
                sys.stdout.flush()
                run += 1
                if trio.current_time() < fast_from:
                    await trio.sleep(_SLOW_PAUSE_S)


def main(arguments: list[str]) -> None:
    root, port, run, slow_s, *sizes = arguments
    place = StorePlace(Path(root), int(port), Geometry(*map(int, sizes)))
    trio.run(write, place, int(run), float(slow_s))


if __name__ == "__main__":
    main(sys.argv[1:])
