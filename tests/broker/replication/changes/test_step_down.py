"""When a master steps down for a slave that is promoted, and when it does not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaStepDownRequest
from tests.broker.replication.changes.full_disk import cannot_save
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OK = ResponseCode.SUCCESS


async def test_a_master_whose_disk_is_full_hands_over_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        cannot_save(monkeypatch, master)
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).is_safe
        assert not master.replication.is_master
        assert slave.replication.is_master


async def test_a_master_does_not_step_down_for_a_promotion_that_is_over(tmp_path: Path) -> None:
    """It hung when it was asked, and the slave was refused meanwhile."""
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        for address in (slave.address, "127.0.0.1:1"):
            header = HaStepDownRequest(epoch=1, address=address)
            answer = await it.ask(master, RequestCode.HA_STEP_DOWN, header)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert address in (answer.remark or "")
        assert master.replication.is_master
        assert await it.send(master, 1) == [OK]
