"""Sends to topics that do not exist yet: by which rules they are made, and that nothing is taken
for them before they are in their file.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from rmq.errors import StorageError
from rmq.files import ConfigFile
from rmq.remoting.bodies import BatchMessage, TopicConfig, TopicFilterType, encode_batch
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import TOPIC, batch_frame, ext, send_broker, send_frame, text
from tests.remoting.server_kit import Logs

if TYPE_CHECKING:
    from pathlib import Path


def saved_topics(folder: Path) -> dict[str, Any]:
    path = folder / "config" / "topics.json"
    topics: dict[str, Any] = json.loads(path.read_text())["topicConfigTable"]
    return topics


def settings_of(topic: TopicConfig) -> tuple[int, int, int, int]:
    return (
        topic.read_queue_nums,
        topic.write_queue_nums,
        topic.perm,
        topic.topic_sys_flag,
    )


# --- rules -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "made"),
    [
        pytest.param(1, 1, id="fewer than the default topic"),
        pytest.param(8, 8, id="as many"),
        pytest.param(100, 8, id="not more"),
    ],
)
async def test_a_topic_is_made_after_the_default_topic(
    tmp_path: Path, asked: int, made: int
) -> None:
    async with send_broker(tmp_path, has_topic=False) as broker:
        answer = await broker.send(send_frame("New", queues=asked))
        assert (answer.code, ext(answer)["queueOffset"]) == (0, "0")
        assert settings_of(broker.topic("New")) == (made, made, 6, 0)
        assert broker.bodies("New") == [b"body"]
        assert saved_topics(tmp_path)["New"]["writeQueueNums"] == made


async def test_a_topic_is_made_after_any_topic_that_is_inherited(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        broker.change_topic(perm=5, topic_filter_type=TopicFilterType.MULTI_TAG)
        assert (await broker.send(send_frame("New", default_topic=TOPIC, queues=2))).code == 0
        made = broker.topic("New")
        assert settings_of(made) == (2, 2, 4, 0)
        assert made.topic_filter_type is TopicFilterType.MULTI_TAG
        assert broker.record("New").sys_flag == 2


@pytest.mark.parametrize(
    ("topic", "flag"),
    [pytest.param("New", 1, id="a topic"), pytest.param("%RETRY%g", 2, id="a retry topic")],
)
async def test_a_topic_of_unit_mode_says_so(tmp_path: Path, topic: str, flag: int) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame(topic, unit_mode=True))
        assert broker.topic(topic).topic_sys_flag == flag
        assert saved_topics(tmp_path)[topic]["topicSysFlag"] == flag


async def test_no_topic_is_made_where_that_is_switched_off(tmp_path: Path) -> None:
    async with send_broker(tmp_path, {"autoCreateTopicEnable": "false"}) as broker:
        answer = await broker.send(send_frame("New"))
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
        assert broker.topics.get("New") is None


async def test_switching_it_off_counts_at_once(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame("First"))).code == 0
        broker.update(autoCreateTopicEnable="false")
        assert (await broker.send(send_frame("Second"))).code == ResponseCode.TOPIC_NOT_EXIST
        assert (await broker.send(send_frame("First"))).code == 0


async def test_the_queue_is_looked_at_once_the_topic_is_made(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        answer = await broker.send(send_frame("New", queue_id=2, queues=2))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert answer.remark.startswith(
            "request queueId[2] is illegal, TopicConfig [topicName=New,"
        )
        assert broker.core.log.written == 0


async def test_a_delayed_message_makes_its_topic_at_once(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        await broker.send(send_frame("New", properties=text(DELAY="1")))
        assert "New" in saved_topics(tmp_path)
        assert broker.record("SCHEDULE_TOPIC_XXXX").properties["REAL_TOPIC"] == "New"


async def test_a_topic_that_was_deleted_is_made_again(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        assert (await broker.send(send_frame())).code == 0
        broker.topics.delete(TOPIC)
        assert (await broker.send(send_frame(queues=2))).code == 0
        assert broker.topic().write_queue_nums == 2


# --- order -----------------------------------------------------------------------------------


async def test_sends_to_a_topic_that_is_being_made_keep_their_order(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        peer = broker.attach()
        for first in range(0, 30, 10):
            await peer.send(
                *(
                    send_frame("New", b"%d" % number, opaque=number)
                    for number in range(first, first + 10)
                )
            )
            assert await peer.ping() == []
        assert broker.served.group("send").unanswered == 30
        assert broker.core.log.written == 0
        broker.start_creation()
        answers = await peer.read_many(30)
        assert [(answer.opaque, answer.code) for answer in answers] == [(n, 0) for n in range(30)]
        assert broker.bodies("New") == [b"%d" % number for number in range(30)]
        assert broker.served.group("send").unanswered == 0


async def test_sends_of_every_kind_wait_for_their_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        peer = broker.attach()
        two = encode_batch([BatchMessage(0, b"b", b""), BatchMessage(0, b"c", b"")])
        await peer.send(
            send_frame("New", b"a", opaque=1),
            batch_frame(two, "New", opaque=2),
            send_frame("New", b"d", opaque=3, properties=text(DELAY="0")),
            send_frame("New", b"e", opaque=4, oneway=True),
            send_frame(opaque=5),
            send_frame("New", b"f", opaque=6),
        )
        # Others need not wait.
        await broker.settle()
        assert [answer.opaque for answer in await peer.ping()] == [5]
        broker.start_creation()
        assert [answer.opaque for answer in await peer.read_many(4)] == [1, 2, 3, 6]
        assert broker.bodies("New") == [b"a", b"b", b"c", b"d", b"e", b"f"]


async def test_a_producer_that_never_stops_gets_to_the_short_way(tmp_path: Path) -> None:
    async with send_broker(tmp_path) as broker:
        peer = broker.attach()
        sent = 0
        saved_before = broker.topics.version.counter
        while not broker.records("New"):
            await peer.send(send_frame("New", b"%d" % sent, opaque=sent))
            sent += 1
            await trio.lowlevel.checkpoint()
        assert not broker.broker.tables.creation.is_under_way("New")
        assert broker.topics.version.counter == saved_before + 1
        answers = await peer.read_many(sent)
        assert [answer.opaque for answer in answers] == list(range(sent))
        assert broker.bodies("New") == [b"%d" % number for number in range(sent)]


async def test_producers_of_several_connections_wait_for_one_topic(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        peers = [broker.attach(f"10.0.0.{number}:40000") for number in range(5)]
        for number, peer in enumerate(peers):
            await peer.send(send_frame("New", b"%d" % number))
            await wait_all_tasks_blocked()
        broker.start_creation()
        for peer in peers:
            assert (await peer.read()).code == 0
        assert broker.bodies("New") == [b"0", b"1", b"2", b"3", b"4"]


async def test_a_producer_that_is_gone_has_sent_its_message(tmp_path: Path) -> None:
    async with send_broker(tmp_path, creates_topics=False) as broker:
        peer = broker.attach()
        await peer.send(send_frame("New"))
        await wait_all_tasks_blocked()
        await peer.aclose()
        await wait_all_tasks_blocked()
        broker.start_creation()
        await broker.settle_topics()
        await broker.settle()
        assert broker.bodies("New") == [b"body"]
        assert broker.served.group("send").unanswered == 0


# --- a file that cannot be written -----------------------------------------------------------


@pytest.fixture
def unwritable(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Let no file of the broker be written; undo to let it."""

    def refuse(file: ConfigFile, _text: str) -> None:
        raise StorageError("write", file.path.name, "No space left on device")

    monkeypatch.setattr(ConfigFile, "write", refuse)
    return monkeypatch


