"""Commands for the settings of groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from interop.checks.mqadmin.admin_session import DATA
from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER
from interop.support.java_client import StockClientError
from interop.support.java_messages import Queue
from interop.support.mqadmin import expect_in
from interop.support.printed import settings

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession

NO_PERMISSION: Final = 16


async def run_group_commands(session: AdminSession) -> None:
    await _update(session)
    await _switch(session)
    await _delete(session)


async def _update(session: AdminSession) -> None:
    address = session.broker.address
    with session.operation("updateSubGroup", "create with every setting; getConsumerConfig"):
        output = await session.mqadmin(
            "updateSubGroup",
            *("-b", address, "-g", "shaped", "-s", "true", "-m", "true", "-d", "false"),
            *("-q", "2", "-r", "5", "-i", "0", "-w", "1", "-a", "false"),
        )
        expect_in(f"create subscription group to {address} success.", output)
        wanted = {
            "groupName": "shaped",
            "consumeEnable": "true",
            "consumeFromMinEnable": "true",
            "consumeBroadcastEnable": "false",
            "retryQueueNums": "2",
            "retryMaxTimes": "5",
            "brokerId": "0",
            "whichBrokerWhenConsumeSlowly": "1",
            "notifyConsumerIdsChangedEnable": "false",
        }
        output = await session.mqadmin("getConsumerConfig", "-g", "shaped")
        expect_in(f"={CLUSTER}:{session.broker.name}=", output)
        expect("settings", settings(output), wanted)

    with session.operation("updateSubGroup", "change on a cluster"):
        output = await session.mqadmin("updateSubGroup", "-c", CLUSTER, "-g", "shaped", "-r", "7")
        expect_in(f"create subscription group to {address} success.", output)
        output = await session.mqadmin("getConsumerConfig", "-g", "shaped")
        expect("retries", settings(output)["retryMaxTimes"], "7")

    with session.operation("getConsumerConfig", "of an unknown group"):
        expect("printed", await session.mqadmin("getConsumerConfig", "-g", "strangers"), "")


async def _switch(session: AdminSession) -> None:
    queue = Queue(DATA, session.broker.name, 0)
    with session.operation("updateSubGroup", "consumption switched off and on"):
        async with session.driver.pull_consumer("switched", group="switched") as consumer:
            await _set_enabled(session, "false")
            try:
                await consumer.pull(queue, 0)
            except StockClientError as refusal:
                expect("code", refusal.code, NO_PERMISSION)
            else:
                expect("outcome", "pulled", "refused")
            await _set_enabled(session, "true")
            expect("status", (await consumer.pull(queue, 0)).status, "FOUND")


async def _set_enabled(session: AdminSession, value: str) -> None:
    await session.mqadmin(
        "updateSubGroup", "-b", session.broker.address, "-g", "switched", "-s", value
    )


async def _delete(session: AdminSession) -> None:
    await session.consume_all("leavers", DATA, 20)
    with session.operation("deleteSubGroup", "with its offsets and its retry topic"):
        expect_true("a retry topic", "%RETRY%leavers" in await session.topics())
        output = await session.mqadmin(
            "deleteSubGroup", "-c", CLUSTER, "-g", "leavers", "-r", "true"
        )
        address = session.broker.address
        expect_in(
            f"delete subscription group [leavers] from broker [{address}]"
            f" in cluster [{CLUSTER}] success.",
            output,
        )
        expect_in("delete topic [%RETRY%leavers] from NameServer success.", output)
        expect("settings", await session.mqadmin("getConsumerConfig", "-g", "leavers"), "")
        expect_true("no retry topic", "%RETRY%leavers" not in await session.topics())
        async with session.driver.pull_consumer("leavers", group="leavers") as consumer:
            queue = Queue(DATA, session.broker.name, 0)
            expect("offset", await consumer.committed(queue), 0)
