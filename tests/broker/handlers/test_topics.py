"""Topics for admin tools: requests 17, 21, 215, 305, 306, 316, 321 and 329."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import pytest
from trio.testing import wait_all_tasks_blocked

from rmq.broker.handlers.topics import ENTRIES_MAX
from rmq.broker.tables.topics import TopicTable
from rmq.files import ConfigFile
from rmq.model.java import string_hash
from rmq.model.offsets import ConsumerOffset
from rmq.remoting.bodies import (
    QueryConsumeQueueResponseBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
    TopicList,
)
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    DeleteTopicRequest,
    GetMaxOffsetRequest,
    QueryConsumeQueueRequest,
)
from tests.broker.broker_frames import (
    GROUP,
    TOPIC,
    bodies_of,
    consumer,
    ext,
    frame,
    pull,
    send,
    subscription,
)
from tests.broker.broker_kit import part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

SLAVE: Final = {"brokerRole": "SLAVE", "brokerId": "1"}
SLAVE_REMARK: Final = (
    "Can't modify topic or subscription group from slave broker,"
    " please execute it from master broker."
)


def create_header(
    topic: str = "New",
    *,
    read: int = 3,
    write: int = 5,
    perm: int = 6,
    filter_type: str = "SINGLE_TAG",
    flag: int | None = 0,
    order: bool = False,
) -> CreateTopicRequest:
    return CreateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=read,
        write_queue_nums=write,
        perm=perm,
        topic_filter_type=filter_type,
        topic_sys_flag=flag,
        order=order,
    )


async def create(broker: PartBroker, header: CreateTopicRequest) -> Frame:
    return await broker.call(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def delete(broker: PartBroker, topic: str = TOPIC) -> Frame:
    return await broker.call(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))


def saved_topics(folder: Path, broker: PartBroker) -> TopicTable:
    """Return the topics as the next start would find them."""
    table = TopicTable(broker.live.current, lambda: 0)
    table.load((folder / "config" / "topics.json").read_text())
    return table


# --- 17 UPDATE_AND_CREATE_TOPIC ------------------------------------------------------------------


async def test_a_topic_is_made_as_it_is_asked_for_and_on_disk_when_answered(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await create(broker, create_header(filter_type="MULTI_TAG", perm=4, flag=3))
        assert (answer.code, answer.fields, answer.body) == (ResponseCode.SUCCESS, None, b"")
        wanted = TopicConfig(
            topic_name="New",
            read_queue_nums=3,
            write_queue_nums=5,
            perm=4,
            topic_filter_type=TopicFilterType.MULTI_TAG,
            topic_sys_flag=3,
        )
        assert broker.topics.get("New") == wanted
        assert saved_topics(tmp_path, broker).get("New") == wanted


async def test_a_topic_that_is_there_is_changed_and_keeps_its_messages(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        version = broker.topics.version
        await create(broker, create_header(TOPIC, read=1, write=1))
        config = broker.topics.get(TOPIC)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums) == (1, 1)
        assert broker.topics.version.counter == version.counter + 1
        assert len(bodies_of(await broker.ask(pull()))) == 3


async def test_a_topic_without_flags_has_none(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await create(broker, create_header(flag=None))
        config = broker.topics.get("New")
        assert config is not None
        assert config.topic_sys_flag == 0


async def test_order_is_for_nameservers_to_say(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await create(broker, create_header(order=True))
        config = broker.topics.get("New")
        assert config is not None
        assert config.order is False


@pytest.mark.parametrize(
    ("topic", "remark"),
    [
        ("", "The specified topic is blank."),
        ("  ", "The specified topic is blank."),
        (
            "a b",
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        (
            "../up",
            "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$",
        ),
        ("t" * 128, "The specified topic is longer than topic max length."),
        ("TBW102", "The topic[TBW102] is conflict with system topic."),
        (
            "SCHEDULE_TOPIC_XXXX",
            "The topic[SCHEDULE_TOPIC_XXXX] is conflict with system topic.",
        ),
        ("DefaultCluster", "The topic[DefaultCluster] is conflict with system topic."),
        ("broker-a", "The topic[broker-a] is conflict with system topic."),
        ("rmq_sys_mine", "The topic[rmq_sys_mine] is conflict with system topic."),
    ],
)
async def test_a_topic_that_may_not_be_is_neither_made_nor_deleted(
    topic: str, remark: str, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        before = broker.topics.changes
        for answer in (
            await create(broker, create_header(topic)),
            await delete(broker, topic),
        ):
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, remark)
        assert broker.topics.changes == before


@pytest.mark.parametrize(
    "header",
    [
        create_header(read=-1),
        create_header(write=-1),
        create_header(read=65_537),
        create_header(write=2**31 - 1),
        create_header(perm=-1),
        create_header(perm=8),
        create_header(filter_type="NO_TAG"),
        create_header(filter_type=""),
    ],
)
async def test_settings_that_make_no_sense_are_refused(
    header: CreateTopicRequest, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await create(broker, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert " is not " in answer.remark
        assert broker.topics.get("New") is None


async def test_a_slave_changes_no_topic(tmp_path: Path) -> None:
    async with part_broker(tmp_path, SLAVE) as broker:
        for answer in (await create(broker, create_header()), await delete(broker)):
            assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, SLAVE_REMARK)
        assert broker.topics.get("New") is None
        assert broker.topics.get(TOPIC) is not None


async def test_a_topic_that_cannot_be_saved_is_not_acknowledged(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.tables.topics_writer.save_now()
        config = tmp_path / "config"
        config.rename(tmp_path / "elsewhere")
        config.write_text("in the way")
        answer = await create(broker, create_header())
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert "topics.json" in answer.remark


# --- 215 DELETE_TOPIC_IN_BROKER ------------------------------------------------------------------


async def test_a_deleted_topic_is_gone_with_its_queues(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.create_topic("other")
        for queue_id in range(4):
            broker.put_many(3, queue_id=queue_id)
        broker.put_many(3, topic="other")
        answer = await delete(broker)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert broker.topics.get(TOPIC) is None
        assert {queue.topic for queue in broker.core.queues} == {"other"}
        assert saved_topics(tmp_path, broker).get(TOPIC) is None
        folder = broker.live.current.store.queues_path
        assert broker.storage.names(folder) == ["other"]
        assert (await broker.ask(pull())).code == ResponseCode.TOPIC_NOT_EXIST
        assert len(bodies_of(await broker.ask(pull(topic="other")))) == 3


async def test_a_topic_made_again_begins_at_offset_0(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        await delete(broker)
        await create(broker, create_header(TOPIC, read=4, write=4))
        assert ext(
            await broker.call(
                RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(topic=TOPIC, queue_id=0)
            )
        ) == {"offset": "0"}
        sent = await broker.ask(send(b"new"))
        assert ext(sent)["queueOffset"] == "0"
        answer = await broker.ask(pull())
        assert bodies_of(answer) == [b"new"]


async def test_a_topic_may_be_made_again_by_the_next_send(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        await delete(broker)
        sent = await broker.ask(send(b"new"))
        assert (sent.code, ext(sent)["queueOffset"]) == (ResponseCode.SUCCESS, "0")
        assert bodies_of(await broker.ask(pull())) == [b"new"]


async def test_a_message_that_is_acknowledged_while_its_topic_is_deleted_is_not_lost(
    tmp_path: Path,
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        admin, producer = broker.attach("10.0.0.7:1"), broker.attach("10.0.0.8:1")
        await admin.send(frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC)))
        while broker.topics.get(TOPIC) is not None:
            await wait_all_tasks_blocked()
        # The file of the topics is just being written.
        await producer.send(*(send(b"%d" % n, opaque=n) for n in range(10)))
        assert (await admin.read()).code == ResponseCode.SUCCESS
        sent = await producer.read_many(10)
        assert {answer.code for answer in sent} == {ResponseCode.SUCCESS}
        assert broker.topics.get(TOPIC) is not None
        kept = bodies_of(await broker.ask(pull()))
        assert kept == [b"%d" % n for n in range(10)]


async def test_a_topic_deleted_while_a_send_makes_it_stays_consistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_write = threading.Event()
    write = ConfigFile.write

    def write_later(file: ConfigFile, text: str) -> None:
        assert may_write.wait(10)
        write(file, text)

    monkeypatch.setattr(ConfigFile, "write", write_later)
    async with part_broker(tmp_path, has_topic=False) as broker:
        admin, producer = broker.attach("10.0.0.7:1"), broker.attach("10.0.0.8:1")
        await producer.send(send(b"message"))
        while broker.topics.get(TOPIC) is None:
            await wait_all_tasks_blocked()
        # The send waits until the file of the topics is written.
        await admin.send(frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC)))
        await wait_all_tasks_blocked()
        may_write.set()
        await admin.read()
        sent = await producer.read()
        if sent.code == ResponseCode.SUCCESS:
            # Acknowledged, so it must be there to be read.
            assert bodies_of(await broker.ask(pull())) == [b"message"]
        else:
            assert broker.topics.get(TOPIC) is None


async def test_deleting_what_is_not_there_succeeds(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        assert (await delete(broker, "unknown")).code == ResponseCode.SUCCESS


async def test_offsets_of_a_deleted_topic_stay_as_in_the_original(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.offsets.commit("client", GROUP, TOPIC, 0, ConsumerOffset(5))
        await delete(broker)
        assert broker.offsets.query(GROUP, TOPIC, 0) == 5


@pytest.mark.parametrize("is_on", [True, False])
async def test_figures_of_a_deleted_topic_go_if_they_are_to(is_on: bool, tmp_path: Path) -> None:
    settings = {"autoDeleteUnusedStats": str(is_on).lower()}
    async with part_broker(tmp_path, settings) as broker:
        await broker.ask(send(b"message"))
        assert broker.broker.stats.view("TOPIC_PUT_NUMS", TOPIC) is not None
        await delete(broker)
        assert (broker.broker.stats.view("TOPIC_PUT_NUMS", TOPIC) is None) is is_on


# --- 21, 305 -------------------------------------------------------------------------------------


async def test_all_topics_are_listed_with_their_version(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(RequestCode.GET_ALL_TOPIC_CONFIG)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, {})
        body = TopicConfigSerializeWrapper.decode(answer.body)
        assert body.topic_config_table == dict(broker.topics.items())
        assert TOPIC in body.topic_config_table
        assert body.data_version == broker.topics.version


async def test_the_topics_of_the_broker_itself_are_listed(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        names = TopicList.decode(answer.body).topic_list
        assert names >= {
            "TBW102",
            "SELF_TEST_TOPIC",
            "BenchmarkTest",
            "DefaultCluster",
            "broker-a",
            "OFFSET_MOVED_EVENT",
            "SCHEDULE_TOPIC_XXXX",
            "DefaultCluster_REPLY_TOPIC",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "RMQ_SYS_TRACE_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
        }
        assert TOPIC not in names


# --- 306, 316, 329 -------------------------------------------------------------------------------


async def test_queues_all_of_whose_messages_expired_are_deleted(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"old")
        broker.put(b"old", topic="SCHEDULE_TOPIC_XXXX", queue_id=1)
        for _ in range(300):
            broker.put(bytes(1024), queue_id=1)
        answer = await broker.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert broker.core.queues.get(TOPIC, 0) is not None
        broker.expire_log()
        await broker.call(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE)
        assert {(queue.topic, queue.queue_id) for queue in broker.core.queues} == {
            (TOPIC, 1),
            ("SCHEDULE_TOPIC_XXXX", 1),
        }


async def test_queues_without_a_topic_are_deleted_but_not_the_brokers_own(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        kept = {
            TOPIC,
            "SCHEDULE_TOPIC_XXXX",
            "RMQ_SYS_TRANS_HALF_TOPIC",
            "RMQ_SYS_TRANS_OP_HALF_TOPIC",
            "TRANS_CHECK_MAX_TIME_TOPIC",
            "rmq_sys_mine",
        }
        for topic in (*kept, "unknown", "%RETRY%unknown"):
            broker.put(b"message", topic=topic)
        answer = await broker.call(RequestCode.CLEAN_UNUSED_TOPIC)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert {queue.topic for queue in broker.core.queues} == kept


async def test_expired_files_of_the_log_go_in_the_next_rounds(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await broker.call(RequestCode.DELETE_EXPIRED_COMMITLOG)
        assert (answer.code, answer.remark, answer.fields) == (ResponseCode.SUCCESS, None, None)
        assert broker.core.retention.manual_rounds_left == 20


# --- 321 QUERY_CONSUME_QUEUE ---------------------------------------------------------------------


async def show(
    broker: PartBroker,
    index: int = 0,
    count: int = 10,
    *,
    queue_id: int = 0,
    topic: str = TOPIC,
    group: str | None = None,
) -> Frame:
    header = QueryConsumeQueueRequest(
        topic=topic, queue_id=queue_id, index=index, count=count, consumer_group=group
    )
    return await broker.call(RequestCode.QUERY_CONSUME_QUEUE, header)


async def test_entries_are_shown_as_they_are(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        first, second = broker.put(b"one", b"two", tags="TagA")
        answer = await show(broker, 1)
        assert answer.code == ResponseCode.SUCCESS
        body = QueryConsumeQueueResponseBody.decode(answer.body)
        (entry,) = body.queue_data
        assert entry.physic_offset == second.end_offset - second.size == first.end_offset
        assert entry.physic_size == second.size
        assert entry.tags_code == string_hash("TagA")
        assert (body.min_queue_index, body.max_queue_index) == (0, 2)
        assert body.subscription_data is None
        assert body.filter_data is None


@pytest.mark.parametrize(
    ("index", "count", "shown"),
    [(0, 3, 3), (0, 100, 5), (4, 1, 1), (0, 0, 0), (0, -1, 0), (2, 2**31 - 1, 3)],
)
async def test_as_many_entries_as_there_are(
    index: int, count: int, shown: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        answer = await show(broker, index, count)
        assert len(QueryConsumeQueueResponseBody.decode(answer.body).queue_data) == shown


@pytest.mark.parametrize("index", [-1, 5, 2**63 - 1, -(2**63)])
async def test_an_index_outside_the_queue(index: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        answer = await show(broker, index)
        assert (answer.code, answer.body) == (ResponseCode.SUCCESS, b"")
        assert answer.remark == f"Index {index} of 0@TopicA is not exist!"


async def test_one_request_gets_a_bounded_number_of_entries(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(1_100)
        answer = await show(broker, 0, 2**31 - 1)
        shown = QueryConsumeQueueResponseBody.decode(answer.body).queue_data
        assert len(shown) == ENTRIES_MAX == 500


@pytest.mark.parametrize(("topic", "queue_id"), [("unknown", 0), (TOPIC, 9), (TOPIC, -1)])
async def test_a_queue_that_is_not_there(topic: str, queue_id: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        answer = await show(broker, topic=topic, queue_id=queue_id)
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            f"{queue_id}@{topic} is not exist!",
        )


async def test_entries_are_shown_with_what_a_group_subscribes_to(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"one", tags="TagA")
        broker.put(b"two", tags="TagB")
        await broker.join("a", consumer(subscription("TagB")))
        body = QueryConsumeQueueResponseBody.decode((await show(broker, group=GROUP)).body)
        assert body.subscription_data is not None
        assert body.subscription_data.sub_string == "TagB"
        assert body.filter_data == "null"
        # As in 4.9.8, for entries without an extension.
        assert [entry.eval for entry in body.queue_data] == [False, False]


async def test_a_group_that_is_not_connected(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put(b"one")
        body = QueryConsumeQueueResponseBody.decode((await show(broker, group=GROUP)).body)
        assert body.subscription_data is None
        assert body.filter_data == "readers@TopicA is not online!"
