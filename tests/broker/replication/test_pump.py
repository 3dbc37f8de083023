"""When slaves are sent what was appended: on append, at the end of a round, or later."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.broker.replication.pump import PUMP_LATEST_S, PUMP_PAUSE_S, Pump
from rmq.broker.sending.acknowledgement import Acknowledger
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.ha.server import REPORT_PAUSE_S
from rmq.store.listener import StoreListener
from tests.ha.protocol.kit_master import serving, settled, stock_slave

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.ha.protocol.kit_master import Serving, StockPeer

pytestmark = pytest.mark.usefixtures("autojump_clock")

SYNC, ASYNC = ReplicationMode.SYNC, ReplicationMode.ASYNC


@dataclass
class Pumped:
    """A master with one slave in sync, whose appends trigger replication as a broker's do."""

    run: Serving
    slave: StockPeer
    pump: Pump
    is_in_round: bool = False

    def append(self) -> None:
        self.run.append()

    def has_come(self) -> bool:
        """Whether the slave has got bytes since the last time."""
        return bool(self.slave.take())

    @contextmanager
    def round(self) -> Iterator[None]:
        self.is_in_round = True
        yield
        self.is_in_round = False
        self.pump.end_round()


@asynccontextmanager
async def pumped(root: Path, mode: ReplicationMode) -> AsyncIterator[Pumped]:
    async with serving(root, mode=mode, messages=1) as run:
        acknowledger = Acknowledger(run.store)
        if mode is SYNC:
            acknowledger.wait_for_slaves(run.server)
        pump = Pump(acknowledger, lambda: it.is_in_round)
        pump.begin(run.server)
        run.store.listen(
            StoreListener(
                appended=pump.appended,
                dispatched=lambda _: None,
                copied=lambda *_: None,
                needed_from=lambda: run.log.end,
            )
        )
        with stock_slave(run) as slave:
            it = Pumped(run, slave, pump)
            # The first one says where to begin, the second one what it holds.
            for _ in range(2):
                await slave.report(run.log.end)
                await trio.sleep(2 * REPORT_PAUSE_S)
            assert run.only_link.in_sync
            async with trio.open_nursery() as nursery:
                nursery.start_soon(pump.run)
                await settled()
                # The answer to the last report may come late.
                slave.take()
                yield it
                nursery.cancel_scope.cancel()


async def test_the_first_message_in_sync_mode_is_sent_in_the_step_of_its_append(
    tmp_path: Path,
) -> None:
    async with pumped(tmp_path, SYNC) as it:
        with it.round():
            it.append()
            assert it.has_come()


async def test_further_ones_that_sends_wait_for_are_sent_at_the_end_of_the_round(
    tmp_path: Path,
) -> None:
    async with pumped(tmp_path, SYNC) as it:
        with it.round():
            it.append()
            it.run.ask(it.run.log.end)
            assert it.has_come()
            it.append()
            it.append()
            assert not it.has_come()
        assert it.has_come()


async def test_in_async_mode_a_round_is_sent_at_its_end(tmp_path: Path) -> None:
    async with pumped(tmp_path, ASYNC) as it:
        with it.round():
            it.append()
            it.append()
            assert not it.has_come()
        assert it.has_come()


async def test_in_async_mode_the_round_after_the_pause_sends_what_came_within_it(
    tmp_path: Path,
) -> None:
    async with pumped(tmp_path, ASYNC) as it:
        it.pump.now()
        with it.round():
            it.append()
        assert not it.has_come()
        await trio.sleep(PUMP_PAUSE_S)
        with it.round():
            pass
        assert it.has_come()


async def test_in_async_mode_a_timer_sends_what_no_further_round_does(tmp_path: Path) -> None:
    async with pumped(tmp_path, ASYNC) as it:
        it.pump.now()
        with it.round():
            it.append()
        await trio.sleep(PUMP_PAUSE_S)
        assert not it.has_come()
        await trio.sleep(PUMP_LATEST_S - PUMP_PAUSE_S + 0.001)
        assert it.has_come()


async def test_an_append_outside_of_rounds_is_sent_by_the_event_loop(tmp_path: Path) -> None:
    async with pumped(tmp_path, ASYNC) as it:
        it.append()
        it.append()
        assert not it.has_come()
        await settled()
        assert it.has_come()


async def test_who_is_no_master_any_longer_sends_nothing(tmp_path: Path) -> None:
    async with pumped(tmp_path, SYNC) as it:
        it.pump.end()
        with it.round():
            it.append()
        it.pump.now()
        assert not it.has_come()
