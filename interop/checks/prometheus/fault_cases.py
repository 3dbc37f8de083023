"""Faults that are staged for real, and the alerts that they raise."""

from __future__ import annotations

import os
import signal
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Final

import trio

from interop.checks.prometheus.prometheus_session import Session, Wanted
from interop.checks.prometheus.watched_cluster import (
    LONE_NAME,
    NAME,
    REFUSED_TOPIC,
    TOPIC,
    DiskLauncher,
)
from interop.support.cluster import CLUSTER, Against, open_cluster
from interop.support.stock import free_port
from rmq.client import ConsumeFrom, Message, open_producer, open_push_consumer
from rmq.client.core.consuming.results import ConsumeResult

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rmq.client import Listener, ReceivedMessage

_STROLL: Final = 40
_BACKLOG: Final = 40
_BACKLOG_BODY: Final = 64 << 10


async def run_fault_cases(session: Session, folder: Path) -> None:
    await consumers(session)
    await slave_that_hangs(session)
    await slave_that_is_killed(session)
    await master_that_is_killed(session)
    await two_masters(session, folder)
    await full_disk(session)
    await lone_master_that_is_killed(session)
    await nameserver_that_is_killed(session)


async def consumers(session: Session) -> None:
    """A listener that never ends, one that refuses everything, and a group that leaves."""
    nameserver = session.watched.cluster.nameserver
    gate, strolled = trio.Event(), trio.Event()
    read = 0

    async def hang(_messages: Sequence[ReceivedMessage]) -> None:
        await gate.wait()

    async def refuse(_messages: Sequence[ReceivedMessage]) -> ConsumeResult:
        return ConsumeResult.LATER

    async def accept(messages: Sequence[ReceivedMessage]) -> None:
        nonlocal read
        read += len(messages)
        if read >= _STROLL:
            strolled.set()

    async def consume(
        group: str,
        topic: str,
        listener: Listener,
        retries: int | None = None,
        *,
        task_status: trio.TaskStatus[trio.CancelScope],
    ) -> None:
        with trio.CancelScope() as scope:
            async with open_push_consumer(
                nameserver,
                group,
                {topic: "*"},
                listener,
                consume_from=ConsumeFrom.FIRST,
                reconsume_times_max=retries,
            ):
                task_status.started(scope)
                await trio.sleep_forever()

    nursery = session.nursery

    async def stage() -> None:
        stroll = await nursery.start(consume, "strollers", TOPIC, accept)
        await nursery.start(consume, "stuck", TOPIC, hang)
        await nursery.start(consume, "refusers", REFUSED_TOPIC, refuse, 1)
        async with open_producer(nameserver, "refused") as producer:
            for _ in range(5):
                await producer.send(Message(REFUSED_TOPIC, b"broken"))
        await strolled.wait()
        stroll.cancel()

    async def repair() -> None:
        gate.set()
        await nursery.start(consume, "strollers", TOPIC, accept)

    def wanted(alert: str, group: str) -> Wanted:
        return Wanted(alert, (("cluster", CLUSTER), ("consumer_group", group)))

    await session.fault(
        "a consumer that never acknowledges, one that refuses, a group that leaves",
        [
            wanted("RocketMQConsumerStuck", "stuck"),
            wanted("RocketMQDlqGrowing", "refusers"),
            wanted("RocketMQGroupOffline", "strollers"),
        ],
        stage,
        repair,
        within_s=120,
    )


async def slave_that_hangs(session: Session) -> None:
    """SIGSTOP, for longer than a silent link is kept."""
    watched = session.watched
    node = (("node_id", NAME),)
    target = (("instance", watched.target_of(watched.slave)),)

    async def stage() -> None:
        watched.signal(watched.slave, signal.SIGSTOP)

    async def repair() -> None:
        watched.signal(watched.slave, signal.SIGCONT)

    await session.fault(
        "a slave that hangs (SIGSTOP) under sync sends",
        [
            Wanted("RocketMQBrokerDown", target),
            Wanted("RocketMQUnreplicatedSends", (*node, ("status", "FLUSH_SLAVE_TIMEOUT"))),
            Wanted("RocketMQUnreplicatedSends", (*node, ("status", "SLAVE_NOT_AVAILABLE"))),
            Wanted("RocketMQReplicationLagHigh", node),
            Wanted("RocketMQReplicationStalled", node),
            Wanted("RocketMQSlaveOutOfSync", node),
            Wanted("RocketMQSyncMasterWithoutSlave", node),
            Wanted("RocketMQPutErrors", node),
        ],
        stage,
        repair,
        within_s=90,
    )


