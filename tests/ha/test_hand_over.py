"""A hand-over whose slave changes before its epoch begins: real brokers and nameserver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.broker.replication.changes import take_over
from rmq.remoting.bodies import HaPromoteBody, HaStepDownBody
from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import pytest

    from rmq.broker.broker import Broker

OK = ResponseCode.SUCCESS


def _after_step_down(
    monkeypatch: pytest.MonkeyPatch,
    slave: Broker,
    happens: Callable[[HaStepDownBody], Awaitable[HaStepDownBody]],
) -> None:
    """Let something happen between the answer of the old master and the slave's decision."""
    of_slave = slave.role_change.promotion.take_over
    have_step_down = of_slave.have_step_down

    async def have_step_down_slowly(
        master: str, *, accept_loss: bool, is_silent: bool
    ) -> HaStepDownBody | None:
        stepped_down = await have_step_down(master, accept_loss=accept_loss, is_silent=is_silent)
        assert stepped_down is not None
        return await happens(stepped_down)

    monkeypatch.setattr(of_slave, "have_step_down", have_step_down_slowly)


async def test_a_master_that_is_promoted_again_during_a_hand_over_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated seed 171428: the slave follows it in its new epoch before it is suspended."""
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()

        async def promote_again(stepped_down: HaStepDownBody) -> HaStepDownBody:
            answer = await it.promote(master)
            assert answer.code == OK, answer.remark
            body = b"brokerRole=ASYNC_MASTER\n"
            assert (await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == OK
            await it.in_sync(master)
            await it.settled(master)
            await it.until(lambda: slave.replication.identity.epoch == 2, "it knows the epoch")
            # The record counts when the slave has it; the decision looks at nameservers, too.
            state, nameservers = master.replication.master, slave.live.current.namesrv_addrs
            assert state is not None
            await it.until(
                lambda: not state.keeper.places_without(nameservers), "nameservers have the record"
            )
            return stepped_down

        _after_step_down(monkeypatch, slave, promote_again)
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "async" in (answer.remark or "")
        status = await it.status(master)
        assert (status.role, status.epoch, status.state) == ("MASTER", 2, "writable")
        assert await it.send(master, 5) == [OK] * 5
        await it.in_sync(master)
        await it.equal(master, slave)


async def test_a_slave_that_lacks_the_end_of_the_old_master_says_how_much_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master steps down because another slave has everything."""
    monkeypatch.setattr(take_over, "HAND_OVER_S", 0.3)
    async with pair(tmp_path) as it:
        master, _ = await it.sync_pair()
        third = await it.start("three", "SLAVE")
        await it.in_sync(master, 2)
        await it.equal(master, third)
        end = third.store.log.written
        slave = third.replication.slave
        assert slave is not None
        async with slave.suspended():
            await it.until(lambda: _in_sync(master) == 1, "one slave is in sync")
            assert await it.send(master, 5) == [OK] * 5
            answer = await it.promote(third, accept_loss=True)
        assert answer.code == OK, answer.remark
        outcome = HaPromoteBody.decode(answer.body)
        assert not outcome.is_safe
        assert outcome.missing_bytes == master.store.log.written - end > 0


def _in_sync(master: Broker) -> int:
    state = master.replication.master
    assert state is not None
    return state.slaves.in_sync_count
