"""A nameserver that lost the in-sync record gets it again at once: real brokers and nameservers."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import trio

from rmq.broker.replication import record_keeping
from rmq.broker.replication.peers import Peers
from rmq.ha.protocol.pending_acks import ReplicationMode
from rmq.nameserver import record_guard
from rmq.nameserver.config import load_nameserver_config
from rmq.nameserver.server import serve_nameserver
from rmq.remoting.bodies import ClusterInfo
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import HaPromoteRequest
from tests.ha.pair_kit import free_port, pair

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    import pytest

    from rmq.broker.broker import Broker
    from rmq.model.in_sync_record import InSyncRecord
    from tests.ha.pair_kit import Pair

_WAIT_S: Final = 20.0
"""Less than the 30 s after which nameservers are asked again in any case."""


@asynccontextmanager
async def _nameserver(folder: Path, port: int) -> AsyncIterator[None]:
    """Run a nameserver whose KV config is in `folder`."""
    conf = folder / "second.conf"
    conf.write_text(
        f"bindAddress=127.0.0.1\nlistenPort={port}\nkvConfigPath={folder / 'second.json'}\n"
    )
    config = load_nameserver_config(conf, environ={}).config
    async with trio.open_nursery() as nursery:
        nameserver = await nursery.start(partial(serve_nameserver, config))
        yield
        nameserver.stop(grace_s=0)


async def _kept(it: Pair, broker: Broker, nameserver: str) -> InSyncRecord | None:
    peers = Peers(broker.live, it.client)
    return await record_keeping.kept_record(peers, nameserver, "broker-a", b"")


async def _listed(it: Pair, nameserver: str) -> str | None:
    answer = await it.client.request(
        nameserver, RequestCode.GET_BROKER_CLUSTER_INFO, timeout_s=_WAIT_S
    )
    data = ClusterInfo.decode(answer.body).broker_addr_table.get("broker-a")
    return None if data is None else data.broker_addrs.get(0)


async def _until(is_so: Callable[[], Awaitable[bool]]) -> None:
    with trio.fail_after(_WAIT_S):
        while not await is_so():  # noqa: ASYNC110 - brokers, sockets and files
            await trio.sleep(0.02)


async def _promote(it: Pair, slave: Broker) -> None:
    answer = await it.ask(slave, RequestCode.HA_PROMOTE, HaPromoteRequest(accept_loss=False))
    assert answer.code == ResponseCode.SUCCESS, answer.remark
    await it.in_sync(slave)
    keeping = slave.replication.records
    assert keeping is not None
    await it.until(lambda: not keeping.missing, "it is recorded by what rule sends are answered")


async def test_a_mode_that_is_not_in_force_yet_is_said_to_wait_for_its_record(
    tmp_path: Path,
) -> None:
    async with pair(tmp_path) as it:
        one, _ = await it.sync_pair()
        master, records = one.replication.master, one.replication.records
        assert master is not None
        assert records is not None
        assert records.missing == ""
        master.want_mode(ReplicationMode.ASYNC)
        assert "has not been recorded yet" in records.missing
        records.check_again()
        await it.until(lambda: not records.missing, "the mode is recorded")
        assert master.pending_acks.mode is ReplicationMode.ASYNC


async def test_a_nameserver_that_was_set_back_lists_the_master_again_soon(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(record_guard, "LEAP_S", 0.2)
    port = free_port()
    settings = {"namesrvAddr": f"127.0.0.1:{port}"}
    async with pair(tmp_path) as it:
        async with _nameserver(tmp_path, port):
            one = await it.start("one", "SYNC_MASTER", settings)
            two = await it.start("two", "SLAVE", settings)
            await it.in_sync(one)
            first = one.replication.records
            assert first is not None
            await it.until(lambda: not first.missing, "the first record is kept")
            shutil.copy(tmp_path / "second.json", tmp_path / "old.json")
            await _promote(it, two)
            await _promote(it, one)
            assert one.replication.identity.epoch == 3
        shutil.copy(tmp_path / "old.json", tmp_path / "second.json")
        async with _nameserver(tmp_path, port):

            async def is_listed() -> bool:
                return await _listed(it, settings["namesrvAddr"]) == one.address

            await _until(is_listed)
            record = await _kept(it, one, settings["namesrvAddr"])
            assert record is not None
            assert record.epoch == 3
            await it.stop_all()


async def test_a_nameserver_that_was_emptied_has_the_record_again_soon(tmp_path: Path) -> None:
    port = free_port()
    settings = {"namesrvAddr": f"127.0.0.1:{port}"}
    async with pair(tmp_path) as it:

        async def has_record() -> bool:
            return await _kept(it, one, settings["namesrvAddr"]) is not None

        async with _nameserver(tmp_path, port):
            one = await it.start("one", "ASYNC_MASTER", settings)
            await _until(has_record)
        empty = tmp_path / "empty"
        empty.mkdir()
        async with _nameserver(empty, port):
            await _until(has_record)
            await it.stop_all()