async def test_a_topic_that_cannot_be_saved_takes_no_messages(
    tmp_path: Path, unwritable: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path, has_topic=False) as broker:
        for _ in range(3):
            answer = await broker.send(send_frame("New"))
            assert (answer.code, answer.remark) == (
                ResponseCode.SYSTEM_ERROR,
                "cannot write topics.json: No space left on device",
            )
            assert ext(answer) == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}
            assert broker.core.log.written == 0
        # Topics that are there go on.
        assert (await broker.send(send_frame("TBW102"))).code == 0
        unwritable.undo()
        assert (await broker.send(send_frame("New"))).code == 0
        assert (await broker.send(send_frame("New"))).code == 0
        assert "New" in saved_topics(tmp_path)
        assert broker.bodies("New") == [b"body"] * 2
        assert "topics not saved, trying again" in Logs(caplog).lines[0]


async def test_what_fails_unexpectedly_is_answered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with send_broker(tmp_path) as broker:

        def broken(*_: object) -> None:
            raise RuntimeError("broken")

        broker.store.append = broken  # type: ignore[assignment, method-assign]
        answer = await broker.send(send_frame("New"))
        assert (answer.code, answer.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "RuntimeError: broken",
        )
        assert broker.served.group("send").unanswered == 0
        assert Logs(caplog).lines == ["1 sends to new queues could not be stored"]
