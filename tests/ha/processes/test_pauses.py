"""Brokers that stand still for a while, and a link on which nothing happens."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import trio

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from pathlib import Path

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMED_OUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
BUSY = ResponseCode.SYSTEM_BUSY


async def test_a_paused_slave_is_left_out_after_a_time_and_counted_again_when_it_is_back(
    tmp_path: Path,
) -> None:
    # Its connection stands all the time: only what it does not take tells.
    async with running_pair(tmp_path, settings={"haHousekeepingInterval": "20000"}) as it:
        accepted = (await it.status(MASTER)).counters["accepted"]
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK)
            it.process(SLAVE).signal(signal.SIGSTOP)
            await it.until_out_of_sync()
            assert it.producer.codes[TIMED_OUT], "those who waited were told so"
            it.producer.slowest_s = 0.0
            await it.until_codes(NO_SLAVE, count=500)
            # The first of these had waited for the slave until it was left out.
            assert it.producer.slowest_s < 1.0
            it.process(SLAVE).signal(signal.SIGCONT)
            await it.until_in_sync()
            await it.until_codes(OK)
        assert set(it.producer.codes) == {OK, NO_SLAVE, TIMED_OUT}
        assert not it.producer.unanswered
        assert (await it.status(MASTER)).counters["accepted"] == accepted
        await it.check_equal()
        await it.check_none_lost()


async def test_a_slave_notices_that_its_master_stands_still_and_finds_it_again(
    tmp_path: Path,
) -> None:
    async with running_pair(tmp_path) as it:
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK)
            it.process(MASTER).signal(signal.SIGSTOP)
            said = await it.until(
                SLAVE, lambda said: said.state == "connecting", "the slave misses its master"
            )
            assert "silent" in (said.last_error or "")
            await trio.sleep(0.5)
            it.process(MASTER).signal(signal.SIGCONT)
            await it.until_codes(OK)
        # A master that stood still while it stored something takes its disk for a slow one.
        assert set(it.producer.codes) <= {OK, NO_SLAVE, TIMED_OUT, BUSY}
        assert not it.producer.unanswered
        await it.check_equal()
        await it.check_none_lost()


async def test_a_link_on_which_nothing_happens_stands(tmp_path: Path) -> None:
    # As many signs of life as in ten minutes, and as many of them may be missing.
    settings = {"haSendHeartbeatInterval": "25", "haHousekeepingInterval": "1000"}
    async with running_pair(tmp_path, settings=settings) as it:
        before = await it.status(MASTER)
        await trio.sleep(120 * 0.025)
        after = await it.status(MASTER)
        assert after.counters == before.counters
        assert after.in_sync
        assert after.slaves[0].heard_ms_ago < 1000
        assert (await it.status(SLAVE)).state == "streaming"
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK)
        assert set(it.producer.codes) == {OK}
