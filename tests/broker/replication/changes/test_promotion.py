"""Promotions that are refused or fail, and the mode of a new master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.replication import master_role
from rmq.ha.identity import EPOCH_MAX
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.broker.replication.changes.full_disk import cannot_save
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OK = ResponseCode.SUCCESS


async def test_a_slave_that_cannot_take_over_says_whom_to_promote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        with monkeypatch.context() as patched:
            cannot_save(patched, slave)
            answer = await it.promote(slave)
            assert answer.code == ResponseCode.NO_PERMISSION
            assert f"promote the broker at {master.address}, or this one" in (answer.remark or "")
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert await it.send(slave, 1) in ([OK], [ResponseCode.SLAVE_NOT_AVAILABLE])


async def test_the_last_epoch_of_all_makes_no_master_step_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        monkeypatch.setattr(slave.replication.known, "epoch", EPOCH_MAX)
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "the last" in (answer.remark or "")
        assert master.replication.is_master
        assert await it.send(master, 1) == [OK]


async def test_the_mode_is_the_one_that_was_ordered_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether or not it was recorded before the master stepped down."""
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        keeping = master.replication.records
        assert keeping is not None
        body = b"brokerRole=ASYNC_MASTER\n"
        assert (await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == OK
        await it.until(lambda: not keeping.missing, "it is recorded that it is async")
        # Now the record cannot be written any more.
        (tmp_path / "kv.json.tmp").mkdir()
        monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
        body = b"brokerRole=SYNC_MASTER\n"
        assert (await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == OK
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).mode == "SYNC_MASTER"
