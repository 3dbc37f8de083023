"""A master and its slaves, as users have them: brokers on real sockets, with a nameserver."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio

from rmq.remoting.codes import RequestCode, ResponseCode
from tests.ha.pair_kit import pair

if TYPE_CHECKING:
    from pathlib import Path

OK = ResponseCode.SUCCESS
NO_SLAVE = ResponseCode.SLAVE_NOT_AVAILABLE
TIMEOUT = ResponseCode.FLUSH_SLAVE_TIMEOUT
REFUSED = ResponseCode.SERVICE_NOT_AVAILABLE


async def test_a_slave_has_what_its_sync_master_acknowledged(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 100) == [OK] * 100
        await it.equal(master, slave)
        assert await it.bodies(slave) == await it.bodies(master)
        assert len(await it.bodies(slave)) == 100


async def test_a_sync_master_without_a_slave_says_so(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        assert await it.send(master, 3) == [NO_SLAVE] * 3
        assert await it.send(master, 3, properties="WAIT\x01false") == [OK] * 3
        assert len(await it.bodies(master)) == 6


async def test_an_async_master_waits_for_nobody_and_its_slave_gets_everything(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        assert await it.send(master, 50) == [OK] * 50
        slave = await it.start("two", "SLAVE")
        await it.equal(master, slave)
        assert await it.send(master, 50) == [OK] * 50
        await it.equal(master, slave)


async def test_a_slave_begins_to_catch_up_within_a_second(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        # Several segments of 256 KiB: the oldest is copied, too.
        for _ in range(8):
            await it.send(master, 100, size=1000)
        assert master.store.log.written > 2 * 256 * 1024
        started = trio.current_time()
        slave = await it.start("two", "SLAVE")
        await it.until(lambda: slave.store.log.written > 0, "the first byte is there")
        assert trio.current_time() - started < 1.0
        await it.equal(master, slave)
        assert slave.store.log.min_offset == 0


async def test_a_slave_can_begin_with_the_last_file(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        for _ in range(8):
            await it.send(master, 100, size=1000)
        slave = await it.start("two", "SLAVE", {"haCatchUpFrom": "last"})
        log = slave.store.log
        end = master.store.log.written
        await it.until(lambda: log.written == end, "the end is there")
        assert log.min_offset == end // (256 * 1024) * 256 * 1024


async def test_both_sides_go_on_after_restarts_in_the_middle_of_a_segment(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.stop("two")
        assert await it.send(master, 20) == [NO_SLAVE] * 20
        slave = await it.restart("two")
        await it.in_sync(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.equal(master, slave)
        await it.stop("one")
        master = await it.restart("one")
        await it.in_sync(master)
        assert await it.send(master, 20) == [OK] * 20
        await it.equal(master, slave)
        assert len(await it.bodies(slave)) == 80


async def test_the_mode_changes_at_a_definite_offset_under_load(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.create_topic(master)
        await it.start("two", "SLAVE")
        await it.in_sync(master)
        codes: list[int] = []
        is_over = trio.Event()

        async def load() -> None:
            while not is_over.is_set():
                codes.extend(await it.send(master, 20))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(load)
            for role in ("SYNC_MASTER", "ASYNC_MASTER") * 5:
                before = master.store.log.written
                body = f"brokerRole={role}\n".encode()
                answer = await it.ask(master, RequestCode.UPDATE_BROKER_CONFIG, body=body)
                assert answer.code == OK, answer.remark
                status = await it.status(master)
                while status.in_force.upper() != role.removesuffix("_MASTER"):
                    assert status.waits_for or status.mode == "SYNC_MASTER"
                    status = await it.status(master)
                assert status.mode == role
                assert before <= status.mode_offset <= master.store.log.written
                await trio.sleep(0.02)
            is_over.set()
        assert set(codes) == {OK}
        assert "brokerRole=ASYNC_MASTER" in (tmp_path / "one.conf").read_text()


async def test_too_few_slaves_refuse_messages_before_they_are_stored(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER", {"minInSyncReplicas": "1"})
        await it.create_topic(master)
        end = master.store.log.written
        assert await it.send(master, 5) == [REFUSED] * 5
        assert master.store.log.written == end
        assert "minInSyncReplicas" in (await it.status(master)).state
        await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 5) == [OK] * 5
        await it.stop("two")
        await it.until(lambda: master.store.refusal is not None, "the slave is missed")
        assert await it.send(master, 5) == [REFUSED] * 5


async def test_two_slaves_can_be_asked_for(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER", {"inSyncReplicas": "2"})
        await it.create_topic(master)
        one = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert await it.send(master, 5) == [NO_SLAVE] * 5
        other = await it.start("three", "SLAVE")
        await it.in_sync(master, 2)
        assert await it.send(master, 5) == [OK] * 5
        await it.equal(master, one)
        await it.equal(master, other)


async def test_only_what_the_slave_flushed_counts_if_so_wanted(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        settings = {"ackAfterSlaveFlush": "true", "flushIntervalCommitLog": "60000"}
        master = await it.start("one", "SYNC_MASTER", settings)
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE", {"flushIntervalCommitLog": "60000"})
        await it.in_sync(master)
        assert await it.send(master, 20) == [OK] * 20
        assert slave.store.log.flushed == slave.store.log.written


async def test_unreplicated_messages_can_be_hidden(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER", {"hideUnreplicated": "true"})
        await it.create_topic(master)
        assert await it.send(master, 4) == [NO_SLAVE] * 4
        assert await it.bodies(master) == set()
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        await it.equal(master, slave)
        assert await it.send(master, 4) == [OK] * 4
        await it.until(
            lambda: master.store.statistics().dispatch_lag_bytes == 0, "everything is to be seen"
        )
        assert len(await it.bodies(master)) == 8


async def test_a_forged_report_changes_nothing(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        port = master.live.current.ha_port
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        await stream.send_all((10**12).to_bytes(8, "big"))
        assert await stream.receive_some() == b""
        await stream.aclose()
        assert await it.send(master, 5) == [NO_SLAVE] * 5
        status = await it.status(master)
        assert status.counters["forged"] == 1
        assert status.last_error is not None
        assert "1000000000000" in status.last_error


@pytest.mark.parametrize(
    "garbage",
    [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, bytes(7), b"\x16\x03\x01" + bytes(50)],
    ids=["http", "ones", "too short", "tls"],
)
async def test_garbage_on_the_port_is_turned_away(tmp_path: Path, garbage: bytes) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        await it.start("two", "SLAVE")
        await it.in_sync(master)
        stream = await trio.open_tcp_stream("127.0.0.1", master.live.current.ha_port)
        await stream.send_all(garbage)
        assert await it.send(master, 5) == [OK] * 5
        await stream.aclose()
        assert await it.send(master, 5) == [OK] * 5


async def test_a_slave_refuses_writes_and_says_who_is_master(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "SYNC_MASTER")
        await it.create_topic(master)
        slave = await it.start("two", "SLAVE")
        await it.in_sync(master)
        assert set(await it.send(slave, 3)) == {REFUSED}
        status = await it.status(slave)
        assert status.role == "SLAVE"
        assert status.state == "streaming"
        assert status.master is not None
        assert status.master.address == master.address
        assert status.master.in_sync


async def test_a_port_that_is_taken_ends_the_start_with_a_clear_error(tmp_path: Path) -> None:
    async with pair(tmp_path) as it:
        master = await it.start("one", "ASYNC_MASTER")
        await it.stop("one")
        with socket.create_server(("127.0.0.1", master.live.current.ha_port)):
            with pytest.raises(BaseExceptionGroup) as caught:
                await it.restart("one")
            assert caught.group_contains(Exception, match="cannot listen on")
