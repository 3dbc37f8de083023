"""The mode is switched again and again while brokers are killed."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING

import trio

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.load import wait_settled
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from pathlib import Path

    from tests.ha.processes.pair import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMED_OUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


async def test_a_switch_of_the_mode_while_the_slave_is_killed_fails_no_send(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as it:
        async with it.producer.sending(it.address(MASTER)), trio.open_nursery() as nursery:
            nursery.start_soon(_switch_on, it)
            for _ in range(2):
                await it.until_codes(OK, count=100)
                await it.kill(SLAVE)
                await it.until_codes(NO_SLAVE)
                await it.start(SLAVE)
                await it.until_in_sync()
            nursery.cancel_scope.cancel()
        assert set(it.producer.codes) <= {OK, NO_SLAVE, TIMED_OUT}
        assert not it.producer.unanswered
        await it.check_equal()
        await it.check_none_lost()


async def test_what_was_promised_in_sync_mode_survives_a_kill_after_switches(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path, role="ASYNC_MASTER") as it:
        for _ in range(2):
            async with it.producer.sending(it.address(MASTER)):
                with trio.move_on_after(0.4):
                    await _switch_on(it)
                since = await _switch(it, "SYNC_MASTER")
                await it.until_codes(OK, count=100)
                await it.kill(MASTER)
            await wait_settled(it.client, it.address(SLAVE))
            promised = [at for at in it.producer.acknowledged.values() if at >= since]
            assert promised, "nothing was sent in sync mode"
            # Whoever has a message has all before it: also those of async times are there.
            await it.check_none_lost()
            await it.start(MASTER)
            assert (await it.until_in_sync()).mode == "SYNC_MASTER", "the mode was not kept"
            await _switch(it, "ASYNC_MASTER")
        await it.check_equal()
        assert set(it.producer.codes) <= {OK, TIMED_OUT}


async def _switch_on(it: Pair) -> None:
    """Switch to and fro; every switch has its offset, and none is before the one before it."""
    offset = 0
    for role in cycle(("ASYNC_MASTER", "SYNC_MASTER")):
        at = await _switch(it, role)
        assert at >= offset
        offset = at
        await trio.sleep(0.02)


async def _switch(it: Pair, role: str) -> int:
    """Switch the mode; return from which offset on it is so."""
    await it.ha.configure(it.address(MASTER), {"brokerRole": role})
    said = await it.status(MASTER)
    assert said.mode == role
    return said.mode_offset
