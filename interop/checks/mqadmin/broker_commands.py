"""Commands for brokers and clusters: state, settings, exports."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import trio

from interop.checks.mqadmin.admin_session import BROKER_SETTINGS, DATA, WATCHERS
from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER
from interop.support.java import last_words, running_java
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing
from interop.support.mqadmin import expect_in
from interop.support.printed import runtime_values, settings, table
from interop.support.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from interop.checks.mqadmin.admin_session import AdminSession

NO_PERMISSION: Final = 16
TOLD_WITHIN_S: Final = 3
RUNTIME_KEYS: Final = frozenset(
    {
        "EndTransactionQueueSize",
        "EndTransactionThreadPoolQueueCapacity",
        "bootTimestamp",
        "brokerVersion",
        "brokerVersionDesc",
        "commitLogDirCapacity",
        "commitLogDiskRatio",
        "commitLogMaxOffset",
        "commitLogMinOffset",
        "consumeQueueDiskRatio",
        "dispatchBehindBytes",
        "dispatchMaxBuffer",
        "earliestMessageTimeStamp",
        "getFoundTps",
        "getMessageEntireTimeMax",
        "getMissTps",
        "getTotalTps",
        "getTransferedTps",
        "msgGetTotalTodayMorning",
        "msgGetTotalTodayNow",
        "msgGetTotalYesterdayMorning",
        "msgPutTotalTodayMorning",
        "msgPutTotalTodayNow",
        "msgPutTotalYesterdayMorning",
        "pageCacheLockTimeMills",
        "pullThreadPoolQueueCapacity",
        "pullThreadPoolQueueHeadWaitTimeMills",
        "pullThreadPoolQueueSize",
        "putLatency99",
        "putLatency999",
        "putMessageAverageSize",
        "putMessageDistributeTime",
        "putMessageEntireTimeMax",
        "putMessageFailedTimes",
        "putMessageSizeTotal",
        "putMessageTimesTotal",
        "putTps",
        "queryThreadPoolQueueCapacity",
        "queryThreadPoolQueueHeadWaitTimeMills",
        "queryThreadPoolQueueSize",
        "remainHowManyDataToFlush",
        "remainTransientStoreBufferNumbs",
        "runtime",
        "sendThreadPoolQueueCapacity",
        "sendThreadPoolQueueHeadWaitTimeMills",
        "sendThreadPoolQueueSize",
        "startAcceptSendRequestTimeStamp",
    }
)


async def run_broker_commands(session: AdminSession) -> None:
    await _state(session)
    await _settings(session)
    await _exports(session)


async def _state(session: AdminSession) -> None:
    broker = session.broker
    with session.operation("clusterList", "brokers with address, version and load"):
        await _expect_cluster_row(session, await session.mqadmin("clusterList"))

    with session.operation("clusterList", "as a process of its own"):
        nameserver = session.cluster.nameserver
        program = session.kit.program(
            "org.apache.rocketmq.tools.command.MQAdminStartup", ("clusterList", "-n", nameserver)
        )
        log = program.home / "log"
        async with running_java(program, log=log) as process:
            expect("exit code", await process.wait(), 0)
        await _expect_cluster_row(session, last_words(log))

    with session.operation("clusterList", "messages in and out today"):
        before = await _totals(session)
        await session.create_topic("Counted", queues=1)
        await session.producer.send(*(Outgoing("Counted", b"one") for _ in range(7)))
        await session.consume_all("counters", "Counted", 7)
        after = await _totals(session)
        expect("in and out", (after[0] - before[0], after[1] - before[1]), (7, 7))

    with session.operation("brokerStatus", "all values of a broker"):
        values = runtime_values(await session.mqadmin("brokerStatus", "-b", broker.address))
        expect("missing", sorted(RUNTIME_KEYS - values.keys()), [])
        expect_in("V4_9_", values["brokerVersionDesc"])
        expect("messages", int(values["msgPutTotalTodayNow"]), (await _totals(session))[0])
        expect_true("bytes", int(values["commitLogMaxOffset"]) > 0)
        expect_in("0 days, 0 hours", values["runtime"])

    with session.operation("brokerStatus", "of a cluster"):
        output = await session.mqadmin("brokerStatus", "-c", CLUSTER)
        lines = [line for line in output.splitlines() if line.strip()]
        expect("broker", {line.split()[0] for line in lines}, {broker.address})
        keys = {line.split()[1].rstrip(":") for line in lines}
        expect("missing", sorted(RUNTIME_KEYS - keys), [])


async def _expect_cluster_row(session: AdminSession, output: str) -> None:
    ((*who, version, _, _, _, _, space),) = table(output, columns=10)
    expect("broker", who, [CLUSTER, session.broker.name, "0", session.broker.address])
    expect_in("V4_9_", version)
    expect_true("a share of the disk", 0 < float(space) < 1)


async def _totals(session: AdminSession) -> tuple[int, int]:
    ((*_, came, went),) = table(await session.mqadmin("clusterList", "-m"), columns=6)
    return int(came), int(went)


async def _settings(session: AdminSession) -> None:
    broker = session.broker
    with session.operation("getBrokerConfig", "of a broker"):
        output = await session.mqadmin("getBrokerConfig", "-b", broker.address)
        expect_in(f"============{broker.address}============", output)
        got = settings(output)
        wanted = {
            **BROKER_SETTINGS,
            "brokerName": broker.name,
            "brokerClusterName": CLUSTER,
            "listenPort": str(broker.port),
            "namesrvAddr": session.cluster.nameserver,
            "brokerRole": "ASYNC_MASTER",
            "flushDiskType": "ASYNC_FLUSH",
            "fileReservedTime": "72",
            "messageDelayLevel": "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h",
            "brokerPermission": "6",
            "maxTransferCountOnMessageInMemory": "32",
        }
        expect("settings", {key: got.get(key) for key in wanted}, wanted)

    with session.operation("getBrokerConfig", "of a cluster"):
        output = await session.mqadmin("getBrokerConfig", "-c", CLUSTER)
        expect_in(f"============Master: {broker.address}============", output)
        expect("name", settings(output).get("brokerName"), broker.name)

    with session.operation("updateBrokerConfig", "a setting that is kept in the file"):
        await _set(session, "-b", broker.address, "defaultTopicQueueNums", "6")
        got = settings(await session.mqadmin("getBrokerConfig", "-b", broker.address))
        expect("setting", got.get("defaultTopicQueueNums"), "6")
        kept = broker.config.read_text().replace(" ", "")
        expect_true("it in the file", "defaultTopicQueueNums=6" in kept)

    with session.operation("updateBrokerConfig", "of a cluster, takes effect at once"):
        (queue, *_) = await session.reader.queues(DATA)
        await _set(session, "-c", CLUSTER, "brokerPermission", "2")
        try:
            await _wait_permission(session, 2)
            await session.reader.pull(queue, 0)
        except StockClientError as refusal:
            expect("code", refusal.code, NO_PERMISSION)
        else:
            expect("outcome", "pulled", "refused")
        finally:
            await _set(session, "-c", CLUSTER, "brokerPermission", "6")
        await _wait_permission(session, 6)
        expect("status", (await session.reader.pull(queue, 0)).status, "FOUND")


async def _wait_permission(session: AdminSession, permission: int) -> None:
    async def told() -> bool:
        return await session.route(DATA) == (4, 4, permission)

    await wait_until(f"routes with permission {permission}", told, timeout_s=TOLD_WITHIN_S)


async def _set(session: AdminSession, option: str, target: str, key: str, value: str) -> None:
    output = await session.mqadmin("updateBrokerConfig", option, target, "-k", key, "-v", value)
    expect_in(f"update broker config success, {session.broker.address}", output)


async def _exports(session: AdminSession) -> None:
    folder = session.tool.folder / "exports"

    with session.operation("exportMetadata", "topics and groups"):
        exported = await _export(session, "exportMetadata", folder / "metadata.json")
        topics, groups = exported["topicConfigTable"], exported["subscriptionGroupTable"]
        expect(
            "topic",
            topics[DATA],
            {
                "order": False,
                "perm": 6,
                "readQueueNums": 4,
                "topicFilterType": "SINGLE_TAG",
                "topicName": DATA,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            },
        )
        expect("group", groups[WATCHERS]["retryMaxTimes"], 16)
        expect_true("no built-in topic", "SELF_TEST_TOPIC" not in topics)
        expect_true("no retry topic", f"%RETRY%{WATCHERS}" not in topics)

    with session.operation("exportMetadata", "retry topics, too"):
        exported = await _export(session, "exportMetadata", folder / "metadata.json", "-s")
        expect_true("a retry topic", f"%RETRY%{WATCHERS}" in exported["topicConfigTable"])

    with session.operation("exportConfigs", "settings and size of a cluster"):
        exported = await _export(session, "exportConfigs", folder / "configs.json")
        scale = {"namesrvSize": 1, "masterBrokerSize": 1, "slaveBrokerSize": 0}
        expect("scale", exported["clusterScale"], scale)
        config = exported["brokerConfigs"][session.broker.name]
        expect("role", config["brokerRole"], "ASYNC_MASTER")
        expect("size", config["maxMessageSize"], BROKER_SETTINGS["maxMessageSize"])

    with session.operation("exportMetrics", "state of a cluster"):
        exported = await _export(session, "exportMetrics", folder / "metrics.json")
        report = exported["evaluateReport"][session.broker.name]
        expect_in("V4_9_", report["runtimeVersion"]["rocketmqVersion"])
        expect("clients", report["runtimeVersion"]["clientInfo"], ["JAVA%V4_9_8"])


async def _export(session: AdminSession, command: str, path: Path, *options: str) -> dict[str, Any]:
    place = trio.Path(path)
    await place.unlink(missing_ok=True)
    output = await session.mqadmin(command, "-c", CLUSTER, "-f", str(path.parent), *options)
    expect_in(f"export {path} success", output)
    exported: dict[str, Any] = json.loads(await place.read_text())
    return exported
