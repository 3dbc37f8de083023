"""Heavy requests that touch the store: new queues, batches, pulls, queries, entries of queues."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from benchmarks.broker_load.frames import (
    OPAQUE_FIRST,
    SendShape,
    UniqueKeys,
    create_topic_frame,
    send_frame,
)
from benchmarks.fairness.scenario import Scenario, frame
from rmq.remoting.bodies.batch import BatchMessage, encode_batch
from rmq.remoting.codes import RequestCode
from rmq.remoting.headers import (
    DeleteTopicRequest,
    EmptyHeader,
    PullMessageRequest,
    QueryConsumeQueueRequest,
    QueryMessageRequest,
    SendMessageRequestV2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.fairness.scenario import Site

_INT_MAX: Final = 2**31 - 1
_FILLED: Final = "FairFilled"
"""A topic with one queue of many small messages of one tag and one key."""
_KEY: Final = "same"
_BORN_MS: Final = 1_700_000_000_000
_PULL_WITH_SUBSCRIPTION: Final = 4


def _scaled(site: Site, count: int) -> int:
    return max(1, count // 10) if site.is_quick else count


# --- new queues ------------------------------------------------------------------------------


def _first_sends(topics: int, queues: int) -> Callable[[Site], Sequence[bytes]]:
    """Return what makes the first sends to all queues of new topics.

    The topics of the round before are deleted first: each queue takes a descriptor, and there may
    be too few for all rounds.
    """
    made: dict[Site, list[str]] = {}

    def build(site: Site) -> Sequence[bytes]:
        site.ask([_delete(name) for name in made.pop(site, ())])
        names = [site.fresh("FairNew") for _ in range(_scaled(site, topics))]
        made[site] = names
        site.ask(
            [create_topic_frame(name, queues, OPAQUE_FIRST + at) for at, name in enumerate(names)]
        )
        return _one_each(names, queues)

    return build


def _one_each(names: Sequence[str], queues: int) -> list[bytes]:
    keys = UniqueKeys()
    places = [(name, queue_id) for name in names for queue_id in range(queues)]
    return [
        send_frame(SendShape(name, b"x" * 100), queue_id, OPAQUE_FIRST + at, keys)
        for at, (name, queue_id) in enumerate(places)
    ]


def _delete_used(queues: int) -> Callable[[Site], Sequence[bytes]]:
    """Return what deletes a topic with a message in each of its queues."""

    def build(site: Site) -> Sequence[bytes]:
        name, count = site.fresh("FairDoomed"), _scaled(site, queues)
        site.ask([create_topic_frame(name, count, OPAQUE_FIRST)])
        site.ask(_one_each([name], count))
        return [_delete(name)]

    return build


def _delete(topic: str) -> bytes:
    return frame(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicRequest(topic=topic))


def _clean_expired(_: Site) -> Sequence[bytes]:
    return [frame(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, EmptyHeader())]


def _clean_unused(_: Site) -> Sequence[bytes]:
    return [frame(RequestCode.CLEAN_UNUSED_TOPIC, EmptyHeader())]


# --- batches ---------------------------------------------------------------------------------


def _batch(count: int, *, topic: str, properties: bytes = b"") -> bytes:
    body = encode_batch(BatchMessage(0, b"", properties) for _ in range(count))
    header = SendMessageRequestV2(
        producer_group="bench_producer",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=0,
        sys_flag=0,
        born_timestamp=_BORN_MS,
        flag=0,
        properties="WAIT\x01true\x02",
        reconsume_times=0,
        batch=True,
    )
    return frame(RequestCode.SEND_BATCH_MESSAGE, header, body)


def _large_batch(count: int) -> Callable[[Site], Sequence[bytes]]:
    return lambda site: [_batch(_scaled(site, count), topic=site.size.topic(0))]


# --- reads -----------------------------------------------------------------------------------


def _fill(site: Site) -> None:
    """Send messages that share a tag and a key to one queue."""
    site.ask([create_topic_frame(_FILLED, 1, OPAQUE_FIRST)])
    properties = f"KEYS\x01{_KEY}\x02TAGS\x01other\x02".encode()
    batch = _batch(1_000, topic=_FILLED, properties=properties)
    site.ask([batch] * _scaled(site, 400))


def _pull_nothing(site: Site) -> Sequence[bytes]:
    header = PullMessageRequest(
        consumer_group=site.size.group(0),
        topic=_FILLED,
        queue_id=0,
        queue_offset=0,
        max_msg_nums=_INT_MAX,
        sys_flag=_PULL_WITH_SUBSCRIPTION,
        commit_offset=0,
        suspend_timeout_millis=0,
        subscription="wanted",
        sub_version=0,
        expression_type="TAG",
    )
    return [frame(RequestCode.PULL_MESSAGE, header)]


def _query_far_end(_: Site) -> Sequence[bytes]:
    header = QueryMessageRequest(
        topic=_FILLED, key=_KEY, max_num=64, begin_timestamp=0, end_timestamp=1
    )
    return [frame(RequestCode.QUERY_MESSAGE, header)]


def _query_other(_: Site) -> Sequence[bytes]:
    # All entries of the chain have this hash only if the topic has it, too: none is found.
    header = QueryMessageRequest(
        topic=_FILLED, key=_KEY, max_num=64, begin_timestamp=0, end_timestamp=2**62
    )
    return [frame(RequestCode.QUERY_MESSAGE, header)]


def _entries(_: Site) -> Sequence[bytes]:
    header = QueryConsumeQueueRequest(topic=_FILLED, queue_id=0, index=0, count=_INT_MAX)
    return [frame(RequestCode.QUERY_CONSUME_QUEUE, header)]


SCENARIOS: Final = (
    Scenario("310: 500 first sends to 500 new queues", _first_sends(1, 500)),
    Scenario("310: 4,000 first sends, 1,000 new topics x 4", _first_sends(1_000, 4)),
    Scenario("215 of a topic with 1,000 used queues", _delete_used(1_000)),
    Scenario("306, nothing expired", _clean_expired),
    Scenario("316, nothing unused", _clean_unused),
    Scenario("320 of 10,000 empty messages", _large_batch(10_000)),
    Scenario("320 of 100,000 empty messages", _large_batch(100_000)),
    Scenario("11 of 400,000 messages, none matches", _pull_nothing, prepare=_fill),
    Scenario("12 by a key of 400,000, time at the far end", _query_far_end, prepare=_fill),
    Scenario("12 by a key of 400,000", _query_other, prepare=_fill),
    Scenario("321 of 2^31-1 entries", _entries, prepare=_fill),
)
