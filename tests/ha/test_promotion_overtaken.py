"""A master that hangs comes back while its slave is being promoted: real brokers and nameserver."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.broker.registration import registration
from rmq.broker.replication import master_role, record_keeping
from rmq.ha.protocol.record_keeper import RecordKeeper
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaDemoteRequest, HaRenounceRequest, HaStepDownRequest
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.broker.replication.peers import Member

OK = ResponseCode.SUCCESS


def _hang(monkeypatch: pytest.MonkeyPatch, slave: Broker, master: Broker) -> None:
    """Let a slave find its master silent, however well it is."""
    take_over = slave.role_change.promotion.take_over
    peers = take_over.peers
    members = peers.members

    async def silent() -> list[Member]:
        found = await members()
        return [m._replace(status=None) if m.address == master.address else m for m in found]

    monkeypatch.setattr(peers, "members", silent)
    monkeypatch.setattr(take_over, "have_step_down", _no_answer)


async def _no_answer(*_: object, **__: object) -> None:
    return None


def _before_epoch(
    monkeypatch: pytest.MonkeyPatch, slave: Broker, happens: Callable[[], Awaitable[None]]
) -> None:
    """Let something happen between a decision and the epoch that it begins."""
    role = slave.replication.master_role
    begin = role.begin_epoch

    async def begin_later(*arguments: object, **named: object) -> int:
        await happens()
        return await begin(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(role, "begin_epoch", begin_later)


async def test_a_master_that_comes_back_and_goes_async_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        _hang(monkeypatch, slave, master)

        async def go_on() -> None:
            body = b"brokerRole=ASYNC_MASTER\n"
            assert (await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == OK
            await it.settled(master)
            assert await it.send(master, 20) == [OK] * 20

        _before_epoch(monkeypatch, slave, go_on)
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "nothing was changed" in (answer.remark or "")
        assert "async" in (answer.remark or "")
        # The slave is what it was, the master goes on, and all it acknowledged is there.
        status = await it.status(slave)
        assert (status.role, status.epoch, status.pending) == ("SLAVE", 1, False)
        await it.in_sync(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.equal(master, slave)
        await it.settled(master)
        assert (await it.status(master)).state == "writable"


async def test_a_promotion_that_was_overtaken_can_be_ordered_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        with monkeypatch.context() as patched:
            _hang(patched, slave, master)

            async def go_on() -> None:
                body = b"inSyncReplicas=1\nminInSyncReplicas=0\nbrokerRole=ASYNC_MASTER\n"
                await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)
                await it.settled(master)

            _before_epoch(patched, slave, go_on)
            answer = await it.promote(slave)
            assert "nothing was changed" in (answer.remark or "")
        await it.in_sync(master)
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        outcome = HaPromoteBody.decode(answer.body)
        assert (outcome.is_safe, outcome.previous_end > 0) == (True, True)
        assert await it.send(slave, 5) == [OK] * 5


async def test_a_slave_that_renounced_counts_again_by_another_name(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        before = slave.replication.identity
        header = HaRenounceRequest(address="127.0.0.1:1")
        assert (await it.ask(slave, RequestCode.HA_RENOUNCE, header)).code == OK
        identity = slave.replication.identity
        assert identity.incarnation > before.incarnation
        assert identity.members == before.members | {identity.member}
        await it.in_sync(master)
        await it.settled(master)
        assert await it.send(master, 5) == [OK] * 5
        keeper = master.replication.master
        assert keeper is not None
        assert keeper.keeper.allows(identity.member)
        assert not keeper.keeper.allows(before.member)
        # Nor does it matter to its own promotion.
        await it.stop("one")
        assert (await it.promote(slave)).code == OK


async def test_a_slave_that_was_asked_to_renounce_may_still_be_promoted_itself(
    tmp_path: Path,
) -> None:
    """Its master is gone and never heard of its other name."""
    async with pair(tmp_path) as it:
        _, slave = await it.sync_pair()
        await it.stop("one")
        header = HaRenounceRequest(address="127.0.0.1:1")
        assert (await it.ask(slave, RequestCode.HA_RENOUNCE, header)).code == OK
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark


@pytest.mark.parametrize("address", ["", "nowhere", "host:0"])
async def test_who_does_not_say_where_it_is_makes_nobody_renounce(
    tmp_path: Path, address: str
) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        header = HaRenounceRequest(address=address)
        answer = await it.ask(master, RequestCode.HA_RENOUNCE, header)
        assert answer.code != OK
        answer = await it.ask(
            master, RequestCode.HA_RENOUNCE, HaRenounceRequest(address="127.0.0.1:1")
        )
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "no slave" in (answer.remark or "")


async def test_a_master_that_cannot_be_recorded_waits_and_can_be_the_slave_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
    async with pair(tmp_path) as it:
        _, slave = await it.sync_pair()
        await it.stop("one")
        # The nameserver cannot write its file.
        (tmp_path / "kv.json.tmp").mkdir()
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        outcome = HaPromoteBody.decode(answer.body)
        assert not outcome.is_safe
        assert "the former master may go on" in outcome.reason
        assert "did not take the in-sync record" in outcome.waits_for
        status = await it.status(slave)
        assert (status.role, status.pending, status.epoch) == ("MASTER", True, 2)
        # It writes nothing that it would have to give up.
        end = slave.store.log.written
        assert await it.send(slave, 3) == [ResponseCode.SERVICE_NOT_AVAILABLE] * 3
        assert slave.store.log.written == end
        again = await it.promote(slave)
        assert "is being made master already" in (again.remark or "")
        # An operator gives it up. Then it is possible again, and ordered again.
        answer = await it.ask(slave, RequestCode.HA_DEMOTE, HaDemoteRequest())
        assert answer.code == OK, answer.remark
        status = await it.status(slave)
        assert (status.role, status.pending, status.epoch) == ("SLAVE", False, 1)
        (tmp_path / "kv.json.tmp").rmdir()
        monkeypatch.setattr(master_role, "CONFIRM_S", 20.0)
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).is_safe


async def test_a_master_that_waits_to_be_recorded_goes_on_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
    for pause in ("LOOK_S", "RETRY_S"):
        monkeypatch.setattr(record_keeping, pause, 0.1)
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.settled(master)
        (tmp_path / "kv.json.tmp").mkdir()
        assert (await it.promote(slave)).code == OK
        assert (await it.status(slave)).pending
        await it.stop("two")
        slave = await it.restart("two")
        assert (await it.status(slave)).pending
        (tmp_path / "kv.json.tmp").rmdir()
        keeping = slave.replication.records
        assert keeping is not None
        await it.until(lambda: not slave.replication.is_pending, "its epoch has begun")
        await it.in_sync(slave)
        assert await it.send(slave, 5) == [OK] * 5


async def test_a_broker_that_is_forced_into_an_epoch_that_another_has_begun_is_no_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated seed 243039: the other one is promoted between the question and the new epoch."""
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        third = await it.start("three", "SLAVE")
        await it.in_sync(master, 2)
        await it.equal(master, third)
        with monkeypatch.context() as patched:
            _hang(patched, slave, master)

            async def promote_the_other() -> None:
                answer = await it.promote(third)
                assert answer.code == OK, answer.remark

            _before_epoch(patched, slave, promote_the_other)
            # It must not find out from the broker that is listed.
            patched.setattr(registration, "ask_listed", _no_answer)
            answer = await it.promote(slave, accept_loss=True)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "it has begun epoch 2, but is no master" in (answer.remark or "")
        assert "must not be master of a name in one epoch" in (answer.remark or "")
        assert OK not in await it.send(slave, 2)
        status = await it.status(third)
        assert (status.role, status.epoch, status.state) == ("MASTER", 2, "writable")
        answer = await it.promote(slave, accept_loss=True)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).epoch == 3


async def test_a_forced_master_that_has_not_begun_its_epoch_was_not_the_last_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated seed 47092: what the master before it acknowledged may not be here."""
    monkeypatch.setattr(master_role, "CONFIRM_S", 0.1)
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.equal(master, slave)
        await it.stop("two")
        assert await it.send(master, 3) == [OK] * 3
        await it.stop("one")
        slave = await it.restart("two")
        # It does not learn whether another broker has begun the same epoch.
        monkeypatch.setattr(RecordKeeper, "asked", lambda *_: False)
        answer = await it.promote(slave, accept_loss=True)
        assert answer.code == OK, answer.remark
        assert await it.send(slave, 1) == [ResponseCode.SERVICE_NOT_AVAILABLE]
        status = await it.status(slave)
        refused = await it.ask(
            slave, RequestCode.HA_STEP_DOWN, HaStepDownRequest(epoch=status.epoch)
        )
        assert "has not begun" in (refused.remark or "")
        answer = await it.ask(slave, RequestCode.HA_DEMOTE, HaDemoteRequest(force=True))
        assert answer.code == OK, answer.remark
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "without waiting for slaves (async)" in (answer.remark or "")
