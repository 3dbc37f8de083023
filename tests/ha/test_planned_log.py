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
    r"^slave .* is gone: this broker stops serving slaves$"
    r"|^the connection to the master at .* ended: the master closed the connection$"
)
"""A link that ends is a warning at both ends: neither tells the other that it is about to."""


async def test_starting_switching_handing_over_and_stopping_warn_of_nothing_but_links_that_end(
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
        # The master first: a slave that is stopped is gone for it, whatever the reason.
        await it.stop("two")
        await it.stop("one")
    told = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert [line for line in told if not LINK_ENDS.search(line)] == []
    assert len(told) <= 4, "each link of two that end is told by its two ends"
