"""Brokers and a nameserver for tests of `rmq ha`: real servers on real ports, made-up answers.

They run in a thread of their own, because a command of `rmq` has the main thread and its own event
loop. A `StandInBroker` answers through the real request handlers with what the test gave it, and
notes what it was ordered to do.
"""

from __future__ import annotations

import hashlib
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec
import trio

from rmq.broker.handlers.ha import HaHandlers
from rmq.broker.replication.log_digests import log_digests
from rmq.errors import RefusedError
from rmq.model.offsets import PhysicalOffset
from rmq.remoting.bodies import (
    BrokerData,
    ClusterInfo,
    HaDemoteBody,
    HaDigestsBody,
    HaMaster,
    HaPromoteBody,
    HaResyncBody,
    HaSlave,
    HaStatusBody,
    HaStepDownBody,
    KVTable,
    parse_properties,
)
from rmq.remoting.codes import ResponseCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request
    from tests.remoting.signing_kit import SignatureGuard

DEADLINE_S = 30
NAME = "broker-a"


class LogOfBytes:
    """A log in memory."""

    def __init__(self, data: bytes, begin: int = 0) -> None:
        self.data = data
        self.begin = PhysicalOffset(begin)

    @property
    def end(self) -> PhysicalOffset:
        return self.begin + len(self.data)

    def digest(self, start: int, stop: int) -> bytes:
        return hashlib.sha256(self.data[start - self.begin : stop - self.begin]).digest()


class StandInBroker:
    """What one broker answers, and what it was told."""

    def __init__(self, *, is_stock: bool = False, end: int = 0) -> None:
        self.is_stock = is_stock
        self.stock_end = str(end)
        self.now = HaStatusBody(role="MASTER", broker_name=NAME)
        self.log = LogOfBytes(b"")
        self.resync_body = HaResyncBody(common_end=0, local_end=0, master_end=0)
        self.other_masters: list[str] = []
        self.records_at: dict[int, bytes] = {}
        """Records of its log, by physical offset."""
        self.after: HaStatusBody | None = None
        """How it is when it has done what it was told."""
        self.refusal: str | None = None
        self.orders: list[object] = []
        self.polls_until_switched = 0
        self._wanted_mode: str | None = None
        self.address = ""
        self.guard: SignatureGuard | None = None

    def table(self) -> HandlerTable:
        table = HandlerTable()
        if self.is_stock:
            table.add(Requests.GET_BROKER_RUNTIME_INFO, self._runtime_info)
        else:
            HaHandlers(self).add_to(table)
            table.add(Requests.UPDATE_BROKER_CONFIG, self._configure)
        return table

    def _runtime_info(self, request: Request[EmptyHeader]) -> None:
        request.reply(body=KVTable(table={"commitLogMaxOffset": self.stock_end}).encode())

    def _configure(self, request: Request[EmptyHeader]) -> None:
        changes = parse_properties(request.body)
        self.orders.append(("configure", changes))
        self._refuse_if_told()
        self._wanted_mode = changes["brokerRole"]
        request.reply()

    def _refuse_if_told(self) -> None:
        if self.refusal is not None:
            raise RefusedError(ResponseCode.SYSTEM_ERROR, self.refusal)

    # --- what the request handlers ask ---

    def status(self) -> HaStatusBody:
        if self._wanted_mode is not None:
            if self.polls_until_switched == 0:
                self.now = msgspec.structs.replace(self.now, mode=self._wanted_mode, mode_offset=77)
            self.polls_until_switched -= 1
        return self.now

    def note_other_master(self, address: str) -> None:
        self.other_masters.append(address)

    async def promote(self, accept_loss: bool, mode: str | None) -> HaPromoteBody:
        self.orders.append(("promote", accept_loss, mode))
        if not accept_loss:
            self._refuse_if_told()
        master = self.now.master
        return HaPromoteBody(
            mode=mode or "ASYNC_MASTER",
            epoch=self.now.epoch + 1,
            start=self.now.end,
            previous_master="" if master is None else master.address,
            previous_end=-1 if accept_loss else self.now.end,
            missing_bytes=512 if accept_loss else 0,
        )

    async def fence(self, address: str, epoch: int) -> None:
        self.orders.append(("fence", address, epoch))

    async def renounce(self, address: str) -> HaStatusBody:
        return self.status()

    async def demote(self, ha_master_address: str | None, force: bool) -> HaDemoteBody:
        self.orders.append(("demote", ha_master_address))
        self._refuse_if_told()
        done = HaDemoteBody(
            epoch=self.now.epoch, end=self.now.end, ha_master_address=ha_master_address or ""
        )
        self.now = self.after or self.now
        return done

    async def resync(self, dry_run: bool, planned: tuple[int, int] | None) -> HaResyncBody:
        self.orders.append(("resync", dry_run))
        if planned is not None:
            assert planned == (self.resync_body.common_end, self.resync_body.local_end)
        self._refuse_if_told()
        if not dry_run and self.after is not None:
            self.now = self.after
        return msgspec.structs.replace(self.resync_body, dry_run=dry_run)

    def forget(self, slave: str) -> HaStatusBody:
        self.orders.append(("forget", slave))
        self._refuse_if_told()
        return self.status()

    async def records(self, start: int, stop: int) -> tuple[bytes, int]:
        self.orders.append(("records", start, stop))
        # One at a time, as if each filled an answer.
        return self.records_at[start], start + len(self.records_at[start])

    async def digests(self, start: int, stop: int, step: int) -> HaDigestsBody:
        self.orders.append(("digests", start, stop, step))
        return await log_digests(self.log, start, stop, step)

    async def step_down(self, epoch: int, address: str | None) -> HaStepDownBody:
        raise AssertionError("only brokers ask for this")


