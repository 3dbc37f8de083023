"""Promotions after the master went on without a slave: real brokers, a real nameserver (B1)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.replication.changes import take_over
from rmq.ha.protocol.master_link import Chunk, MasterLink
from rmq.model.in_sync_record import NAMESPACE, read_record
from rmq.remoting.bodies import HaPromoteBody
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    DeleteKvConfigRequest,
    GetKvConfigRequest,
    GetKvConfigResponse,
    HaFenceRequest,
)
from rmq.store.core import Refusal
from tests.ha.pair_kit import free_port, pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from rmq.broker.broker import Broker
    from tests.ha.pair_kit import Pair

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE
NOWHERE: Final = {"haMasterAddress": "127.0.0.1:1"}


async def _switch(it: Pair, master: Broker, role: str) -> None:
    body = f"brokerRole={role}\n".encode()
    assert (await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)).code == OK


async def _cut_off_slave(it: Pair) -> tuple[Broker, Broker]:
    """Return a sync master and a slave that counted and cannot reach it any longer."""
    master = await it.start("one", "SYNC_MASTER")
    await it.create_topic(master)
    slave = await it.start("two", "SLAVE")
    await it.in_sync(master)
    assert await it.send(master, 5) == [OK] * 5
    await it.settled(master)
    await it.equal(master, slave)
    await it.stop("two")
    # Stopped in good order, it is the one it was.
    slave = await it.start("two", "SLAVE", NOWHERE)
    return master, slave


async def test_a_master_that_went_async_meanwhile_is_not_replaced_without_a_word(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await _cut_off_slave(it)
        assert await it.send(master, 5) == [NO_SLAVE] * 5
        await _switch(it, master, "ASYNC_MASTER")
        await it.settled(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.stop("one")
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "without waiting for slaves (async)" in (answer.remark or "")


async def test_a_master_that_went_on_with_another_slave_is_not_replaced_without_a_word(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master, slave = await _cut_off_slave(it)
        other = await it.start("three", "SLAVE")
        await it.in_sync(master)
        await it.settled(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.equal(master, other)
        await it.stop("one")
        await it.stop("three")
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "slaves in sync do not answer" in (answer.remark or "") or "other slave" in (
            answer.remark or ""
        )
        # The one that has everything may.
        other = await it.restart("three")
        answer = await it.promote(other)
        assert answer.code == OK, answer.remark
        assert HaPromoteBody.decode(answer.body).reason.startswith("everything")


async def test_what_nobody_could_note_does_not_count(tmp_path: Path) -> None:
    """Without its nameserver a master whose slave is gone stays sync, whatever is ordered."""
    async with pair(tmp_path) as it:
        master, _ = await _cut_off_slave(it)
        keeping = master.replication.records
        assert keeping is not None
        # The nameserver cannot write its file.
        (tmp_path / "kv.json.tmp").mkdir()
        await _switch(it, master, "ASYNC_MASTER")
        await trio.sleep(0.1)
        status = await it.status(master)
        assert (status.mode, status.in_force) == ("ASYNC_MASTER", "sync")
        assert "noted" in status.waits_for or "did not take" in status.waits_for
        assert await it.send(master, 5) == [NO_SLAVE] * 5


async def test_a_nameserver_that_was_emptied_proves_nothing_and_gets_the_record_again(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        _, slave = await _cut_off_slave(it)
        header = DeleteKvConfigRequest(namespace=NAMESPACE, key="broker-a")
        answer = await it.client.request(
            it.nameserver, RequestCode.DELETE_KV_CONFIG, header, timeout_s=5
        )
        assert answer.code == OK
        await it.stop("one")
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "has none" in (answer.remark or "")
        await it.restart("one")
        value: str | None = None
        with trio.fail_after(10):
            while value is None:
                asked = GetKvConfigRequest(namespace=NAMESPACE, key="broker-a")
                answer = await it.client.request(
                    it.nameserver, RequestCode.GET_KV_CONFIG, asked, timeout_s=5
                )
                value = answer.header(GetKvConfigResponse).value
        (member,) = read_record(value).members
        assert member in slave.replication.identity.members


async def test_a_slave_that_was_killed_is_another_one(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master, slave = await it.sync_pair()
        before = slave.replication.identity
        await it.stop("two")
        # As a kill leaves it.
        (tmp_path / "two" / "abort").touch()
        await it.stop("one")
        slave = await it.restart("two")
        assert slave.replication.identity.incarnation > before.incarnation
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "without saving its log" in (answer.remark or "")
        # With its master back it counts again.
        master = await it.restart("one")
        await it.in_sync(master)
        await it.settled(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.stop("one")
        answer = await it.promote(slave)
        assert answer.code == OK, answer.remark


async def test_a_master_that_does_not_step_down_is_told_to_stop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the link between the two is cut; the slave is promoted all the same (B10)."""
    monkeypatch.setattr(take_over, "JOIN_S", 0.1)
    async with pair(tmp_path) as it:
        master, slave = await _cut_off_slave(it)
        answer = await it.promote(slave)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "is master already" in (answer.remark or "")
        assert "does not follow it" in (answer.remark or "")
        assert await it.send(master, 3) == [NO_SLAVE] * 3
        answer = await it.promote(slave, accept_loss=True)
        assert answer.code == OK, answer.remark
        assert await it.send(master, 3) == [REFUSED] * 3
        assert (await it.status(master)).state != "writable"
        assert await it.send(slave, 3) == [NO_SLAVE] * 3


