"""What an operator has planned is no warning in the log."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


LINK_ENDS = re.compile(
    r"^the connection to the master at .* ended: the master closed the connection$"
)
"""What a slave says of a master that was stopped before it: it is not told why."""


async def test_what_is_planned_warns_of_nothing_but_a_master_that_is_gone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmq")
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        for mode in ("ASYNC_MASTER", "SYNC_MASTER"):
            body = f"brokerRole={mode}\n".encode()
            answer = await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            await it.settled(master)
            assert await it.send(master, 1) == [ResponseCode.SUCCESS]
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await it.in_sync(slave)
        assert await it.send(slave, 1) == [ResponseCode.SUCCESS]
        assert warnings(caplog) == []
        await it.stop("two")
        await it.stop("one")
    assert [line for line in warnings(caplog) if not LINK_ENDS.search(line)] == []


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]
