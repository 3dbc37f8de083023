"""Slaves that must not follow: they stop, say why, take not a byte, and count for nothing."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.cli.app import main
from rmq.remoting.codes import ResponseCode
from rmq.store.truncation import Truncation, request_truncation
from tests.ha.processes.cluster import log_pieces
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.ha.processes.pair import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE


async def test_a_slave_stops_when_its_master_comes_back_with_a_shorter_log(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as it:
        await _send(it, 50)
        kept = (await it.status(MASTER)).end
        await _send(it, 50)
        end = await it.check_equal()
        await it.stop(MASTER)
        cut = Truncation(end=kept, reason="a test", at_ms=time.time_ns() // 1_000_000)
        await trio.to_thread.run_sync(request_truncation, it.cluster.store_of(MASTER), cut)
        before = b"".join(log_pieces(it.cluster.store_of(SLAVE), 0, end))
        await it.start(MASTER)
        assert (await it.status(MASTER)).end == kept
        said = await it.until(SLAVE, lambda said: said.state == "diverged", "the slave is ahead")
        assert f"{end - kept} bytes beyond" in (said.last_error or "")
        # The master gets other messages there, and more of them: it is not for that the same log.
        await _send(it, 120, NO_SLAVE)
        assert (await it.status(MASTER)).end > end
        await it.until(
            SLAVE, lambda said: "differ between" in (said.last_error or ""), "they differ"
        )
        said = await it.status(SLAVE)
        assert (said.state, said.end) == ("diverged", end)
        assert b"".join(log_pieces(it.cluster.store_of(SLAVE), 0, end)) == before
        assert (await _rmq("ha", "verify", "-b", it.address(SLAVE))) != 0
        assert (await _rmq("ha", "resync", "--yes", "-b", it.address(SLAVE))) == 0
        await it.check_equal()
        await _send(it, 20)
        await it.check_equal()
        assert (await _rmq("ha", "verify", "-b", it.address(SLAVE))) == 0


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"brokerName": "broker-b"}, "a slave of C/broker-b called the master of C/broker-a"),
        ({"brokerClusterName": "D"}, "a slave of D/broker-a called the master of C/broker-a"),
        ({"haSecret": "s" * 16}, "does not know the secret"),
        ({"haSecret": ""}, "the master asks for a secret"),
    ],
    ids=["another name", "another cluster", "another secret", "no secret"],
)
async def test_a_slave_that_does_not_belong_here_gets_nothing(
    tmp_path: Path, settings: Mapping[str, str], reason: str
) -> None:
    async with running_pair(
        tmp_path,
        settings={"haSecret": "t" * 16} if "haSecret" in settings else {},
        slave_settings=settings,
        is_friend=False,
    ) as it:
        said = await it.until(SLAVE, lambda said: said.state == "refused", "it is refused")
        assert reason in (said.last_error or "")
        await _send(it, 20, NO_SLAVE)
        said, master = await it.status(SLAVE), await it.status(MASTER)
        assert (said.state, said.end) == ("refused", 0)
        assert not master.in_sync
        assert master.counters["refused"] or "asks for" in reason


async def _send(it: Pair, count: int, code: int = OK) -> None:
    it.producer.codes.clear()
    for _ in range(count):
        assert await it.producer.send_one(it.address(MASTER))
    assert it.producer.codes == {code: count}


async def _rmq(*arguments: str) -> int:
    return await trio.to_thread.run_sync(main, arguments)
