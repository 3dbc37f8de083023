"""Commands for topics."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any, Final, cast

from interop.checks.mqadmin.admin_session import DATA, WATCHERS
from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER
from interop.support.java_client import StockClientError
from interop.support.java_messages import Outgoing, Queue
from interop.support.mqadmin import expect_in
from interop.support.printed import only, table
from rmq.model import fastjson

if TYPE_CHECKING:
    from interop.checks.mqadmin.admin_session import AdminSession, Data

NO_PERMISSION: Final = 16
TOPIC_NOT_EXIST: Final = 17


async def run_topic_commands(session: AdminSession, data: Data) -> None:
    await _update(session)
    await _look(session, data)
    await _permissions(session)
    await _order(session)
    await _delete(session)


async def _update(session: AdminSession) -> None:
    address = session.broker.address
    with session.operation("updateTopic", "create on a cluster"):
        output = await session.mqadmin(
            "updateTopic", "-c", CLUSTER, "-t", "Orders", "-r", "6", "-w", "4"
        )
        expect_in(f"create topic to {address} success.", output)
        expect_in("topicName=Orders, readQueueNums=6, writeQueueNums=4, perm=RW-", output)
        expect("route", await session.route("Orders"), (6, 4, 6))
        expect("queues to send to", len(await session.producer.queues("Orders")), 4)
        expect("queues to read", len(await session.reader.queues("Orders")), 6)

    with session.operation("updateTopic", "change on a broker"):
        await session.create_topic("Orders", queues=8)
        expect("route", await session.route("Orders"), (8, 8, 6))

    with session.operation("updateTopic", "unit flags"):
        await session.mqadmin(
            "updateTopic", "-b", address, "-t", "Units", "-u", "true", "-s", "true"
        )
        route = await _route_json(session, "Units")
        expect("flags", route["queueDatas"][0]["topicSysFlag"], 3)

    with session.operation("updateTopic", "an illegal name is refused"):
        reason = await session.refused("updateTopic", "-b", address, "-t", "no$good")
        expect_in("illegal characters", reason)

    with session.operation("updateTopic", "a system topic is refused"):
        reason = await session.refused("updateTopic", "-b", address, "-t", "SCHEDULE_TOPIC_XXXX")
        expect_in("conflict with system topic", reason)


async def _look(session: AdminSession, data: Data) -> None:
    broker = session.broker
    with session.operation("topicRoute", "JSON"):
        route = await _route_json(session, DATA)
        expect(
            "brokers",
            route["brokerDatas"],
            [
                {
                    "brokerAddrs": {"0": broker.address},
                    "brokerName": broker.name,
                    "cluster": CLUSTER,
                }
            ],
        )
        expect(
            "queues",
            route["queueDatas"],
            [
                {
                    "brokerName": broker.name,
                    "perm": 6,
                    "readQueueNums": 4,
                    "topicSysFlag": 0,
                    "writeQueueNums": 4,
                }
            ],
        )

    with session.operation("topicRoute", "list"):
        row, total = table(await session.mqadmin("topicRoute", "-t", DATA, "-l"), columns=6)
        brokers = f"{{0={broker.address}}}"
        expect("broker", row, [CLUSTER, broker.name, brokers, "4", "4", "6"])
        expect("total", total, ["Total:", "1", "4", "4"])

    with session.operation("topicRoute", "of an unknown topic"):
        reason = await session.refused("topicRoute", "-t", "Unknown")
        expect_in("CODE: 17  DESC: No topic route info in name server for the topic", reason)

    with session.operation("topicList", "plain"):
        topics = await session.topics()
        own = {DATA, "Orders", "Units", f"%RETRY%{WATCHERS}"}
        built_in = {
            "SELF_TEST_TOPIC",
            "BenchmarkTest",
            "OFFSET_MOVED_EVENT",
            "SCHEDULE_TOPIC_XXXX",
            f"{CLUSTER}_REPLY_TOPIC",
            CLUSTER,
            broker.name,
        }
        expect("missing", (own | built_in) - topics, set())

    with session.operation("topicList", "with clusters and groups"):
        rows = table(await session.mqadmin("topicList", "-c"), columns=3)
        expect_true("the group of the topic", [CLUSTER, DATA, WATCHERS] in rows)
        expect_true("a topic nobody reads", [CLUSTER, "Orders"] in rows)

    with session.operation("topicClusterList", "cluster of a topic"):
        expect(
            "clusters", (await session.mqadmin("topicClusterList", "-t", DATA)).split(), [CLUSTER]
        )

    with session.operation("topicStatus", "offsets of each queue"):
        rows = table(await session.mqadmin("topicStatus", "-t", DATA), columns=5)
        ends = [str(len(data.in_queue(queue_id))) for queue_id in range(4)]
        wanted = [[broker.name, str(n), "0", end] for n, end in enumerate(ends)]
        expect("queues", [row[:4] for row in rows], wanted)
        last = await session.producer.view(data.sent[data.in_queue(2)[-1]].offset_message_id)
        expect_in(f",{last.store_ms % 1000:03d}", rows[2][4])

    with session.operation("allocateMQ", "the queues of a topic over two addresses"):
        output = await session.mqadmin("allocateMQ", "-t", DATA, "-i", "10.0.0.1,10.0.0.2")
        result = json.loads(output)["result"]
        expect("addresses", set(result), {"10.0.0.1", "10.0.0.2"})
        shares = [[queue["queueId"] for queue in share] for share in result.values()]
        expect("sizes", [len(share) for share in shares], [2, 2])
        expect("queues", sorted(chain.from_iterable(shares)), [0, 1, 2, 3])


async def _permissions(session: AdminSession) -> None:
    queue = (await session.create_topic("Guarded"))[0]
    await session.producer.send_to_queue(Outgoing("Guarded", b"there"), queue=queue)

    with session.operation("updateTopicPerm", "to read only: no queue to send to"):
        await _set_permission(session, 6, 4)
        async with session.driver.producer("newcomer") as newcomer:
            try:
                await newcomer.queues("Guarded")
            except StockClientError as refusal:
                expect_in("Can not find Message Queue for this topic", refusal.message)
            else:
                expect("outcome", "queues", "none")

    with session.operation("updateTopicPerm", "to write only: pulls are refused"):
        await _set_permission(session, 4, 2)
        try:
            await session.reader.pull(queue, 0)
        except StockClientError as refusal:
            expect("code", refusal.code, NO_PERMISSION)
        else:
            expect("outcome", "pulled", "refused")

    with session.operation("updateTopicPerm", "back to both"):
        await _set_permission(session, 2, 6)
        expect("status", (await session.reader.pull(queue, 0)).status, "FOUND")

    with session.operation("updateTopicPerm", "the permission it has"):
        output = await session.mqadmin(
            "updateTopicPerm", "-b", session.broker.address, "-t", "Guarded", "-p", "6"
        )
        expect_in("new perm equals to the old one!", output)


async def _set_permission(session: AdminSession, before: int, after: int) -> None:
    address = session.broker.address
    output = await session.mqadmin(
        "updateTopicPerm", "-b", address, "-t", "Guarded", "-p", str(after)
    )
    expect_in(f"update topic perm from {before} to {after} in {address} success.", output)
    expect("route", await session.route("Guarded"), (4, 4, after))


async def _order(session: AdminSession) -> None:
    conf = f"{session.broker.name}:4"
    with session.operation("updateOrderConf", "put, get and delete"):
        output = await session.mqadmin("updateOrderConf", "-t", DATA, "-m", "put", "-v", conf)
        expect_in(f"update orderConf success. topic=[{DATA}], orderConf=[{conf}]", output)
        expect("order", await _order_of(session, DATA), conf)
        output = await session.mqadmin("updateOrderConf", "-t", DATA, "-m", "delete")
        expect_in(f"delete orderConf success. topic=[{DATA}]", output)
        reason = await session.refused("updateOrderConf", "-t", DATA, "-m", "get")
        expect_in(
            f"CODE: 22  DESC: No config item, Namespace: ORDER_TOPIC_CONFIG Key: {DATA}", reason
        )

    with session.operation("updateTopic", "an ordered topic"):
        output = await session.mqadmin(
            "updateTopic", "-c", CLUSTER, "-t", "Ordered", "-w", "4", "-o", "true"
        )
        expect_in(f"set cluster orderConf. isOrder=true, orderConf=[{conf}]", output)
        expect("order", await _order_of(session, "Ordered"), conf)


async def _order_of(session: AdminSession, topic: str) -> str:
    output = await session.mqadmin("updateOrderConf", "-t", topic, "-m", "get")
    return only(r"orderConf=\[(.*?)\]", output)


async def _delete(session: AdminSession) -> None:
    queue: Queue = (await session.create_topic("Doomed"))[0]
    with session.operation("deleteTopic", "from the broker and the nameserver"):
        await session.producer.send_to_queue(Outgoing("Doomed", b"gone"), queue=queue)
        output = await session.mqadmin("deleteTopic", "-c", CLUSTER, "-t", "Doomed")
        expect_in(f"delete topic [Doomed] from cluster [{CLUSTER}] success.", output)
        expect_in("delete topic [Doomed] from NameServer success.", output)
        expect_true("no such topic", "Doomed" not in await session.topics())
        try:
            await session.producer.send_to_queue(Outgoing("Doomed", b"no"), queue=queue)
        except StockClientError as refusal:
            expect("code", refusal.code, TOPIC_NOT_EXIST)
        else:
            expect("outcome", "sent", "refused")

    with session.operation("deleteTopic", "a topic of the same name begins anew"):
        await session.create_topic("Doomed")
        rows = table(await session.mqadmin("topicStatus", "-t", "Doomed"), columns=5)
        expect("offsets", [row[2:4] for row in rows], [["0", "0"]] * 4)


async def _route_json(session: AdminSession, topic: str) -> dict[str, Any]:
    output = await session.mqadmin("topicRoute", "-t", topic)
    return cast("dict[str, Any]", fastjson.loads(output))
