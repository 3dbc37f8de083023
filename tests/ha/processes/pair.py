"""A master and its slave under load, with quick settings, and what is to be said of them.

async with running_pair(tmp_path) as it:
    async with it.producer.sending(it.address("one")):
        it.process("two").kill()
        ...
    await it.check_equal()
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from rmq.cli.ha.client import HaClient
from rmq.errors import RmqError
from rmq.remoting.client import open_client
from tests.ha.processes.cluster import (
    SEGMENT_BYTES,
    Cluster,
    Process,
    assert_same_log,
    kill_together,
)
from tests.ha.processes.load import Consumer, Producer, create_topic, wait_in_sync, wait_topic
from tests.ha.processes.network import HOSTS, OUTSIDE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from rmq.remoting.bodies import HaStatusBody
    from rmq.remoting.client import RemotingClient
    from tests.ha.processes.network import Network
    from tests.ha.processes.surroundings import Surroundings

T = TypeVar("T")

QUICK: Final = {
    "haMaxTimeSlaveNotCatchup": "1000",
    "slaveTimeout": "500",
    "haSendHeartbeatInterval": "200",
    "haHousekeepingInterval": "1000",
}
"""Seconds in place of a quarter of a minute until somebody who says nothing is given up."""
MASTER: Final = "one"
SLAVE: Final = "two"
_WAIT_S: Final = 20.0
_POLL_S: Final = 0.02


class Pair:
    """The brokers `one` and `two` of one name, and a client that talks to them."""

    def __init__(self, cluster: Cluster, client: RemotingClient, segment_bytes: int) -> None:
        self.cluster = cluster
        self.client = client
        self.ha = HaClient(client, 10.0)
        self.producer = Producer(client, senders=16)
        self.consumer = Consumer(client)
        self.segment_bytes = segment_bytes

    def process(self, name: str) -> Process:
        return self.cluster.brokers[name]

    def address(self, name: str) -> str:
        return self.cluster.addresses[name]

    async def start(self, name: str) -> None:
        await trio.to_thread.run_sync(self.process(name).start)

    async def kill(self, *names: str) -> None:
        """Kill brokers, a master first."""
        await trio.to_thread.run_sync(kill_together, [self.process(name) for name in names])

    async def stop(self, name: str) -> None:
        await trio.to_thread.run_sync(self.process(name).stop)

    async def status(self, name: str) -> HaStatusBody:
        return await self.ha.status(self.address(name))

    async def until(
        self, name: str, is_so: Callable[[HaStatusBody], bool], what: str, wait_s: float = _WAIT_S
    ) -> HaStatusBody:
        """Wait until the status of a broker is as wanted."""
        last: HaStatusBody | None = None
        with trio.move_on_after(wait_s):
            while True:
                try:
                    last = await self.status(name)
                    if is_so(last):
                        return last
                except RmqError:
                    pass
                await trio.sleep(_POLL_S)
        raise AssertionError(f"not so after {wait_s:g} s: {what}; {name} says {last}")

    async def until_in_sync(self, master: str = MASTER) -> HaStatusBody:
        return await wait_in_sync(self.client, self.address(master))

    async def until_out_of_sync(self, master: str = MASTER) -> HaStatusBody:
        return await self.until(master, lambda said: not said.in_sync, "no slave is in sync")

    async def until_codes(self, *codes: int, count: int = 20) -> None:
        """Wait until so many answers of each of these codes have come."""
        before = self.producer.codes.copy()
        with trio.move_on_after(_WAIT_S):
            while any(  # noqa: ASYNC110 - told by other tasks of this one
                self.producer.codes[code] - before[code] < count for code in codes
            ):
                await trio.sleep(_POLL_S)
            return
        raise AssertionError(
            f"no {count} answers {codes} more than {before}: {self.producer.codes}"
        )

    async def check_equal(
        self, master: str = MASTER, slave: str = SLAVE, *, seen: Path | None = None
    ) -> int:
        """See that the slave gets all that its master has, and that it is the same.

        `seen` is where the slave's store is found, if it is on a disk of its own.
        """
        await self.until_in_sync(master)
        end = (await self.status(master)).end
        await self.until(slave, lambda said: said.end >= end, f"the slave has {end}")
        assert_same_log(
            self.cluster.store_of(master),
            seen or self.cluster.store_of(slave),
            0,
            end,
            self.segment_bytes,
        )
        return end

    async def check_none_lost(self, name: str = SLAVE) -> None:
        """See that a consumer gets all that was answered SEND_OK from one of them."""
        await self.consumer.read_all(self.address(name))
        lost = set(self.producer.acknowledged) - set(self.consumer.bodies)
        assert not lost, f"{len(lost)} of {len(self.producer.acknowledged)} are missing: {lost}"


@asynccontextmanager
async def running_pair(
    folder: Path,
    *,
    role: str = "SYNC_MASTER",
    settings: Mapping[str, str] | None = None,
    slave_settings: Mapping[str, str] | None = None,
    surroundings: Surroundings | None = None,
    is_friend: bool = True,
    network: Network | None = None,
) -> AsyncIterator[Pair]:
    """Start a nameserver, a master and a slave that lives in `surroundings`.

    A slave that is no friend is not waited for, and dials its master by address. In a `network` the
    master is side 0 of the wire, the slave side 1.
    """
    own_host, *hosts = ("127.0.0.1",) * 3 if network is None else (OUTSIDE, *HOSTS)
    cluster = Cluster(folder, own_host)
    common = {**QUICK, **(settings or {})}
    master = cluster.add(MASTER, role, 0, common, host=hosts[0])
    by_address = {} if is_friend else {"haMasterAddress": cluster.ha_address(MASTER)}
    slave = cluster.add(
        SLAVE, "SLAVE", 1, {**common, **by_address, **(slave_settings or {})}, host=hosts[1]
    )
    if network is not None:
        master.surroundings, slave.surroundings = map(network.surroundings, range(2))
    if surroundings is not None:
        slave.surroundings = surroundings
    try:
        for process in (cluster.nameserver, master):
            await trio.to_thread.run_sync(process.start)
        async with open_client() as client:
            segment_bytes = int(common.get("mappedFileSizeCommitLog", SEGMENT_BYTES))
            it = Pair(cluster, client, segment_bytes)
            # The slave hears of a topic that is there when it starts sooner than of a later one.
            await create_topic(client, it.address(MASTER))
            await it.start(SLAVE)
            if is_friend:
                await it.until_in_sync()
                await wait_topic(client, it.address(SLAVE))
            yield it
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(cluster.stop)