async def slave_that_is_killed(session: Session) -> None:
    watched = session.watched
    node = (("node_id", NAME),)
    target = (("instance", watched.target_of(watched.slave)),)

    async def stage() -> None:
        await watched.cluster.kill_broker(watched.slave)
        # What it has to catch up with.
        async with open_producer(watched.cluster.nameserver, "backlog") as producer:
            for _ in range(_BACKLOG):
                # Bytes that cannot be compressed.
                await producer.send(Message(TOPIC, os.urandom(_BACKLOG_BODY)))

    await session.fault(
        "a slave that is gone (kill -9)",
        [
            Wanted("RocketMQBrokerDown", target),
            Wanted("RocketMQFewerSlavesThanExpected", node),
            Wanted("RocketMQSyncMasterWithoutSlave", node),
            Wanted("RocketMQSlaveOutOfSync", node),
            Wanted("RocketMQBrokerExpired", ()),
        ],
        stage,
        watched.start_slave,
    )
    await session.expect_firing(
        Wanted("RocketMQRecoveredAfterCrash", target), "the same slave, started again"
    )


async def master_that_is_killed(session: Session) -> None:
    watched = session.watched

    async def stage() -> None:
        await watched.cluster.kill_broker(watched.master)

    await session.fault(
        "a master that is gone (kill -9)",
        [
            Wanted("RocketMQBrokerDown", (("instance", watched.target_of(watched.master)),)),
            Wanted("RocketMQNoMaster", (("cluster", CLUSTER), ("node_id", NAME))),
            Wanted("RocketMQSlaveDisconnected", (("instance", watched.target_of(watched.slave)),)),
        ],
        stage,
        watched.start_master,
    )


async def two_masters(session: Session, folder: Path) -> None:
    """Another broker is given the name, at a nameserver of its own, so that none is fenced."""
    watched, stack = session.watched, AsyncExitStack()
    target = f"127.0.0.1:{free_port()}"

    async def stage() -> None:
        place = folder / "stray"
        await trio.Path(place).mkdir()
        stray = await stack.enter_async_context(open_cluster(Against.RMQ, place))
        stray.launcher = DiskLauncher()
        await stray.add_nameserver({"metricsPort": "0"})
        broker = stray.place_broker(NAME)
        settings = {"metricsPort": target.rpartition(":")[2], "expectedSlaves": "0"}
        await stray.start_broker(broker, {"brokerRole": "ASYNC_MASTER", **settings})
        await session.prometheus.target([*watched.brokers, target], [watched.nameserver_metrics])

    async def repair() -> None:
        await stack.aclose()
        await session.prometheus.target(watched.brokers, [watched.nameserver_metrics])

    await session.fault(
        "two masters of a name",
        [Wanted("RocketMQSplitBrain", (("cluster", CLUSTER), ("node_id", NAME)))],
        stage,
        repair,
    )


async def full_disk(session: Session) -> None:
    """A disk of 64 MiB, of which other files take more and more."""
    watched = session.watched
    target = (("instance", watched.target_of(watched.lone)),)

    async def stage() -> None:
        watched.fill_lone(0.8)

    async def fill() -> None:
        watched.fill_lone(0.95)

    async def repair() -> None:
        watched.empty_lone()

    await session.fault(
        "a disk that fills",
        [Wanted("RocketMQDiskReclaiming", target), Wanted("RocketMQDiskFullSoon", target)],
        stage,
        repair,
        within_s=120,
    )
    await session.fault(
        "a full disk",
        [
            Wanted("RocketMQDiskNearFull", target),
            Wanted("RocketMQDiskFull", target),
            Wanted("RocketMQSendsRefused", (*target, ("reason", "disk_full"))),
        ],
        fill,
        repair,
        within_s=120,
    )


async def lone_master_that_is_killed(session: Session) -> None:
    watched = session.watched

    async def stage() -> None:
        await watched.cluster.kill_broker(watched.lone)

    await session.fault(
        f"a lone master that is gone (kill -9 of {LONE_NAME})",
        [Wanted("RocketMQBrokerDown", (("instance", watched.target_of(watched.lone)),))],
        stage,
        watched.start_lone,
    )


async def nameserver_that_is_killed(session: Session) -> None:
    watched = session.watched
    target = (("instance", watched.nameserver_metrics),)
    master = (("instance", watched.target_of(watched.master)),)

    async def stage() -> None:
        await watched.cluster.kill_nameserver(watched.nameserver)

    async def repair() -> None:
        await watched.cluster.start_nameserver(watched.nameserver)

    await session.fault(
        "the only nameserver is gone (kill -9)",
        [
            Wanted("RocketMQNameserverDown", target),
            Wanted("RocketMQNameserverMajorityLost", ()),
            Wanted("RocketMQNameserverLacksBroker", master),
            Wanted("RocketMQBrokerNotRegistered", master),
        ],
        stage,
        repair,
        within_s=90,
    )
