"""A few kills of brokers under load; `tests.ha.processes.kills` runs a hundred of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.remoting.codes import ResponseCode
from tests.ha.processes.kills import kill_brokers
from tests.ha.processes.pair import MASTER, SLAVE, running_pair

if TYPE_CHECKING:
    from pathlib import Path

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMED_OUT = ResponseCode.FLUSH_SLAVE_TIMEOUT


@pytest.mark.parametrize(("mode", "kills"), [("sync", 3), ("async", 2)])
async def test_what_was_promised_is_on_the_slave_when_its_master_is_killed(
    tmp_path: Path, mode: str, kills: int
) -> None:
    outcome = await kill_brokers(tmp_path, kills, mode=mode, victim="master", seed=7)
    assert outcome.kills == kills
    assert outcome.acknowledged > 0
    assert set(outcome.codes) == {OK}


async def test_a_master_goes_on_without_its_slave_and_tells_producers_so(tmp_path: Path) -> None:
    async with running_pair(tmp_path) as it:
        async with it.producer.sending(it.address(MASTER)):
            await it.until_codes(OK)
            await it.kill(SLAVE)
            await it.until_out_of_sync()
            it.producer.codes.clear()
            await it.until_codes(NO_SLAVE)
            # Nothing else is said while it is gone.
            assert set(it.producer.codes) <= {NO_SLAVE, TIMED_OUT}
            await it.start(SLAVE)
            await it.until_in_sync()
            await it.until_codes(OK)
        assert set(it.producer.codes) <= {OK, NO_SLAVE, TIMED_OUT}
        assert not it.producer.unanswered
        await it.check_equal()
        await it.check_none_lost()


async def test_both_killed_at_once_come_back_with_all_that_was_promised(tmp_path: Path) -> None:
    outcome = await kill_brokers(tmp_path, 2, mode="sync", victim="both", seed=11)
    assert outcome.kills == 2
    assert outcome.acknowledged > 0
    assert set(outcome.codes) == {OK}