class StandInNameserver:
    """Knows some brokers."""

    def __init__(self, groups: dict[str, dict[int, str]]) -> None:
        self.groups = groups
        self.address = ""
        self.guard: SignatureGuard | None = None

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add(Requests.GET_BROKER_CLUSTER_INFO, self._cluster_info)
        return table

    def _cluster_info(self, request: Request[EmptyHeader]) -> None:
        info = ClusterInfo(
            broker_addr_table={
                name: BrokerData(cluster="DefaultCluster", broker_name=name, broker_addrs=addresses)
                for name, addresses in self.groups.items()
            },
            cluster_addr_table={"DefaultCluster": frozenset(self.groups)},
        )
        request.reply(body=info.encode())


@contextmanager
def serving(*parts: StandInBroker | StandInNameserver) -> Iterator[None]:
    """Serve all of them on ports of their own while the block runs; their addresses are set."""
    ready = threading.Event()
    tokens: list[trio.lowlevel.TrioToken] = []
    scope = trio.CancelScope()

    async def serve() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for part in parts:
                    config = ServerConfig(host="127.0.0.1")
                    server = RemotingServer(part.table(), config, guard=part.guard)
                    await nursery.start(server.run)
                    part.address = f"127.0.0.1:{server.port}"
                tokens.append(trio.lowlevel.current_trio_token())
                ready.set()

    thread = threading.Thread(target=trio.run, args=[serve], daemon=True)
    thread.start()
    assert ready.wait(DEADLINE_S)
    try:
        yield
    finally:
        trio.from_thread.run_sync(scope.cancel, trio_token=tokens[0])
        thread.join(DEADLINE_S)
    assert not thread.is_alive()


def master_status(address: str = "", **changes: object) -> HaStatusBody:
    """A sync master with all in order, but for `changes`."""
    status = HaStatusBody(
        role="MASTER",
        mode="SYNC_MASTER",
        mode_offset=1024,
        epoch=3,
        replica="aa",
        cluster_name="DefaultCluster",
        broker_name=NAME,
        broker_id=0,
        address=address,
        state="writable",
        begin=0,
        end=12_345_678,
        flushed=12_345_678,
        replicated=12_345_678,
        visible=12_345_678,
        needed=1,
        in_sync=("broker-a:1",),
        counters={"accepted": 1, "forged": 0, "refused": 0},
        slaves=(slave_seen(),),
    )
    return msgspec.structs.replace(status, **changes)


def slave_seen(address: str = "127.0.0.1:1", **changes: object) -> HaSlave:
    """A slave in sync as its master sees it, but for `changes`."""
    slave = HaSlave(
        name="broker-a:1",
        address=address,
        identity="bb",
        native=True,
        connected=True,
        in_sync=True,
        appended=12_345_678,
        flushed=12_345_678,
        lag_bytes=0,
        lag_ms=0,
        heard_ms_ago=300,
    )
    return msgspec.structs.replace(slave, **changes)


def slave_status(
    address: str = "", master_address: str = "127.0.0.1:1", **changes: object
) -> HaStatusBody:
    """A slave in sync, but for `changes`."""
    status = HaStatusBody(
        role="SLAVE",
        mode="SLAVE",
        epoch=3,
        replica="bb",
        cluster_name="DefaultCluster",
        broker_name=NAME,
        broker_id=1,
        address=address,
        state="streaming",
        end=12_345_678,
        master=master_seen(master_address),
    )
    return msgspec.structs.replace(status, **changes)


def master_seen(address: str = "127.0.0.1:1", **changes: object) -> HaMaster:
    """A sync master as its slave sees it, but for `changes`."""
    master = HaMaster(
        address=address,
        ha_address="127.0.0.1:2",
        native=True,
        epoch=3,
        end=12_345_678,
        lag_bytes=0,
        lag_ms=0,
        heard_ms_ago=300,
        sync=True,
        in_sync=True,
        needed=1,
        in_sync_count=1,
    )
    return msgspec.structs.replace(master, **changes)
