"""Reading queues: what each answer of a broker leads to, with both clients."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from rmq.errors import BrokersFailedError, ConfigError, NotAssignedError
from rmq.model.queues import MessageQueue
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    GetMaxOffsetResponse,
    GetMinOffsetResponse,
    PullMessageRequest,
    PullMessageResponse,
    QueryConsumerOffsetRequest,
    QueryConsumerOffsetResponse,
    UpdateConsumerOffsetRequest,
)
from tests.client.blocking.scripted_cluster import TOPIC, scripted_cluster
from tests.client.contract.sides import GROUP, WAIT_S
from tests.store.built_records import build_record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.command import Command
    from tests.client.blocking.scripted_cluster import Play, ScriptedCluster
    from tests.client.blocking.scripted_peer import Link
    from tests.client.contract.sides import ConsumerSide, Side

QUEUE = MessageQueue(topic=TOPIC, broker_name="a", queue_id=0)
COUNT = 100


def record(offset: int) -> bytes:
    """Return the record of a message whose body is its offset."""
    return build_record(
        topic=TOPIC.encode(), queue_offset=offset, physical_offset=offset * 100, body=b"%d" % offset
    )


def places(next_offset: int, *, broker_id: int = 0, min_offset: int = 0) -> PullMessageResponse:
    return PullMessageResponse(
        suggest_which_broker_id=broker_id,
        next_begin_offset=next_offset,
        min_offset=min_offset,
        max_offset=COUNT,
    )


class Queue:
    """A queue of 100 messages, whose pulls can be answered in other ways."""

    def __init__(self) -> None:
        self.plays: dict[int, Play] = {}
        """What to do at the pull of this number, the first is 0."""
        self.pulls: list[PullMessageRequest] = []
        self.stored: int | None = None
        """Where the group is."""
        self.refuses_commits = False

    def play(self, link: Link, request: Command) -> None:
        match request.code:
            case RequestCode.QUERY_CONSUMER_OFFSET:
                assert request.header(QueryConsumerOffsetRequest).consumer_group == GROUP
                if self.stored is None:
                    link.answer(request, code=ResponseCode.QUERY_NOT_FOUND, remark="none")
                else:
                    link.answer(request, header=QueryConsumerOffsetResponse(offset=self.stored))
            case RequestCode.UPDATE_CONSUMER_OFFSET:
                self.commit(link, request)
            case RequestCode.GET_MIN_OFFSET:
                link.answer(request, header=GetMinOffsetResponse(offset=0))
            case RequestCode.GET_MAX_OFFSET:
                link.answer(request, header=GetMaxOffsetResponse(offset=COUNT))
            case RequestCode.PULL_MESSAGE:
                self.pulls.append(request.header(PullMessageRequest))
                play = self.plays.get(len(self.pulls) - 1) or self.answer
                play(link, request)

    def commit(self, link: Link, request: Command) -> None:
        if self.refuses_commits:
            link.answer(request, code=ResponseCode.SYSTEM_ERROR, remark="not today")
            return
        self.stored = request.header(UpdateConsumerOffsetRequest).commit_offset
        if not request.is_oneway:
            link.answer(request)

    def answer(self, link: Link, request: Command) -> None:
        asked = request.header(PullMessageRequest)
        start, end = asked.queue_offset, min(asked.queue_offset + asked.max_msg_nums, COUNT)
        if start < COUNT:
            link.answer(request, header=places(end), body=b"".join(map(record, range(start, end))))
        # Else the pull is held, and its connection is closed at the end.


@contextmanager
def played(
    side: Side, pause_s: float = 0.02
) -> Iterator[tuple[Queue, ScriptedCluster, ConsumerSide]]:
    queue = Queue()
    with scripted_cluster("a") as cluster:
        cluster["a"].play = queue.play
        with side.consumer(cluster.nameserver, pause_s=pause_s) as consumer:
            yield queue, cluster, consumer


def read(consumer: ConsumerSide, count: int) -> list[int]:
    """Return the first `count` messages, by their bodies."""
    found: list[int] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} messages"
        found += [int(message.body) for message in consumer.poll(1.0)]
    return found


# --- statuses ------------------------------------------------------------------------------------


def test_messages_are_found(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        consumer.assign([QUEUE])
        assert read(consumer, COUNT) == list(range(COUNT))
        first, second = queue.pulls[:2]
    assert (first.consumer_group, first.topic, first.queue_id) == (GROUP, TOPIC, 0)
    assert (first.queue_offset, first.max_msg_nums, second.queue_offset) == (0, 32, 32)
    assert (first.subscription, first.expression_type) == ("*", "TAG")
    assert first.suspend_timeout_millis == 2000


def nothing(link: Link, request: Command) -> None:
    offset = request.header(PullMessageRequest).queue_offset
    link.answer(request, code=ResponseCode.PULL_NOT_FOUND, header=places(offset))


def no_match(link: Link, request: Command) -> None:
    offset = request.header(PullMessageRequest).queue_offset
    link.answer(request, code=ResponseCode.PULL_RETRY_IMMEDIATELY, header=places(offset + 10))


def moved(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.PULL_OFFSET_MOVED, header=places(50, min_offset=50))


def lose(link: Link, request: Command) -> None:
    link.close()


def busy(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.FLOW_CONTROL, remark="busy")


def overloaded(link: Link, request: Command) -> None:
    remark = "[TIMEOUT_CLEAN_QUEUE]broker busy, start flow control for a while"
    link.answer(request, code=ResponseCode.SYSTEM_BUSY, remark=remark)


def refuse(link: Link, request: Command) -> None:
    link.answer(request, code=ResponseCode.NO_PERMISSION, remark="no")


def no_messages(link: Link, request: Command) -> None:
    link.answer(request, header=places(request.header(PullMessageRequest).queue_offset + 1))


def bad_records(link: Link, request: Command) -> None:
    link.answer(request, header=places(32), body=b"\x00" * 200)


@pytest.mark.parametrize(
    "play", [nothing, lose, busy, overloaded, refuse, no_messages, bad_records]
)
def test_a_pull_that_brings_nothing_is_made_again_from_the_same_place(
    side: Side, play: Play
) -> None:
    with played(side) as (queue, _, consumer):
        queue.plays = {0: play, 1: play}
        consumer.assign([QUEUE])
        assert read(consumer, COUNT) == list(range(COUNT))
        # The trio client pulls ahead before it has decoded what came.
        assert [pull.queue_offset for pull in queue.pulls].count(0) >= 2


def test_a_pull_that_matched_nothing_goes_on_behind_it(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        queue.plays = {0: no_match, 1: no_match}
        consumer.assign([QUEUE])
        assert read(consumer, 80) == list(range(20, COUNT))


def test_an_offset_that_is_gone_is_moved(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        queue.plays = {0: moved}
        consumer.assign([QUEUE])
        assert read(consumer, 50) == list(range(50, COUNT))


def test_what_is_sound_before_a_bad_record_is_handed_out(side: Side) -> None:
    def cut(link: Link, request: Command) -> None:
        body = record(0) + record(1) + record(2)[:-9]
        link.answer(request, header=places(3), body=body)

    with played(side) as (queue, _, consumer):
        queue.plays = {0: cut}
        consumer.assign([QUEUE])
        assert read(consumer, COUNT) == list(range(COUNT))
        assert 2 in [pull.queue_offset for pull in queue.pulls]


def moved_nowhere(link: Link, request: Command) -> None:
    offset = request.header(PullMessageRequest).queue_offset
    link.answer(request, code=ResponseCode.PULL_OFFSET_MOVED, header=places(offset))


@pytest.mark.parametrize("play", [nothing, moved_nowhere])
def test_a_broker_that_does_not_wait_is_not_asked_in_a_tight_loop(side: Side, play: Play) -> None:
    with played(side) as (queue, _, consumer):
        queue.plays = dict.fromkeys(range(10_000), play)
        consumer.assign([QUEUE])
        started = time.monotonic()
        assert consumer.poll(0.5) == []
        took_s = time.monotonic() - started
        # Every 50 ms, and one or two to begin with.
        assert 2 <= len(queue.pulls) <= took_s / 0.05 + 3


def test_tags_are_sent_and_looked_at(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        consumer.assign([QUEUE], "a || b")
        # The records have no tags, whatever the broker thinks.
        assert consumer.poll(0.3) == []
        assert queue.pulls[0].subscription == "a || b"


# --- slaves --------------------------------------------------------------------------------------


def test_the_broker_that_an_answer_names_is_asked_next(side: Side) -> None:
    def name_slave(link: Link, request: Command) -> None:
        body = b"".join(map(record, range(10)))
        link.answer(request, header=places(10, broker_id=1), body=body)

    slave = Queue()
    with scripted_cluster("a", "slave") as cluster:
        cluster.routed, cluster.slave_of = ("a",), {"a": "slave"}
        queue = Queue()
        queue.plays = {0: name_slave}
        cluster["a"].play, cluster["slave"].play = queue.play, slave.play
        with side.consumer(cluster.nameserver) as consumer:
            consumer.assign([QUEUE])
            assert read(consumer, COUNT) == list(range(COUNT))
    assert slave.pulls[0].queue_offset == 10


# --- places --------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_is(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        queue.stored = 70
        consumer.assign([QUEUE])
        assert read(consumer, 30) == list(range(70, COUNT))


def test_places_are_committed_and_asked_for(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        consumer.assign([QUEUE])
        assert consumer.committed(QUEUE) is None
        read(consumer, COUNT)
        consumer.commit()
        assert queue.stored == COUNT
        consumer.commit({QUEUE: 42})
        assert queue.stored == consumer.committed(QUEUE) == 42


def test_commits_that_fail_are_told(side: Side) -> None:
    with played(side) as (queue, _, consumer):
        consumer.assign([QUEUE])
        queue.refuses_commits = True
        with pytest.raises(BrokersFailedError, match="not today"):
            consumer.commit({QUEUE: 5})


def test_a_seek_forgets_what_was_read_ahead(side: Side) -> None:
    with played(side) as (_, _, consumer):
        consumer.assign([QUEUE])
        read(consumer, 1)
        consumer.seek(QUEUE, 90)
        assert read(consumer, 10) == list(range(90, COUNT))
        consumer.commit()


def test_a_seek_of_a_queue_that_is_not_assigned_is_refused(side: Side) -> None:
    other = MessageQueue(topic=TOPIC, broker_name="a", queue_id=1)
    with played(side) as (_, _, consumer):
        consumer.assign([QUEUE])
        with pytest.raises(NotAssignedError):
            consumer.seek(other, 0)
        with pytest.raises(ConfigError):
            consumer.seek(QUEUE, -1)