async def test_a_former_master_does_not_forget_that_another_came_after_it(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        one = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(one)
        two = await it.start("two", "SLAVE")
        await it.in_sync(one)
        assert await it.send(one, 5) == [OK] * 5
        assert (await it.promote(two)).code == OK
        await it.in_sync(two)
        await it.equal(one, two)
        await it.stop("two")
        # Its log ends where it ended when it was master, but it was not the last one.
        answer = await it.promote(one)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "async" in (answer.remark or "")


async def test_who_only_says_that_it_is_master_fences_nobody(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        for address in ("127.0.0.1:1", master.address, it.nameserver):
            header = HaFenceRequest(address=address, epoch=2**62)
            answer = await it.ask(master, RequestCode.HA_FENCE, header)
            assert answer.code == ResponseCode.NO_PERMISSION
        assert await it.send(master, 3) == [OK] * 3


async def test_a_master_that_hears_from_nobody_stops_when_its_lease_is_over(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        settings = {"haMasterLease": "600"}
        master = await it.start("one", "ASYNC_MASTER", settings)
        await it.create_topic(master)
        # Longer than the lease: its nameserver keeps it.
        await trio.sleep(1.0)
        assert await it.send(master, 3) == [OK] * 3
        # As an administrator would: other requests must not change addresses.
        master.live.update({"namesrvAddr": f"127.0.0.1:{free_port()}"}, now_ms=0)
        await it.until(lambda: master.store.refusal is Refusal.NO_LEASE, "it stops")
        assert await it.send(master, 3) == [REFUSED] * 3
        master.live.update({"namesrvAddr": it.nameserver}, now_ms=0)
        await it.until(lambda: master.store.refusal is None, "it goes on")
        assert await it.send(master, 3) == [OK] * 3


async def test_bytes_that_were_changed_on_their_way_are_copied_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.equal(master, slave)
        sealed = MasterLink.sealed
        damaged: list[int] = []

        def damage_once(self: MasterLink, chunk: Chunk, content: bytes | memoryview) -> bytes:
            """As if one byte of the chunk had been another when it was sent."""
            header = sealed(self, chunk, content)
            if damaged:
                return header
            damaged.append(chunk.offset)
            return sealed(self, chunk, bytes(content[:-1]) + bytes([content[-1] ^ 1]))

        monkeypatch.setattr(MasterLink, "sealed", damage_once)
        codes = await it.send(master, 5)
        assert damaged
        assert OK not in codes, "nobody has confirmed what was damaged"
        await it.until(lambda: slave.successor is not None, "the store was opened again")
        again = slave.successor
        assert again is not None
        await it.in_sync(master)
        await it.equal(master, again)
        assert await it.send(master, 5) == [OK] * 5
