"""Heavy requests about clients, groups and locks, and requests that are long for what they say."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from benchmarks.fairness.scenario import Scenario, frame
from rmq.model.queues import MessageQueue
from rmq.remoting.bodies import (
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    LockBatchRequestBody,
    MessageModel,
    ProducerData,
    SubscriptionData,
    UnlockBatchRequestBody,
)
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode
from rmq.remoting.headers import (
    CloneGroupOffsetRequest,
    EmptyHeader,
    GetConsumerListByGroupRequest,
    GetConsumeStatsRequest,
    GetProducerConnectionListRequest,
    QueryCorrectionOffsetRequest,
    UpdateConsumerOffsetRequest,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.fairness.scenario import Site

    Build = Callable[[Site], Sequence[bytes]]

_LONG_BYTES: Final = 15_000_000
_CLIENT: Final = "fair@locks"


def _scaled(site: Site, count: int) -> int:
    return max(1, count // (10 if site.is_quick else 1))


def _quiet(site: Site) -> None:
    """Keep the broker from telling new members of groups to rebalance: only answers are read."""
    site.ask(
        [frame(RequestCode.UPDATE_BROKER_CONFIG, body=b"notifyConsumerIdsChangedEnable=false")]
    )


# --- heartbeats -----------------------------------------------------------------------------------


def _heartbeat(
    *consumers: ConsumerData, client_id: str = "fair@1", producers: Sequence[str] = ()
) -> bytes:
    body = HeartbeatData(
        client_id=client_id,
        consumer_data_set=consumers,
        producer_data_set=tuple(ProducerData(group_name=name) for name in producers),
    )
    return frame(RequestCode.HEART_BEAT, body=body.encode())


def _consumer(group: str, topics: Sequence[str] = ()) -> ConsumerData:
    return ConsumerData(
        group_name=group,
        consume_type=ConsumeType.CONSUME_PASSIVELY,
        message_model=MessageModel.CLUSTERING,
        subscription_data_set=tuple(
            SubscriptionData(topic=topic, sub_string="*", sub_version=1) for topic in topics
        ),
    )


def _new_groups(count: int) -> Build:
    def build(site: Site) -> Sequence[bytes]:
        stem = site.fresh("FairNew")
        numbers = range(_scaled(site, count))
        return [_heartbeat(*(_consumer(f"{stem}-{number}") for number in numbers))]

    return build


def _subscriptions(count: int) -> Build:
    def build(site: Site) -> Sequence[bytes]:
        topics = [f"FairAny{number}" for number in range(_scaled(site, count))]
        return [_heartbeat(_consumer(site.fresh("FairSubscriber"), topics))]

    return build


def _long_id(site: Site) -> Sequence[bytes]:
    return [_heartbeat(client_id="i" * _scaled(site, _LONG_BYTES), producers=("FairProducer0",))]


def _numbers(site: Site) -> Sequence[bytes]:
    body = b'{"clientID":"a","consumerDataSet":[%b1]}' % (b"1," * (_scaled(site, _LONG_BYTES) // 2))
    return [frame(RequestCode.HEART_BEAT, body=body)]


def _many_producers(site: Site) -> Sequence[bytes]:
    stem = site.fresh("FairGone")
    return [_heartbeat(producers=[f"{stem}-{number}" for number in range(_scaled(site, 2_000))])]


def _illegal_names(site: Site) -> Sequence[bytes]:
    return [_heartbeat(*(_consumer(f"../../{number}") for number in range(_scaled(site, 2_000))))]


# --- locks ----------------------------------------------------------------------------------------


def _queues(count: int) -> tuple[MessageQueue, ...]:
    return tuple(
        MessageQueue(topic="FairLocks", broker_name="b", queue_id=number) for number in range(count)
    )


def _lock(count: int) -> Build:
    def build(site: Site) -> Sequence[bytes]:
        body = LockBatchRequestBody(
            consumer_group="FairLocks", client_id=_CLIENT, mq_set=_queues(_scaled(site, count))
        )
        return [frame(RequestCode.LOCK_BATCH_MQ, body=body.encode())]

    return build


def _unlock(count: int) -> Build:
    def build(site: Site) -> Sequence[bytes]:
        body = UnlockBatchRequestBody(
            consumer_group="FairLocks", client_id=_CLIENT, mq_set=_queues(_scaled(site, count))
        )
        return [frame(RequestCode.UNLOCK_BATCH_MQ, body=body.encode())]

    return build


# --- offsets --------------------------------------------------------------------------------------


def _strange_offsets(site: Site) -> Sequence[bytes]:
    """Return one-way commits of groups that do not exist."""
    stem, topic = site.fresh("FairStranger"), site.size.topic(0)
    return [
        frame(
            RequestCode.UPDATE_CONSUMER_OFFSET,
            UpdateConsumerOffsetRequest(
                consumer_group=f"{stem}-{number}", topic=topic, queue_id=0, commit_offset=5
            ),
            flag=FLAG_ONEWAY,
        )
        for number in range(_scaled(site, 20_000))
    ]


def _lowest(site: Site) -> Sequence[bytes]:
    header = QueryCorrectionOffsetRequest(
        compare_group=site.size.group(0), topic=site.size.topic(0)
    )
    return [frame(RequestCode.QUERY_CORRECTION_OFFSET, header)]


def _progress(site: Site) -> Sequence[bytes]:
    header = GetConsumeStatsRequest(consumer_group=site.size.group(0))
    return [frame(RequestCode.GET_CONSUME_STATS, header)]


def _clone(site: Site) -> Sequence[bytes]:
    header = CloneGroupOffsetRequest(
        src_group=site.size.group(0), dest_group=site.size.group(1), offline=True
    )
    return [frame(RequestCode.CLONE_GROUP_OFFSET, header)]


# --- lists ----------------------------------------------------------------------------------------


def _all_producers(_: Site) -> Sequence[bytes]:
    return [frame(RequestCode.GET_ALL_PRODUCER_INFO, EmptyHeader())]


def _producers(_: Site) -> Sequence[bytes]:
    header = GetProducerConnectionListRequest(producer_group="FairProducer0")
    return [frame(RequestCode.GET_PRODUCER_CONNECTION_LIST, header)]


def _members(site: Site) -> Sequence[bytes]:
    header = GetConsumerListByGroupRequest(consumer_group=site.size.group(0))
    return [frame(RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)]


# --- headers --------------------------------------------------------------------------------------


def _long_header(site: Site) -> Sequence[bytes]:
    """Return a send whose header is 15 MB long; it ends the connection."""
    header = b'{"code":310,"opaque":100000,"extFields":{"x":"%b"}}' % (
        b"y" * _scaled(site, _LONG_BYTES)
    )
    return [struct.pack(">iI", 4 + len(header), len(header)) + header]


SCENARIOS: Final = (
    Scenario("34 with 1,000 new groups", _new_groups(1_000), prepare=_quiet),
    Scenario("34 with 2,000 new groups", _new_groups(2_000), prepare=_quiet),
    Scenario("34 with 10,000 new groups", _new_groups(10_000), prepare=_quiet),
    Scenario("34 with 2,000 illegal names", _illegal_names, prepare=_quiet),
    Scenario("34 with 2,000 subscriptions", _subscriptions(2_000), prepare=_quiet),
    Scenario("34 with 40,000 subscriptions", _subscriptions(40_000), prepare=_quiet),
    Scenario("34 with an id of 15 MB", _long_id, prepare=_quiet),
    Scenario("34 with 15 MB of numbers", _numbers, prepare=_quiet),
    Scenario(
        "34 with 2,000 producers, then a hang-up", _many_producers, prepare=_quiet, hangs_up=True
    ),
    Scenario("41 of 1,000 queues", _lock(1_000)),
    Scenario("41 of 12,000 queues", _lock(12_000)),
    Scenario("41 of 180,000 queues", _lock(180_000)),
    Scenario("42 of 12,000 queues", _unlock(12_000)),
    Scenario("42 of 180,000 queues", _unlock(180_000)),
    Scenario("328 all producers", _all_producers),
    Scenario("204 producers of a group", _producers),
    Scenario("38 members of a group", _members),
    Scenario("208 progress of a group", _progress),
    Scenario("308 lowest offsets", _lowest),
    Scenario("314 offsets of a group, cloned", _clone),
    Scenario("15 of 20,000 groups that do not exist", _strange_offsets, awaits_answers=False),
    Scenario("310 with a header of 15 MB", _long_header, awaits_answers=False, may_be_cut=True),
)
