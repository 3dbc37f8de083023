"""What is there when a broker starts again: after a stop, after a kill, and on a stock broker's
files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.model.record import decode_records
from rmq.remoting.bodies import SubscriptionGroupConfig
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    CreateTopicRequest,
    DeleteTopicRequest,
    QueryConsumerOffsetRequest,
    UpdateConsumerOffsetRequest,
    ViewMessageRequest,
)
from tests.broker.broker_frames import GROUP, TOPIC, bodies_of, ext, frame, pull, send
from tests.broker.broker_kit import WallClock, live_broker, live_config
from tests.broker.golden_broker import SETTINGS as GOLDEN_SETTINGS
from tests.remoting.server_kit import Peer
from tests.store.golden import stores as golden

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from rmq.broker.config import LiveConfig
    from rmq.model.record import StoredRecord
    from tests.broker.broker_kit import LiveBroker


@pytest.fixture
def fast_clock() -> trio.testing.MockClock:
    """The time of day is looked at once a second, which is long."""
    return trio.testing.MockClock(rate=10)


def update(offset: int, topic: str = TOPIC, queue_id: int = 0) -> bytes:
    header = UpdateConsumerOffsetRequest(
        consumer_group=GROUP, topic=topic, queue_id=queue_id, commit_offset=offset
    )
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, header)


def create(topic: str, queues: int = 3) -> bytes:
    header = CreateTopicRequest(
        topic=topic,
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=6,
        topic_filter_type="SINGLE_TAG",
    )
    return frame(RequestCode.UPDATE_AND_CREATE_TOPIC, header)


async def succeed(broker: LiveBroker, *requests: bytes) -> None:
    for request in requests:
        answer = await broker.ask(request)
        assert answer.code == ResponseCode.SUCCESS, answer


async def offset_of(broker: LiveBroker, topic: str = TOPIC, group: str = GROUP) -> int:
    header = QueryConsumerOffsetRequest(consumer_group=group, topic=topic, queue_id=0)
    return int(ext(await broker.ask(frame(RequestCode.QUERY_CONSUMER_OFFSET, header)))["offset"])


# --- after a stop --------------------------------------------------------------------------------


async def test_everything_is_there_again_after_a_stop(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    group = SubscriptionGroupConfig(group_name="made", retry_max_times=5)
    async with live_broker(live) as broker:
        await succeed(
            broker,
            send(b"one"),
            send(b"two"),
            create("made"),
            frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group.encode()),
            update(1),
        )
        await broker.ask(pull(group="seen"))
        topics = dict(broker.broker.topics.items())
        version = broker.broker.topics.version
    async with live_broker(live) as broker:
        assert dict(broker.broker.topics.items()) == topics
        assert broker.broker.topics.version == version
        assert broker.broker.groups.get("made") == group
        assert broker.broker.groups.get("seen") is not None
        assert await offset_of(broker) == 1
        assert bodies_of(await broker.ask(pull())) == [b"one", b"two"]
        sent = await broker.ask(send(b"three"))
        assert ext(sent)["queueOffset"] == "2"


async def test_delayed_messages_are_delivered_once_across_restarts(
    tmp_path: Path, fast_clock: trio.testing.MockClock
) -> None:
    live = live_config(tmp_path)
    clock = WallClock()
    delayed = {"DELAY": "1"}
    async with live_broker(live, now_ms=clock) as broker:
        await succeed(broker, send(b"one", properties=delayed), send(b"two", properties=delayed))
        clock.ms += 1000
        await wait_for(broker, 2)
        await succeed(broker, send(b"three", properties=delayed))
    # While the broker is down, its time comes.
    clock.ms += 60_000
    async with live_broker(live, now_ms=clock) as broker:
        await wait_for(broker, 3)
        assert broker.broker.delay.progress()[1] == (3, 3)
    async with live_broker(live, now_ms=clock) as broker:
        assert bodies_of(await broker.ask(pull())) == [b"one", b"two", b"three"]
        assert broker.broker.delay.progress()[1] == (3, 3)


async def wait_for(broker: LiveBroker, count: int) -> None:
    """Wait until a queue has so many messages."""
    peer = await broker.dial()
    while True:
        answer = await peer.request(pull(0, count - 1, wait_ms=15_000))
        if answer.code == ResponseCode.SUCCESS:
            return
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED, answer
        await trio.sleep(0.01)


async def test_a_topic_made_again_begins_at_0_after_a_restart_too(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with live_broker(live) as broker:
        await succeed(broker, *(send(b"%d" % n) for n in range(5)))
        await succeed(
            broker,
            frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC)),
            create(TOPIC),
            send(b"new"),
        )
    async with live_broker(live) as broker:
        answer = await broker.ask(pull())
        assert bodies_of(answer) == [b"new"]
        assert ext(answer)["maxOffset"] == "1"


async def test_a_deleted_topic_stays_deleted(tmp_path: Path) -> None:
    live = live_config(tmp_path)
    async with live_broker(live) as broker:
        await succeed(
            broker,
            send(b"message"),
            frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=TOPIC)),
        )
    async with live_broker(live) as broker:
        assert (await broker.ask(pull())).code == ResponseCode.TOPIC_NOT_EXIST
        assert not (tmp_path / "consumequeue" / TOPIC).exists()


async def test_settings_changed_while_running_count_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("fileReservedTime=48\n")
    port = live_config(tmp_path / "store").current.listen_port
    live = live_config(tmp_path / "store", port=port, config_path=path)
    async with live_broker(live) as broker:
        await succeed(broker, frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"fileReservedTime=24"))
    again = live_config(tmp_path / "store", port=port, config_path=path)
    assert again.current.store.reserved_hours == 24


# --- after a kill --------------------------------------------------------------------------------


@asynccontextmanager
async def until_killed(live: LiveConfig, folder: Path) -> AsyncIterator[Peer]:
    """Run a broker as a process that is killed at the end of the block."""
    path = folder / "broker.conf"
    settings = live.as_properties().items()
    path.write_text("".join(f"{key}={value}\n" for key, value in settings if value))
    process = await trio.lowlevel.open_process(
        [sys.executable, "-m", "rmq", "broker", "-c", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "NAMESRV_ADDR": ""},
    )
    try:
        with trio.fail_after(30):
            assert process.stdout is not None
            said = b""
            while b"boot success" not in said:
                piece = await process.stdout.receive_some()
                assert piece, f"the broker ended: {said.decode()}"
                said += piece
            peer = Peer(await trio.open_tcp_stream("127.0.0.1", live.current.listen_port))
            async with peer.stream:
                yield peer
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            if process.stdout is not None:
                await process.stdout.aclose()


async def test_what_was_acknowledged_before_a_kill_is_there_with_its_topics(
    tmp_path: Path,
) -> None:
    live = live_config(tmp_path / "store")
    async with until_killed(live, tmp_path) as peer:
        requests = [send(b"%d" % n, topic=f"New{n}") for n in range(10)]
        for request in (*requests, create("made")):
            assert (await peer.request(request)).code == ResponseCode.SUCCESS
    assert (tmp_path / "store" / "abort").exists()
    async with live_broker(live) as broker:
        assert broker.broker.topics.get("made") is not None
        for n in range(10):
            assert bodies_of(await broker.ask(pull(topic=f"New{n}"))) == [b"%d" % n]
        sent = await broker.ask(send(b"again", topic="New0"))
        assert ext(sent)["queueOffset"] == "1"


# --- on the files of a stock broker --------------------------------------------------------------


def golden_config(folder: Path, store: str) -> LiveConfig:
    root = golden.unpack(store, folder)
    settings = {
        key: value
        for key, value in GOLDEN_SETTINGS.items()
        if key not in ("brokerIP1", "enablePropertyFilter")
    }
    return live_config(root, {**settings, "fileReservedTime": "100000"})


@pytest.mark.parametrize(
    "store", [golden.CLEAN_MASTER, golden.CRASHED, golden.CRASHED_RECOVERED, golden.TORN]
)
async def test_the_store_of_a_stock_broker_is_served(store: str, tmp_path: Path) -> None:
    async with live_broker(golden_config(tmp_path, store)) as broker:
        expected: dict[tuple[str, int], list[golden.GoldenMessage]] = {}
        for message in golden.messages_of(store):
            expected.setdefault((message.topic, message.queue_id), []).append(message)
        for (topic, queue_id), messages in expected.items():
            offset = 0
            found: list[StoredRecord] = []
            while True:
                answer = await broker.ask(
                    pull(queue_id, offset, topic=topic, group="TOOLS_CONSUMER")
                )
                if answer.code != ResponseCode.SUCCESS:
                    break
                found += decode_records(answer.body)
                offset = int(ext(answer)["nextBeginOffset"])
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert [(r.queue_offset, r.physical_offset, r.size, r.store_ms) for r in found] == [
                (m.queue_offset, m.physical_offset, m.size, m.store_ms) for m in messages
            ]


async def test_topics_groups_and_offsets_of_a_stock_broker_are_taken_over(tmp_path: Path) -> None:
    async with live_broker(golden_config(tmp_path, golden.CLEAN_MASTER)) as broker:
        topic = broker.broker.topics.get("GoldenTopic")
        assert topic is not None
        assert topic.read_queue_nums == 4
        assert {"golden_push", "golden_pull", "golden_sql"} <= set(broker.broker.groups.names())
        assert broker.broker.offsets.topics_of("golden_push") >= {"GoldenTopic"}
        assert await offset_of(broker, "GoldenTopic", "golden_push") > 0
        # And it goes on from there.
        before = broker.broker.store.queues.by_key["GoldenTopic", 0].next_offset
        sent = await broker.ask(send(b"ours", topic="GoldenTopic"))
        assert int(ext(sent)["queueOffset"]) == before
        view = await broker.ask(
            frame(
                RequestCode.VIEW_MESSAGE_BY_ID,
                ViewMessageRequest(offset=int(ext(sent)["msgId"][-16:], 16)),
            )
        )
        assert bodies_of(view) == [b"ours"]
