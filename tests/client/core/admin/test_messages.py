"""Single messages by id, key, unique key and offset, and what became of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from rmq.client.core.admin.messages import message_by_id, messages_by_key
from rmq.client.core.admin.tracks import TrackKind
from rmq.client.core.nameservers import Nameservers
from rmq.client.core.trace import SendTrace, encode_trace
from rmq.client.trio.opening import open_admin
from rmq.errors import BadAnswerError, BrokersFailedError, IllegalMessageError, NoBrokerError
from rmq.model.offsets import PhysicalOffset
from rmq.model.record import message_id, pack_host, parse_message_id
from rmq.remoting.bodies import BrokerData, ClusterInfo, ConsumeType, QueueData, TopicRouteData
from rmq.remoting.codes import ResponseCode
from rmq.remoting.headers import QueryMessageResponse
from tests.client.admin_kit import KitConsumer, joined, queue, register, send, until
from tests.client.cluster_kit import cluster
from tests.client.flow_kit import Script, reply

if TYPE_CHECKING:
    from pathlib import Path

    from rmq.client.tasks.admin import AdminClient

TWO = ("broker-a", "broker-b")


async def indexed(admin: AdminClient, topic: str, key: str, count: int) -> None:
    """Wait until brokers find messages by a key."""
    while True:
        found = await admin.messages_by_key(topic, key)
        if len(found.messages) >= count:
            return


async def test_keys_are_looked_for_at_all_brokers(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        for topic in ("Orders", "Other"):
            await admin.create_topic(topic, queues=1)
            for name in TWO:
                await send(
                    it, admin.client, topic, f"{topic} {name}".encode(), broker=name, KEYS="a k b"
                )
        await indexed(admin, "Orders", "k", 2)
        found = await admin.messages_by_key("Orders", "k")
        assert {message.body for message in found.messages} == {
            b"Orders broker-a",
            b"Orders broker-b",
        }
        assert {message.queue for message in found.messages} == {
            queue("Orders"),
            queue("Orders", 0, "broker-b"),
        }
        times = [message.stored_at_ms for message in found.messages]
        assert times == sorted(times)
        assert found.indexed_until_ms >= times[-1]
        assert found.failures == ()
        assert (await admin.messages_by_key("Orders", "nothing")).messages == ()
        assert (await admin.messages_by_key("Orders", "k", to_ms=times[0] - 60_000)).messages == ()
        await register(it, admin.client, "broker-c", 0, "127.0.0.1:1", "Orders")
        found = await admin.messages_by_key("Orders", "k")
        assert len(found.messages) == 2
        assert [failure.broker.broker_name for failure in found.failures] == ["broker-c"]


async def test_of_two_messages_with_one_unique_key_the_first_is_found(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        unique = "7F0000010001AAAAAAAA000000010000"
        place = await send(it, admin.client, "Orders", b"first", UNIQ_KEY=unique, KEYS="k")
        first = await admin.message_by_id(place)
        assert first is not None
        # Stored later, by the clock that both brokers go by.
        await until(lambda: first.stored_at_ms < time.time_ns() // 1_000_000)
        await send(
            it, admin.client, "Orders", b"again", broker="broker-b", UNIQ_KEY=unique, KEYS="k"
        )
        await indexed(admin, "Orders", "k", 2)
        found = await admin.message_by_unique_key("Orders", unique)
        assert found is not None
        assert found.body == b"first"
        assert found.message_id == unique
        assert await admin.message_by_unique_key("Orders", unique[:-1] + "1") is None
        for name in (unique, found.offset_message_id):
            either = await admin.find_message("Orders", name)
            assert either is not None
            assert either.body == b"first"
        assert await admin.find_message("Orders", "nonsense") is None
        await register(it, admin.client, "broker-c", 0, "127.0.0.1:1", "Orders")
        assert await admin.message_by_unique_key("Orders", unique) is not None
        with pytest.raises(BrokersFailedError, match=r"is not at the others.*broker-c"):
            await admin.message_by_unique_key("Orders", unique[:-1] + "1")


async def test_a_message_is_found_by_its_place(tmp_path: Path) -> None:
    async with cluster(tmp_path, TWO) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        for number in range(3):
            place = await send(it, admin.client, "Orders", b"%d" % number, broker="broker-b")
        found = await admin.message_by_id(place)
        assert found is not None
        assert (found.body, found.queue) == (b"2", queue("Orders", 0, "broker-b"))
        lower = await admin.message_by_id(place.lower())
        assert lower is not None
        host, offset = parse_message_id(place)
        assert await admin.message_by_id(message_id(host, offset + 1)) is None
        with pytest.raises(IllegalMessageError, match="hexadecimal digits"):
            await admin.message_by_id("123")
        with pytest.raises(IllegalMessageError, match="says nothing of a place"):
            await admin.message_by_id(message_id(pack_host("10.0.0.1", 70_000), PhysicalOffset(0)))

        at = await admin.message_at(queue("Orders", 0, "broker-b"), 1)
        assert at is not None
        assert at.body == b"1"
        assert await admin.message_at(queue("Orders", 0, "broker-b"), 3) is None
        assert await admin.message_at(queue("Orders"), 0) is None
        with pytest.raises(NoBrokerError, match="broker-c"):
            await admin.message_at(queue("Orders", 0, "broker-c"), 0)


async def test_a_message_whose_address_is_gone_is_found_at_brokers_of_its_topic(
    tmp_path: Path,
) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        # Stored under an address that the broker has no longer.
        await it.stop()
        await it.start(brokerIP1="127.0.0.2")
        await send(it, admin.client, "Orders", b"old")
        await it.stop()
        await it.start()
        (message,) = [await admin.message_at(queue("Orders"), 0)]
        assert message is not None
        assert message.store_host.startswith("127.0.0.2:")
        gone = message.offset_message_id
        found = await admin.message_by_id(gone, topic="Orders")
        assert found is not None
        assert (found.body, found.queue.broker_name) == (b"old", "broker-a")
        everywhere = await admin.message_by_id(gone)
        assert everywhere is not None
        # Another message at the same place of another log is not the one.
        _, offset = parse_message_id(gone)
        with pytest.raises(BrokersFailedError, match=r"cannot connect to 127\.0\.0\.3"):
            await admin.message_by_id(message_id(pack_host("127.0.0.3", 1), offset))


async def test_groups_tell_what_they_have_to_do_with_a_message(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("Orders", queues=1)
        for number in range(2):
            await send(it, admin.client, "Orders", b"%d" % number, TAGS="new")
        message = await admin.message_at(queue("Orders"), 1)
        assert message is not None
        for group, offset in (("behind", 1), ("done", 2), ("filtered", 2), ("offline", 2)):
            await admin.set_consumer_offsets(group, {queue("Orders"): offset})
        await joined(admin.client, KitConsumer("behind", "Orders"), "Orders")
        await joined(admin.client, KitConsumer("done", "Orders", tags=frozenset({"new"})), "Orders")
        await joined(
            admin.client, KitConsumer("filtered", "Orders", tags=frozenset({"old"})), "Orders"
        )
        pulling = KitConsumer("pulling", "Orders", consume_type=ConsumeType.CONSUME_ACTIVELY)
        await joined(admin.client, pulling, "Orders")
        tracks = await admin.message_tracks(message)
        assert {track.group: track.kind for track in tracks.tracks} == {
            "behind": TrackKind.NOT_CONSUME_YET,
            "done": TrackKind.CONSUMED,
            "filtered": TrackKind.CONSUMED_BUT_FILTERED,
            "offline": TrackKind.NOT_ONLINE,
            "pulling": TrackKind.PULL,
        }


async def test_traces_of_a_message_are_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as it, open_admin(it.nameserver) as admin:
        await admin.create_topic("MyTraces", queues=1)
        traces = [
            SendTrace(
                time_ms=2000 - number,
                group="g",
                topic="Orders",
                message_id=f"id{number}",
                store_host="127.0.0.1:1",
                body_bytes=1,
                took_ms=1,
            )
            for number in range(2)
        ]
        body = "".join(map(encode_trace, traces)).encode()
        await send(it, admin.client, "MyTraces", body, KEYS="id0 id1")
        await indexed(admin, "MyTraces", "id1", 1)
        found = await admin.message_traces("id1", trace_topic="MyTraces")
        assert [trace for trace, _ in found.traces] == [traces[1]]
        assert found.traces[0][1] == "127.0.0.1"


# --- answers that make no sense ---------------------------------------------------------------

ROUTE = TopicRouteData(
    queue_datas=(QueueData(broker_name="b", read_queue_nums=1, write_queue_nums=1, perm=6),),
    broker_datas=(BrokerData(cluster="c", broker_name="b", broker_addrs={0: "b:1"}),),
).encode()


def test_garbage_is_an_error_that_names_the_broker() -> None:
    script = Script(
        reply(body=ROUTE),
        reply(
            QueryMessageResponse(index_last_update_timestamp=0, index_last_update_phyoffset=0),
            body=b"\0" * 100,
        ),
    )
    with pytest.raises(BrokersFailedError, match="b at b:1: QUERY_MESSAGE") as caught:
        script.run(messages_by_key(Nameservers("n:1"), "T", "k"))
    assert isinstance(caught.value.failures[0][1], BadAnswerError)


def test_an_id_that_nobody_knows_of_is_asked_for_once_at_each_address() -> None:
    place = message_id(pack_host("10.0.0.1", 10911), PhysicalOffset(7))
    info = ClusterInfo(
        broker_addr_table={
            "b": BrokerData(
                broker_name="b", broker_addrs={0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}
            )
        },
        cluster_addr_table={"c": frozenset({"b"})},
    )
    script = Script(
        reply(code=ResponseCode.SYSTEM_ERROR),
        reply(body=info.encode()),
        reply(code=ResponseCode.SYSTEM_ERROR),
    )
    assert script.run(message_by_id(Nameservers("n:1"), place)) is None
    assert [ask.address for ask in script.asks] == ["10.0.0.1:10911", "n:1", "10.0.0.2:10911"]
