"""PULL_MESSAGE: what a pull brings, what is committed with it, and who should serve the next."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from trio.testing import wait_all_tasks_blocked

from rmq.broker.config import BrokerRole
from rmq.model.offsets import ConsumerOffset, PhysicalOffset
from rmq.model.properties import decode_properties
from rmq.model.record import decode_records
from rmq.remoting.codes import ResponseCode
from tests.broker.broker_frames import GROUP, TOPIC, bodies_of, consumer, ext, pull, subscription
from tests.broker.broker_kit import STORE_HOST, part_broker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.broker.broker_kit import PartBroker
    from tests.remoting.server_kit import Frame

KIB = 1024
SLAVE = {"brokerRole": "SLAVE", "brokerId": "1"}


def outcome(answer: Frame) -> tuple[int, str | None, int, int, int]:
    """Return code, remark, next, min and max offset of an answer to a pull."""
    fields = ext(answer)
    assert set(fields) == {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}
    return (
        answer.code,
        answer.remark,
        int(fields["nextBeginOffset"]),
        int(fields["minOffset"]),
        int(fields["maxOffset"]),
    )


# --- every way a read can end --------------------------------------------------------------------


@pytest.mark.parametrize("is_opened", [False, True], ids=["never written", "empty"])
@pytest.mark.parametrize(
    ("offset", "code"),
    [
        (0, ResponseCode.PULL_NOT_FOUND),
        (1, ResponseCode.PULL_OFFSET_MOVED),
        (-1, ResponseCode.PULL_OFFSET_MOVED),
        (2**63 - 1, ResponseCode.PULL_OFFSET_MOVED),
    ],
)
async def test_a_queue_without_messages(
    is_opened: bool, offset: int, code: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        if is_opened:
            broker.core.queues.open(TOPIC, 0)
        answer = await broker.ask(pull(0, offset))
        assert outcome(answer) == (code, "NO_MESSAGE_IN_QUEUE", 0, 0, 0)


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        pytest.param(
            -(2**63),
            (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, 0, 3),
            id="most negative",
        ),
        pytest.param(
            -1, (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", 0, 0, 3), id="negative"
        ),
        pytest.param(0, (ResponseCode.SUCCESS, "FOUND", 3, 0, 3), id="first"),
        pytest.param(2, (ResponseCode.SUCCESS, "FOUND", 3, 0, 3), id="last"),
        pytest.param(
            3, (ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", 3, 0, 3), id="at the end"
        ),
        pytest.param(
            4, (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3), id="behind it"
        ),
        pytest.param(
            2**63 - 1,
            (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3, 0, 3),
            id="far behind it",
        ),
    ],
)
async def test_a_queue_with_three_messages(
    offset: int, expected: tuple[int, str, int, int, int], tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        answer = await broker.ask(pull(0, offset))
        assert outcome(answer) == expected
        found = [b"0", b"1", b"2"][offset:] if expected[0] == ResponseCode.SUCCESS else []
        assert bodies_of(answer) == found


async def test_messages_that_have_expired(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for number in range(700):
            broker.put(b"%d" % number + bytes(KIB))
        broker.expire_log()
        first = broker.core.queues.by_key[TOPIC, 0].min_offset
        assert 0 < first < 700
        answer = await broker.ask(pull(0, first - 1))
        assert outcome(answer) == (
            ResponseCode.PULL_OFFSET_MOVED,
            "OFFSET_TOO_SMALL",
            first,
            first,
            700,
        )
        answer = await broker.ask(pull(0, first, count=1))
        assert outcome(answer) == (ResponseCode.SUCCESS, "FOUND", first + 1, first, 700)


async def test_messages_whose_entries_outlive_them_are_passed_over(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(700):
            broker.put(bytes(KIB))
        broker.expire_log(queues_follow=False)
        offset = 0
        while (answer := await broker.ask(pull(0, offset))).code != ResponseCode.SUCCESS:
            # A scan ends with the file of the queue, of a hundred entries.
            assert outcome(answer) == (
                ResponseCode.PULL_RETRY_IMMEDIATELY,
                "MESSAGE_WAS_REMOVING",
                offset + 100,
                0,
                700,
            )
            offset += 100
        first = next(iter(decode_records(answer.body)))
        assert first.physical_offset == broker.core.log.min_offset


async def test_nothing_but_messages_that_are_being_removed(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        for _ in range(10):
            broker.put(bytes(KIB))
        for _ in range(600):
            broker.put(bytes(KIB), queue_id=1)
        broker.expire_log(queues_follow=False)
        answer = await broker.ask(pull(0, 3))
        assert outcome(answer) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "MESSAGE_WAS_REMOVING",
            10,
            0,
            10,
        )


async def test_entries_that_are_missing_are_passed_over(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(150)
        # The first file of the queue has a hundred entries.
        broker.core.queues.by_key[TOPIC, 0].segments.drop_first()
        answer = await broker.ask(pull(0, 7))
        assert outcome(answer) == (ResponseCode.PULL_NOT_FOUND, "OFFSET_FOUND_NULL", 100, 0, 150)


async def test_a_scan_without_a_match_ends_after_800_entries(tmp_path: Path) -> None:
    settings = {"mappedFileSizeConsumeQueue": str(2000 * 20)}
    async with part_broker(tmp_path, settings) as broker:
        broker.put_many(1000)
        answer = await broker.ask(pull(0, 50, expression="TagA"))
        assert outcome(answer) == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "NO_MATCHED_MESSAGE",
            850,
            0,
            1000,
        )
        answer = await broker.ask(pull(0, 850, expression="TagA"))
        assert outcome(answer)[2] == 1000


# --- how much at a time --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wanted", "count"),
    [(1, 1), (10, 10), (32, 32), (33, 32), (2**31 - 1, 32), (0, 1), (-1, 1)],
)
async def test_a_pull_brings_what_is_wanted_and_at_most_32(
    wanted: int, count: int, tmp_path: Path
) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(100)
        answer = await broker.ask(pull(count=wanted))
        assert bodies_of(answer) == [b"%d" % number for number in range(count)]
        assert ext(answer)["nextBeginOffset"] == str(count)


async def test_a_pull_brings_at_most_256_kib_but_always_one_message(tmp_path: Path) -> None:
    settings = {"mappedFileSizeCommitLog": str(4 * KIB * KIB)}
    async with part_broker(tmp_path, settings) as broker:
        sizes = [100, 100, 300, 1]
        for number, size in enumerate(sizes):
            broker.put(b"%d" % number + bytes(size * KIB))
        offset = 0
        taken = []
        while (answer := await broker.ask(pull(0, offset))).code == ResponseCode.SUCCESS:
            taken.append(len(bodies_of(answer)))
            offset = int(ext(answer)["nextBeginOffset"])
        assert taken == [2, 1, 1]


async def test_what_has_likely_left_memory_is_sent_in_smaller_pieces(tmp_path: Path) -> None:
    async with part_broker(tmp_path, memory_bytes=100 * KIB) as broker:
        for number in range(100):
            broker.put(b"%d" % number + bytes(KIB))
        # 40 percent of memory: what is more than 40 KiB behind is on disk.
        assert len(bodies_of(await broker.ask(pull(0, 0)))) == 8
        assert len(bodies_of(await broker.ask(pull(0, 90)))) == 10


async def test_the_settings_of_how_much_take_effect_at_once(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(100)
        broker.update(maxTransferCountOnMessageInMemory="7")
        assert len(bodies_of(await broker.ask(pull()))) == 7


async def test_records_are_sent_as_they_are_stored(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        results = broker.put(b"one", b"two", b"three", tags="TagA")
        first, last = results[0], results[-1]
        whole = broker.core.log.view(
            PhysicalOffset(0), last.end_offset - first.end_offset + first.size
        )
        assert whole is not None
        assert (await broker.ask(pull())).body == bytes(whole)


# --- cold messages -------------------------------------------------------------------------------


async def test_cold_messages_are_read_elsewhere_and_answered_all_the_same(tmp_path: Path) -> None:
    async with part_broker(tmp_path, memory_bytes=10 * KIB) as broker:
        for number in range(100):
            broker.put(b"%d" % number + bytes(KIB))
        peer = broker.attach()
        await peer.send(*(pull(0, offset, count=1, opaque=offset) for offset in range(20)))
        answers = await peer.read_many(20)
        assert {answer.opaque: bodies_of(answer)[0].rstrip(b"\0") for answer in answers} == {
            offset: b"%d" % offset for offset in range(20)
        }
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
        assert broker.unanswered == 0


async def test_a_consumer_may_vanish_while_its_messages_are_read(tmp_path: Path) -> None:
    async with part_broker(tmp_path, memory_bytes=10 * KIB) as broker:
        for _ in range(100):
            broker.put(bytes(KIB))
        peer = broker.attach()
        await peer.send(*(pull(0, offset, opaque=offset) for offset in range(20)))
        await peer.aclose()
        await broker.settle()
        while broker.unanswered:
            await wait_all_tasks_blocked(0.001)
        assert bodies_of(await broker.ask(pull(0, 99))) == [bytes(KIB)]


# --- who should serve the next pull --------------------------------------------------------------


@pytest.mark.parametrize(
    ("slaves_are_read", "offset", "suggested"),
    [
        pytest.param("false", 0, "0", id="off, far behind"),
        pytest.param("false", 99, "0", id="off, near"),
        pytest.param("true", 0, "3", id="on, far behind"),
        pytest.param("true", 99, "2", id="on, near"),
        pytest.param("true", 100, "2", id="on, nothing new"),
        pytest.param("true", 101, "2", id="on, moved"),
    ],
)
async def test_which_broker_is_suggested(
    slaves_are_read: str, offset: int, suggested: str, tmp_path: Path
) -> None:
    settings = {"slaveReadEnable": slaves_are_read}
    async with part_broker(tmp_path, settings, memory_bytes=100 * KIB) as broker:
        broker.change_group(broker_id=2, which_broker_when_consume_slowly=3)
        for _ in range(100):
            broker.put(bytes(KIB))
        answer = await broker.ask(pull(0, offset))
        assert ext(answer)["suggestWhichBrokerId"] == suggested


# --- offsets that come with a pull ---------------------------------------------------------------


@pytest.mark.parametrize("offset", [0, 3, 99], ids=["found", "nothing new", "moved"])
async def test_the_offset_that_comes_with_a_pull_is_stored(offset: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        await broker.ask(pull(2, 0, commit=7))
        await broker.ask(pull(0, offset, commit=2))
        assert broker.offsets.offsets(GROUP, TOPIC) == {0: 2, 2: 7}


async def test_an_offset_without_the_flag_is_not_stored(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.ask(pull(0, 0))
        assert broker.offsets.query(GROUP, TOPIC, 0) == -1


async def test_a_smaller_offset_is_stored_too(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.ask(pull(commit=7))
        await broker.ask(pull(commit=5))
        assert broker.offsets.query(GROUP, TOPIC, 0) == 5


async def test_a_negative_offset_does_not_take_the_place_of_the_stored_one(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.ask(pull(commit=7))
        answer = await broker.ask(pull(commit=-1))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert broker.offsets.query(GROUP, TOPIC, 0) == 7


@pytest.mark.parametrize("queue_id", [4, -1])
async def test_a_pull_that_is_refused_stores_no_offset(queue_id: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.ask(pull(queue_id, commit=7))
        assert broker.offsets.offsets(GROUP, TOPIC) == {}


async def test_a_held_pull_stores_its_offset_when_it_comes_and_not_again(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        peer = broker.attach()
        await broker.hold(peer, pull(wait_ms=15_000, commit=2))
        assert broker.offsets.query(GROUP, TOPIC, 0) == 2
        broker.offsets.commit("admin", GROUP, TOPIC, 0, ConsumerOffset(1))
        broker.put(b"new")
        assert bodies_of(await peer.read()) == [b"new"]
        assert broker.offsets.query(GROUP, TOPIC, 0) == 1


async def test_a_stopping_broker_still_stores_offsets(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.pulls.stop_holding()
        answer = await broker.ask(pull(wait_ms=15_000, commit=7))
        assert answer.code == ResponseCode.PULL_NOT_FOUND
        assert broker.offsets.query(GROUP, TOPIC, 0) == 7


# --- offsets that moved --------------------------------------------------------------------------


async def test_a_moved_offset_is_told_in_a_topic_of_its_own(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        broker.clock.ms += 5_000
        await broker.ask(pull(0, 99))
        (record,) = broker.records("OFFSET_MOVED_EVENT")
        assert decode_properties(record.properties_bytes) == {
            "KEYS": GROUP,
            "DELAY": "0",
            "TAGS": GROUP,
        }
        assert record.body == (
            b'{"consumerGroup":"readers","messageQueue":{"brokerName":"broker-a","queueId":0,'
            b'"topic":"TopicA"},"offsetNew":3,"offsetRequest":99}'
        )
        assert record.queue_id == record.flag == record.sys_flag == record.reconsume_times == 0
        assert record.born_host == record.store_host == STORE_HOST
        assert record.born_ms == record.store_ms == broker.clock.ms


@pytest.mark.parametrize("offset", [0, 3], ids=["found", "nothing new"])
async def test_an_offset_that_is_right_is_not_told(offset: int, tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        await broker.ask(pull(0, offset))
        assert broker.records("OFFSET_MOVED_EVENT") == []


async def test_moved_offsets_can_be_consumed_by_group(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        await broker.ask(pull(0, 5))
        await broker.ask(pull(1, 6, group="others"))
        answer = await broker.ask(pull(topic="OFFSET_MOVED_EVENT", expression="others"))
        (body,) = bodies_of(answer)
        event = json.loads(body)
        assert (event["consumerGroup"], event["offsetRequest"]) == ("others", 6)


async def test_a_full_disk_does_not_keep_a_consumer_from_its_right_offset(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(3)
        broker.core.set_disk_full(True)
        answer = await broker.ask(pull(0, 99))
        assert outcome(answer)[:3] == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3)
        assert broker.records("OFFSET_MOVED_EVENT") == []
        assert len(bodies_of(await broker.ask(pull()))) == 3


# --- slaves --------------------------------------------------------------------------------------


async def test_a_slave_leaves_an_offset_that_it_does_not_have_to_its_master(tmp_path: Path) -> None:
    async with part_broker(tmp_path, SLAVE) as broker:
        assert broker.live.current.role is BrokerRole.SLAVE
        broker.change_group(broker_id=0)
        broker.put_many(3)
        answer = await broker.ask(pull(0, 99, commit=1))
        assert outcome(answer)[:3] == (
            ResponseCode.PULL_RETRY_IMMEDIATELY,
            "OFFSET_OVERFLOW_BADLY",
            99,
        )
        assert broker.records("OFFSET_MOVED_EVENT") == []
        assert broker.offsets.offsets(GROUP, TOPIC) == {}


async def test_a_slave_corrects_offsets_if_it_is_told_to(tmp_path: Path) -> None:
    async with part_broker(tmp_path, SLAVE) as broker:
        broker.put_many(3)
        broker.update(offsetCheckInSlave="true")
        answer = await broker.ask(pull(0, 99))
        assert outcome(answer)[:3] == (ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", 3)
        # Its log is a copy of its master's: nothing else may get into it.
        assert broker.records("OFFSET_MOVED_EVENT") == []


# --- figures -------------------------------------------------------------------------------------


def _sum(broker: PartBroker, name: str, key: str) -> int:
    stats = broker.broker.stats
    stats.sample(broker.clock())
    broker.clock.ms += 10_000
    stats.sample(broker.clock())
    view = stats.view(name, key)
    assert view is not None, f"nothing is known of {name} {key}"
    assert view.stats_minute is not None
    return view.stats_minute.sum


async def test_what_a_group_gets_is_counted(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.broker.stats.sample(broker.clock())
        broker.put_many(5)
        size = len((await broker.ask(pull())).body)
        assert _sum(broker, "GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") == 5
        assert _sum(broker, "GROUP_GET_SIZE", f"{TOPIC}@{GROUP}") == size
        assert _sum(broker, "BROKER_GET_NUMS", "DefaultCluster") == 5


async def test_a_group_without_a_match_gets_nothing(tmp_path: Path) -> None:
    async with part_broker(tmp_path) as broker:
        broker.put_many(5)
        peer = await broker.join("a", consumer(subscription("TagA")))
        await peer.request(pull(expression=None))
        assert broker.broker.stats.view("GROUP_GET_NUMS", f"{TOPIC}@{GROUP}") is None
