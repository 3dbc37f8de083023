"""Our admin client: what it tells of servers, topics, groups, clients and messages, and changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio
from inbox import Inbox
from our_messages import as_queue, as_received

from interop.support.cases import expect, expect_true
from interop.support.cluster import CLUSTER
from interop.support.expectations import expect_once, expect_same, expect_sent, numbered
from interop.support.java_messages import Outgoing
from interop.support.waiting import wait_until
from rmq.client.trio.opening import open_admin
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import CMResult, SubscriptionGroupConfig

if TYPE_CHECKING:
    from python_session import PythonSession

    from rmq.client.tasks.admin import AdminClient

PART: Final = "admin"
TOPIC: Final = "PyAdmin"
GROUP: Final = "py-admin-stock"
# Stock nameservers hear of a deleted topic at once, of a created one likewise.
KNOWN_WITHIN_S: Final = 5
PAUSE_S: Final = 0.05
COMMITTED_WITHIN_S: Final = 10
RESET_WITHIN_S: Final = 40


async def run_admin_client_cases(session: PythonSession) -> None:
    async with open_admin(session.nameserver) as admin:
        await _servers(session, admin)
        await _topics(session, admin)
        await _groups(session, admin)
        await _messages(session, admin)
        await _clients(session, admin)
        await _settings(session, admin)


async def _servers(session: PythonSession, admin: AdminClient) -> None:
    with session.operation(PART, "clusters, brokers and how they are"):
        info = await admin.cluster_info()
        expect("clusters", dict(info.cluster_addr_table), {CLUSTER: {session.broker.name}})
        (broker,) = await admin.list_brokers()
        expect("address", broker.address, session.broker.address)
        runtime = await admin.runtime_info(session.broker.name)
        expect_true("a start", int(runtime.table["bootTimestamp"]) > 0)


async def _topics(session: PythonSession, admin: AdminClient) -> None:
    with session.operation(PART, "create, look at and delete a topic"):
        await admin.create_topic("PyCreatedByUs", queues=3, read_queues=5)

        async def is_known() -> bool:
            return "PyCreatedByUs" in await admin.list_topics()

        await wait_until("the topic", is_known, timeout_s=KNOWN_WITHIN_S)
        (queues,) = (await admin.topic_route("PyCreatedByUs")).queue_datas
        expect("queues", (queues.read_queue_nums, queues.write_queue_nums), (5, 3))
        expect("stock client", len(await session.java.queues("PyCreatedByUs")), 3)
        configs = await admin.topic_configs(session.broker.name)
        expect("settings", configs["PyCreatedByUs"].write_queue_nums, 3)
        expect("cluster", await admin.topic_clusters("PyCreatedByUs"), (CLUSTER,))
        await admin.set_topic_permission("PyCreatedByUs", 4)
        (queues,) = (await admin.topic_route("PyCreatedByUs")).queue_datas
        expect("permission", queues.perm, 4)
        await admin.delete_topic("PyCreatedByUs")
        expect_true("no such topic", not await is_known())

    with session.operation(PART, "what a topic holds, and offsets by time"):
        await session.create_topic(TOPIC)
        messages = numbered(TOPIC, 12, tags="TagA")
        for start in (0, 4, 8):
            # So that each queue's messages have times of their own.
            expect_sent(await session.java.send(*messages[start : start + 4]))
            await trio.sleep(PAUSE_S)
        stored = await session.reader.read_topic(TOPIC, count=12)
        stats = await admin.topic_stats(TOPIC)
        ranges = {queue.queue_id: (r.min_offset, r.max_offset) for queue, r in stats.queues.items()}
        expect("ranges", ranges, dict.fromkeys(range(4), (0, 3)))
        queue = MessageQueue(topic=TOPIC, broker_name=session.broker.name, queue_id=0)
        expect(
            "lowest and highest",
            (await admin.min_offset(queue), await admin.max_offset(queue)),
            (0, 3),
        )
        first = next(m for m in stored if (m.queue_id, m.queue_offset) == (0, 0))
        expect("earliest", await admin.first_stored_at_ms(queue), first.store_ms)
        expect("by time", await admin.offset_at(queue, first.store_ms), 0)
        # Of a time after all messages brokers give the last one, not the one to come.
        expect("after all", await admin.offset_at(queue, first.store_ms + 3_600_000), 2)


async def _groups(session: PythonSession, admin: AdminClient) -> None:
    with session.operation(PART, "create, look at and delete a group"):
        config = SubscriptionGroupConfig(group_name="PyGroup", retry_max_times=3)
        await admin.create_group(config)
        by_broker = (await admin.list_groups()).configs["PyGroup"]
        expect("settings", by_broker[session.broker.name].retry_max_times, 3)
        await admin.delete_group("PyGroup")
        expect_true("no such group", "PyGroup" not in (await admin.list_groups()).configs)

    with session.operation(PART, "how far a stock group has come, its offsets moved and copied"):
        async with session.driver.push_consumer(GROUP, group=GROUP, topic=TOPIC) as consumer:
            await consumer.wait_received(12)
        progress = await admin.group_progress(GROUP, topic=TOPIC)
        offsets = {
            q.queue_id: (p.broker_offset, p.consumer_offset) for q, p in progress.queues.items()
        }
        expect("progress", offsets, dict.fromkeys(range(4), (3, 3)))
        expect("groups of the topic", GROUP in (await admin.groups_of_topic(TOPIC)).groups, True)
        stored = await session.reader.read_topic(TOPIC, count=12)
        second = min(m.store_ms for m in stored if m.queue_offset == 1)
        reset = await admin.reset_offsets(GROUP, TOPIC, second)
        wanted = {
            queue_id: sum(m.store_ms < second for m in stored if m.queue_id == queue_id)
            for queue_id in range(4)
        }
        expect("reset", {q.queue_id: offset for q, offset in reset.offsets.items()}, wanted)
        copied = await admin.clone_offsets(GROUP, "py-admin-copy", topic=TOPIC)
        expect("copied", {q.queue_id: offset for q, offset in copied.items()}, wanted)
        for queue in copied:
            expect(
                "offset",
                await admin.consumer_offset("py-admin-copy", queue),
                wanted[queue.queue_id],
            )
        left = [m.body for m in stored if m.queue_offset >= wanted[m.queue_id]]
        async with session.driver.push_consumer(GROUP, group=GROUP, topic=TOPIC) as consumer:
            got = await consumer.wait_received(len(left))
            expect("again", sorted(m.body for m in got), sorted(left))


async def _messages(session: PythonSession, admin: AdminClient) -> None:
    outgoing = [
        Outgoing(TOPIC, f"found {n}".encode(), "TagB", f"found-{n} every") for n in range(4)
    ]
    sent = await session.java.send(*outgoing)

    with session.operation(PART, "messages of a stock producer by key, id and place"):
        found = (await admin.messages_by_key(TOPIC, "found-2")).messages
        expect_once([as_received(message) for message in found], outgoing[2:3])
        every = (await admin.messages_by_key(TOPIC, "every")).messages
        expect_once([as_received(message) for message in every], outgoing)
        one = await admin.message_by_unique_key(TOPIC, sent[2].message_id)
        expect_true("a message", one is not None)
        assert one is not None
        expect_same(as_received(one), outgoing[2])
        two = await admin.message_by_id(sent[2].offset_message_id)
        assert two is not None
        expect_same(as_received(two), outgoing[2])
        place = MessageQueue(
            topic=TOPIC, broker_name=sent[2].queue.broker, queue_id=sent[2].queue.queue_id
        )
        three = await admin.message_at(place, sent[2].queue_offset)
        assert three is not None
        expect_same(as_received(three), outgoing[2])
        expect("place", as_queue(three.queue), sent[2].queue)

    with session.operation(PART, "messages that are not there"):
        expect("by key", (await admin.messages_by_key(TOPIC, "none")).messages, ())
        nowhere = sent[2].message_id[:-4] + "FFFF"
        expect("by unique key", await admin.message_by_unique_key(TOPIC, nowhere), None)


async def _clients(session: PythonSession, admin: AdminClient) -> None:
    inbox = Inbox()
    stock = session.driver.push_consumer("looked-at", group="py-looked-at", topic=TOPIC)
    async with stock as theirs, session.push_consumer("py-looked-at", TOPIC, inbox) as mine:
        with session.operation(PART, "clients of a group, a stock one and ours"):

            async def both() -> bool:
                shown = await admin.consumer_connections("py-looked-at")
                ids = {connection.client_id for connection in shown.connections}
                return ids == {theirs.client_id, mine.client.client_id}

            await wait_until("both clients", both, timeout_s=KNOWN_WITHIN_S)

        with session.operation(PART, "how they are, and the queues they have"):
            ids = (theirs.client_id, mine.client.client_id)

            async def have_two_each() -> bool:
                infos = [await admin.running_info("py-looked-at", client_id) for client_id in ids]
                for info in infos:
                    topics = {subscription.topic for subscription in info.subscription_set}
                    expect_true("the topic", TOPIC in topics)
                counts = [sum(queue.topic == TOPIC for queue in info.mq_table) for info in infos]
                return counts == [2, 2]

            await wait_until("two queues each", have_two_each, timeout_s=KNOWN_WITHIN_S)

        with session.operation(PART, "how far each has come (not what is committed)"):
            status = await admin.consumer_status("py-looked-at", TOPIC)
            expect("clients", set(status), {theirs.client_id, mine.client.client_id})

        with session.operation(PART, "have a stock consumer and ours consume a message again"):
            (sent,) = await session.java.send(Outgoing(TOPIC, b"directly"))
            for client_id in (theirs.client_id, mine.client.client_id):
                done = await admin.consume_directly(
                    "py-looked-at", client_id, TOPIC, sent.message_id
                )
                expect("result", done.consume_result, CMResult.CR_SUCCESS)

    with session.operation(PART, "producers of a group, stock ones"):
        shown = await admin.producer_connections("interop-producers", TOPIC)
        shown_ids = [connection.client_id for connection in shown.connections]
        expect("clients", shown_ids, [session.java.client_id])


async def _settings(session: PythonSession, admin: AdminClient) -> None:
    with session.operation(PART, "settings of a broker are read and changed"):
        name = session.broker.name
        before = (await admin.broker_config(name))["flushDelayOffsetInterval"]
        await admin.update_broker_config(name, {"flushDelayOffsetInterval": "12345"})
        after = (await admin.broker_config(name))["flushDelayOffsetInterval"]
        await admin.update_broker_config(name, {"flushDelayOffsetInterval": before})
        expect("setting", after, "12345")

    with session.operation(PART, "the nameserver's key-value settings"):
        await admin.put_kv("interop", "key", "value")
        expect("read", await admin.get_kv("interop", "key"), "value")
        expect("all", await admin.list_kv("interop"), {"key": "value"})
        await admin.delete_kv("interop", "key")
        expect("read", await admin.get_kv("interop", "key"), None)
