"""The part of the self-check of `rmq dev` that is about replication: mode, lag, equal logs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import trio

from rmq.cli.ha.change import MODES, mode_word
from rmq.cli.ha.health import in_sync_count
from rmq.cli.ha.text import size_text
from rmq.cli.ha.verify import Pair, compare
from rmq.errors import RmqError

if TYPE_CHECKING:
    from rmq.cli.ha.client import HaClient

IN_SYNC_S: Final = 15.0
"""How long a slave may take until its master counts it."""
COPY_S: Final = 15.0
"""How long a slave of an async master may take until it holds everything."""
_POLL_S: Final = 0.02


class CheckFailedError(RmqError):
    """The self-check found a wrong state of replication."""


async def wait_in_sync(client: HaClient, master: str, slave: str, mode: str) -> str:
    """Wait until the master counts the slave; return a line that says so."""
    started = time.perf_counter()
    with trio.move_on_after(IN_SYNC_S):
        while True:
            status = await client.status(master)
            if status.mode != MODES[mode]:
                raise CheckFailedError(
                    f"the master {master} is {mode_word(status.mode)}, not {mode}"
                )
            if in_sync_count(status):
                took = time.perf_counter() - started
                return f"mode {mode}, epoch {status.epoch}; slave in sync, waited {took:.1f} s"
            await trio.sleep(_POLL_S)
    told = await client.status(slave)
    raise CheckFailedError(
        f"the slave {slave} is not in sync after {IN_SYNC_S:g} s: {told.state}"
        + (f", {told.last_error}" if told.last_error else "")
    )


async def check_copy(client: HaClient, master: str, slave: str, mode: str) -> str:
    """Check that the slave holds what the master does; return a line that says so.

    Behind a sync master it does when the sends are answered. Behind an async one it may take a
    moment, which is measured.
    """
    end = (await client.status(master)).end
    started = time.perf_counter()
    held = (await client.status(slave)).end
    lag_bytes = max(0, end - held)
    if mode == "sync" and held < end:
        raise CheckFailedError(
            f"the master {master} answered sends that its slave {slave} does not hold:"
            f" {size_text(lag_bytes)} are missing"
        )
    with trio.move_on_after(COPY_S) as scope:
        while held < end:
            await trio.sleep(_POLL_S)
            held = (await client.status(slave)).end
    took = time.perf_counter() - started
    if scope.cancelled_caught:
        raise CheckFailedError(
            f"the slave {slave} ends at {held}, its master at {end}, after {COPY_S:g} s"
        )
    lag = f"lag {size_text(lag_bytes)}" + (f", gone after {took:.2f} s" if lag_bytes else "")
    compared = await compare(client, Pair(master, slave), lambda done, total: None)
    if compared.difference is not None:
        raise CheckFailedError(
            f"master {master} and slave {slave} differ between offsets"
            f" {compared.difference.start} and {compared.difference.stop}"
        )
    return f"replicated: {lag}; {size_text(compared.compared.size)} the same on both, byte for byte"
