"""Promotion, demotion and repair by hand, with real brokers."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.ha.identity import load_identity
from rmq.ha.slave_status import SlaveState
from rmq.remoting.bodies import HaDemoteBody, HaPromoteBody, HaResyncBody, HaStatusBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    HaDemoteRequest,
    HaForgetRequest,
    HaPromoteRequest,
    HaRecordsRequest,
    HaRecordsResponse,
    HaResyncRequest,
)
from rmq.store.core import Refusal
from tests.ha.pair_kit import TOPIC, log_bytes, pair

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.broker.broker import Broker
    from rmq.remoting.command import Command
    from tests.ha.pair_kit import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


async def _promote(
    it: Pair, broker: Broker, *, accept_loss: bool = False, mode: str | None = None
) -> Command:
    header = HaPromoteRequest(accept_loss=accept_loss, mode=mode)
    return await it.ask(broker, RequestCode.HA_PROMOTE, header)


async def _demote(it: Pair, broker: Broker, *, force: bool = False) -> Command:
    return await it.ask(broker, RequestCode.HA_DEMOTE, HaDemoteRequest(force=force))


async def _resync(it: Pair, broker: Broker, *, dry_run: bool) -> Command:
    return await it.ask(broker, RequestCode.HA_RESYNC, HaResyncRequest(dry_run=dry_run))


async def test_a_slave_takes_over_from_a_dead_sync_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 30) == [OK] * 30
        await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
        await it.stop("one")
        answer = await _promote(it, slave)
        assert answer.code == OK, answer.remark
        promoted = HaPromoteBody.decode(answer.body)
        assert promoted.epoch == 2
        assert promoted.mode == "SYNC_MASTER"
        assert await it.send(slave, 30) == [NO_SLAVE] * 30
        assert len(await it.bodies(slave)) == 60
        status = await it.status(slave)
        assert (status.role, status.broker_id, status.epoch) == ("MASTER", 0, 2)
        conf = (tmp_path / "two.conf").read_text()
        assert "brokerRole=SYNC_MASTER" in conf


async def test_the_old_master_is_turned_away_and_can_follow_the_new_one(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 10) == [OK] * 10
        await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
        await it.stop("one")
        assert (await _promote(it, slave)).code == OK
        # Where a fenced master is to be sought, also after a restart.
        assert load_identity(tmp_path / "two").former_masters == (master.address,)
        assert (await it.status(slave)).former_masters == (master.address,)
        master = await it.restart("one")
        assert set(await it.send(master, 3)) == {REFUSED}
        status = await it.status(master)
        assert "epoch 2" in (status.last_error or "")
        answer = await _demote(it, master)
        assert answer.code == OK, answer.remark
        await it.in_sync(slave)
        assert await it.send(slave, 10) == [OK] * 10
        await it.equal(slave, master)
        assert (await it.status(master)).epoch == 2


async def test_a_master_that_lost_its_store_becomes_a_slave_of_the_one_in_its_place(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        old = await it.start("one", "SYNC_MASTER")
        await it.create_topic(old)
        master = await it.start("two", "SLAVE")
        await it.in_sync(old)
        assert await it.send(old, 10) == [OK] * 10
        assert (await _promote(it, master)).code == OK
        await it.in_sync(master)
        await it.stop("one")
        shutil.rmtree(tmp_path / "one")
        # With the settings of its first start, as a container would have them.
        old = await it.start("one", "SYNC_MASTER")
        await it.in_sync(master)
        await it.equal(master, old)
        status = await it.status(old)
        assert (status.role, status.state, status.epoch) == ("SLAVE", "streaming", 2)
        assert "brokerRole=SLAVE" in (tmp_path / "one.conf").read_text()
        assert await it.send(master, 10) == [OK] * 10
        # Its former store is remembered until an operator says that it is gone for good.
        (gone,) = [slave for slave in (await it.status(master)).slaves if not slave.connected]
        assert master.replication.master is not None
        keeper = master.replication.master.keeper
        await it.until(
            lambda: keeper.is_confirmed and len(keeper.chain[0].members) == 1,
            "the record names the present store alone",
        )
        answer = await it.ask(master, RequestCode.HA_FORGET, HaForgetRequest(slave=gone.name))
        assert answer.code == OK, answer.remark
        assert [each.identity for each in HaStatusBody.decode(answer.body).slaves] == [
            old.replication.identity.name
        ]


async def test_a_living_master_hands_over_without_losing_a_message(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 200) == [OK] * 200
        await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
        answer = await _promote(it, slave, mode="SYNC_MASTER")
        assert answer.code == OK, answer.remark
        promoted = HaPromoteBody.decode(answer.body)
        assert promoted.previous_end == promoted.start
        await it.in_sync(slave)
        assert await it.send(slave, 20) == [OK] * 20
        await it.equal(slave, master)
        assert len(await it.bodies(master)) == 220
        # And back again.
        answer = await _promote(it, master)
        assert answer.code == OK, answer.remark
        await it.in_sync(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.equal(slave, master)
        assert (await it.status(slave)).epoch == 3


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
async def test_a_hand_over_under_load_loses_nothing_that_was_acknowledged(
    tmp_path: Path, role: str
) -> None:
    async with pair(tmp_path) as it:
        one = await it.start("one", role)
        await it.create_topic(one)
        two = await it.start("two", "SLAVE")
        await it.in_sync(one)
        await it.until(lambda: two.topics.get(TOPIC) is not None, "the topic is known")
        acknowledged = 0
        is_over = trio.Event()

        async def load(broker: Broker) -> None:
            nonlocal acknowledged
            while not is_over.is_set():
                acknowledged += (await it.send(broker, 20)).count(OK)

        master, slave = one, two
        for _ in range(3):
            is_over = trio.Event()
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(load, master)
                await trio.sleep(0.1)
                answer = await _promote(it, slave)
                assert answer.code == OK, answer.remark
                is_over.set()
            master, slave = slave, master
            await it.in_sync(master)
            await it.equal(master, slave)
            assert len(await it.bodies(master)) >= acknowledged
        assert acknowledged > 0


async def test_between_two_roles_the_store_refuses_what_it_refused_before(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        core = master.store._core
        core.set_refused(Refusal.HANDING_OVER, True)
        found: list[Refusal | None] = []

        async def look() -> None:
            found.append(core.refusal)

        await master.replication.change_role(look)
        assert found == [Refusal.HANDING_OVER]
        core.set_refused(Refusal.HANDING_OVER, False)


async def test_a_promotion_that_may_lose_messages_has_to_be_wanted(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 10) == [OK] * 10
        await it.stop("one")
        answer = await _promote(it, slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "may be lost" in (answer.remark or "")
        assert (await it.status(slave)).role == "SLAVE"
        answer = await _promote(it, slave, accept_loss=True)
        assert answer.code == OK, answer.remark
        assert await it.send(slave, 3) == [OK] * 3


async def test_a_demoted_master_can_be_promoted_again(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        assert await it.send(master, 10) == [OK] * 10
        answer = await _demote(it, master)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "no broker would take messages" in (answer.remark or "")
        assert await it.send(master, 0) == []
        answer = await _demote(it, master, force=True)
        assert answer.code == OK, answer.remark
        assert HaDemoteBody.decode(answer.body).end == master.store.log.written
        assert set(await it.send(master, 2)) == {REFUSED}
        answer = await _promote(it, master)
        assert answer.code == OK, answer.remark
        assert await it.send(master, 10) == [OK] * 10
        assert len(await it.bodies(master)) == 20


async def test_roles_go_back_and_forth_by_hand(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        one = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(one)
        two = await it.start("two", "SLAVE")
        await it.in_sync(one)
        assert await it.send(one, 10) == [OK] * 10
        assert (await _promote(it, two)).code == OK
        await it.in_sync(two)
        assert await it.send(two, 10) == [OK] * 10
        await it.equal(one, two)
        assert (await _demote(it, two, force=True)).code == OK
        assert set(await it.send(two, 2)) == {REFUSED}
        # Nobody is master; the one that was before has all that the last one had.
        answer = await _promote(it, one)
        assert answer.code == OK, answer.remark
        await it.in_sync(one)
        assert await it.send(one, 10) == [OK] * 10
        await it.equal(one, two)


async def test_a_slave_that_went_another_way_stops_and_is_repaired(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 50) == [OK] * 50
        await it.equal(master, slave)
        await it.until(lambda: slave.topics.get(TOPIC) is not None, "the topic is known")
        await it.stop("two")
        # Messages that only the old master has.
        assert await it.send(master, 5) == [OK] * 5
        await it.stop("one")
        slave = await it.restart("two")
        assert (await _promote(it, slave, accept_loss=True)).code == OK
        assert await it.send(slave, 7) == [OK] * 7
        master = await it.restart("one")
        await it.until(lambda: master.replication.fenced is not None, "it is fenced")
        # The slave did not know whose place it took: the fenced master has named itself.
        assert load_identity(tmp_path / "two").former_masters == ()
        assert (await it.status(slave)).former_masters == (master.address,)
        assert (await _demote(it, master)).code == OK
        await it.until(
            lambda: (
                master.replication.slave is not None
                and master.replication.slave.status.state.value == "diverged"
            ),
            "the difference is found",
        )
        before = log_bytes(master)
        status = await it.status(master)
        assert status.state == "diverged"
        assert status.last_error
        answer = await _resync(it, master, dry_run=True)
        assert answer.code == OK, answer.remark
        told = HaResyncBody.decode(answer.body)
        assert (told.cut_messages, told.is_reseed) == (5, False)
        assert log_bytes(master) == before
        start, stop = told.common_end, told.local_end
        answer = await it.ask(
            master, RequestCode.HA_RECORDS, HaRecordsRequest(start=start, stop=stop)
        )
        assert answer.header(HaRecordsResponse).next_offset == stop
        assert bytes(answer.body or b"") == before[start:stop]
        other = HaResyncRequest(common_end=start, local_end=stop + 1)
        answer = await it.ask(master, RequestCode.HA_RESYNC, other)
        assert "nothing was cut" in (answer.remark or "")
        assert log_bytes(master) == before
        answer = await _resync(it, master, dry_run=False)
        assert answer.code == OK, answer.remark
        await it.until(lambda: master.successor is not None, "the store was opened again")
        again = master.successor
        assert again is not None
        await it.in_sync(slave)
        await it.equal(slave, again)
        assert len(await it.bodies(again)) == 57


@pytest.mark.parametrize("secret", ["sixteen letters!", ""], ids=["secret", "none"])
async def test_a_slave_that_missed_too_much_begins_anew(tmp_path: Path, secret: str) -> None:
    """By itself if its master has proved who it is, else when an operator says so (B3)."""
    settings = {"haSecret": secret} if secret else {}
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER", settings)
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE", settings)
        await it.in_sync(master)
        await it.send(master, 50)
        await it.equal(master, slave)
        held = log_bytes(slave)
        await it.stop("two")
        for _ in range(8):
            await it.send(master, 100, size=1000)
        # As retention does it, only at once.
        core = master.store._core
        await master.store.flush()
        while core.log.segments.first < 512 * 1024:
            core.log.segments.drop_first()
        core.follow_log()
        slave = await it.restart("two")
        if not secret:
            runner = slave.replication.slave
            assert runner is not None
            await it.until(lambda: runner.status.state is SlaveState.OUTRUN, "the slave waits")
            assert log_bytes(slave) == held
            told = HaResyncBody.decode((await _resync(it, slave, dry_run=True)).body)
            assert (told.is_reseed, told.cut_bytes, told.cut_messages) == (True, len(held), 50)
            assert (await _resync(it, slave, dry_run=False)).code == OK
        await it.until(lambda: slave.successor is not None, "the store was opened again")
        again = slave.successor
        assert again is not None
        await it.in_sync(master)
        await it.equal(master, again)
        assert again.store.log.min_offset == 512 * 1024
        # What it had is beside the new log.
        (aside,) = (tmp_path / "two").glob("commitlog-set-aside-*")
        assert (aside / f"{0:020}").read_bytes()[: len(held)] == held
