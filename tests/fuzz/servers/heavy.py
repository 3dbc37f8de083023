"""Requests that ask for much: large bodies, long names and expressions, wide topics, many groups.

Each is sound, or refused for a reason. `prepare` fills the servers from inside, in place of the
hours that clients would need; `HEAVY` names the requests, each as large as a peer may make it.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final, NamedTuple

from rmq.model.offsets import ConsumerOffset
from rmq.model.pull_flags import FLAG_SUBSCRIPTION
from rmq.model.queues import MessageQueue
from rmq.model.record import NewMessage
from rmq.remoting.bodies import (
    BatchMessage,
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    LockBatchRequestBody,
    ProducerData,
    RegisterBrokerBody,
    SubscriptionData,
    TopicConfig,
    TopicConfigSerializeWrapper,
    encode_batch,
)
from rmq.remoting.codes import RequestCode
from tests.fuzz.servers.pools import GROUPS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.servers.rig import Rig

WIDE: Final = "FuzzWide"
"""A topic with as many queues as one may have."""
KEYED: Final = "FuzzKeyed"
"""A topic with messages that all have the same keys."""


class Heavy(NamedTuple):
    """A request by its code, its fields by attribute, and its body."""

    server: str
    code: RequestCode
    fields: Mapping[str, object] = {}
    body: Callable[[int], bytes] = lambda _size: b""
    """Gives a body of about so many units, whatever they are."""
    units: int = 0


def prepare(rig: Rig, *, queues: int, groups: int, topics: int, messages: int) -> None:
    """Give a broker a wide topic, and many groups, topics and messages."""
    broker = rig.broker
    broker.topics.put(_topic(WIDE, queues))
    for queue_id in range(queues):
        broker.offsets.commit("", GROUPS[0], WIDE, queue_id, ConsumerOffset(queue_id))
    for number in range(topics):
        broker.topics.put(_topic(f"FuzzMany{number}", 4))
    for number in range(groups):
        group = f"fuzz-many{number}"
        broker.groups.find(group)
        for topic in range(4):
            for queue_id in range(4):
                broker.offsets.commit("", group, f"FuzzMany{topic}", queue_id, ConsumerOffset(1))
    broker.topics.put(_topic(KEYED, 1))
    properties = b"KEYS\x01k k1 k2\x02UNIQ_KEY\x01u\x02a\x01" + b"x" * 200
    row = [NewMessage(KEYED, 0, b"x" * 100, properties) for _ in range(100)]
    for _ in range(messages // 100):
        broker.store.append(row)


def _topic(name: str, queues: int) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)


def _heartbeat_groups(count: int) -> bytes:
    return HeartbeatData(
        client_id="heavy",
        producer_data_set=tuple(ProducerData(group_name=f"p{n}") for n in range(count)),
        consumer_data_set=tuple(
            ConsumerData(
                group_name=f"fuzz-hb{n}",
                subscription_data_set=(SubscriptionData(topic="FuzzA", sub_string="*"),),
            )
            for n in range(count)
        ),
    ).encode()


def _heartbeat_topics(count: int) -> bytes:
    subscriptions = tuple(SubscriptionData(topic=f"T{n}", sub_string="*") for n in range(count))
    consumer = ConsumerData(group_name=GROUPS[0], subscription_data_set=subscriptions)
    return HeartbeatData(client_id="heavy", consumer_data_set=(consumer,)).encode()


def _heartbeat_tags(count: int) -> bytes:
    tags = frozenset(f"tag{n}" for n in range(count))
    subscription = SubscriptionData(topic="FuzzA", sub_string="a", tags_set=tags)
    consumer = ConsumerData(group_name=GROUPS[0], subscription_data_set=(subscription,))
    return HeartbeatData(client_id="heavy", consumer_data_set=(consumer,)).encode()


def _lock(count: int) -> bytes:
    queues = tuple(MessageQueue(topic="FuzzA", broker_name="b", queue_id=n) for n in range(count))
    return LockBatchRequestBody(consumer_group="g", client_id="c", mq_set=queues).encode()


def _check(expression: str) -> Callable[[int], bytes]:
    def body(count: int) -> bytes:
        subscription = SubscriptionData(
            topic="FuzzA", sub_string=expression * count, expression_type="SQL92"
        )
        return CheckClientRequestBody(
            client_id="c", group="g", subscription_data=subscription
        ).encode()

    return body


def _batch(count: int) -> bytes:
    return encode_batch([BatchMessage(0, b"x", b"")]) * count


def _batch_of_keys(count: int) -> bytes:
    return encode_batch([BatchMessage(0, b"x", b"KEYS\x01" + b"k " * 16_000)]) * count


def _registration(count: int) -> RegisterBrokerBody:
    topics = {f"T{n}": _topic(f"T{n}", 4) for n in range(count)}
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(topic_config_table=topics)
    )


_REGISTRATION: Final = {
    **{"broker_name": "fuzz-b1", "broker_addr": "10.0.0.1:1", "cluster_name": "FuzzCluster"},
    **{"ha_server_addr": "", "broker_id": 0, "body_crc32": 0},
}
_PULL: Final = {
    **{"consumer_group": GROUPS[0], "topic": KEYED, "queue_id": 0, "queue_offset": 0},
    **{"sys_flag": FLAG_SUBSCRIPTION, "max_msg_nums": 2**31 - 1, "commit_offset": 0},
    **{"suspend_timeout_millis": 0, "sub_version": 0, "broker_name": None},
}
_SEND: Final = {
    **{"producer_group": "g", "topic": KEYED, "queue_id": 0, "sys_flag": 0, "batch": True},
    **{"default_topic": "TBW102", "properties": None, "unit_mode": False, "broker_name": None},
    **{"reconsume_times": 0, "max_reconsume_times": None, "flag": 0, "born_timestamp": 0},
    "default_topic_queue_nums": 4,
}
_C = RequestCode
_MB: Final = 1 << 20

HEAVY: Final[dict[str, Heavy]] = {
    # What a wide topic and many groups cost.
    "202 of a wide topic": Heavy("broker", _C.GET_TOPIC_STATS_INFO, {"topic": WIDE}),
    "303 of a wide topic": Heavy(
        "broker", _C.QUERY_CONSUME_TIME_SPAN, {"topic": WIDE, "group": GROUPS[0]}
    ),
    "208 of a wide topic": Heavy(
        "broker", _C.GET_CONSUME_STATS, {"topic": WIDE, "consumer_group": GROUPS[0]}
    ),
    "208 of all topics": Heavy(
        "broker", _C.GET_CONSUME_STATS, {"topic": "", "consumer_group": GROUPS[0]}
    ),
    "317": Heavy("broker", _C.GET_BROKER_CONSUME_STATS, {"is_order": False}),
    "308 of a wide topic": Heavy(
        "broker",
        _C.QUERY_CORRECTION_OFFSET,
        {"topic": WIDE, "compare_group": "", "filter_groups": ""},
    ),
    "314 of a wide topic": Heavy(
        "broker",
        _C.CLONE_GROUP_OFFSET,
        {"src_group": GROUPS[0], "dest_group": "fuzz-clone", "topic": WIDE, "offline": True},
    ),
    "222 of a wide topic": Heavy(
        "broker",
        _C.INVOKE_BROKER_TO_RESET_OFFSET,
        {"topic": WIDE, "group": GROUPS[0], "timestamp": 0, "is_force": True},
    ),
    "15 in a wide topic": Heavy(
        "broker",
        _C.UPDATE_CONSUMER_OFFSET,
        {"topic": WIDE, "consumer_group": GROUPS[0], "queue_id": -5, "commit_offset": 7},
    ),
    "21": Heavy("broker", _C.GET_ALL_TOPIC_CONFIG),
    "43": Heavy("broker", _C.GET_ALL_CONSUMER_OFFSET),
    "201": Heavy("broker", _C.GET_ALL_SUBSCRIPTIONGROUP_CONFIG),
    "28": Heavy("broker", _C.GET_BROKER_RUNTIME_INFO),
    "300": Heavy("broker", _C.QUERY_TOPIC_CONSUME_BY_WHO, {"topic": "FuzzMany1"}),
    "316": Heavy("broker", _C.CLEAN_UNUSED_TOPIC),
    "306": Heavy("broker", _C.CLEAN_EXPIRED_CONSUMEQUEUE),
    "17 among many": Heavy(
        "broker",
        _C.UPDATE_AND_CREATE_TOPIC,
        {
            **{"topic": "FuzzA", "read_queue_nums": 4, "write_queue_nums": 4, "perm": 6},
            **{"topic_filter_type": "SINGLE_TAG", "topic_sys_flag": 0},
        },
    ),
    "207 of a wide group": Heavy(
        "broker",
        _C.DELETE_SUBSCRIPTIONGROUP,
        {"group_name": "fuzz-many1", "remove_offset": True},
    ),
    # Many messages.
    "12 for as many as can be": Heavy(
        "broker",
        _C.QUERY_MESSAGE,
        {
            **{"topic": KEYED, "key": "k", "max_num": 2**31 - 1, "begin_timestamp": 0},
            **{"end_timestamp": 2**63 - 1, "unique_key_query": False},
        },
    ),
    "11 for as many as can be": Heavy(
        "broker", _C.PULL_MESSAGE, {**_PULL, "subscription": "*", "expression_type": "TAG"}
    ),
    "11 with a condition nothing fulfils": Heavy(
        "broker",
        _C.PULL_MESSAGE,
        {
            **_PULL,
            "subscription": " OR ".join(f"p{n} = 'x{n}'" for n in range(200)),
            "expression_type": "SQL92",
        },
    ),
    "321 for as many as can be": Heavy(
        "broker",
        _C.QUERY_CONSUME_QUEUE,
        {
            **{"topic": KEYED, "queue_id": 0, "index": 0, "count": 2**31 - 1},
            "consumer_group": GROUPS[0],
        },
    ),
    "320 of tiny messages": Heavy("broker", _C.SEND_BATCH_MESSAGE, _SEND, _batch, _MB // 24),
    "320 of messages with many keys": Heavy(
        "broker", _C.SEND_BATCH_MESSAGE, _SEND, _batch_of_keys, 30
    ),
    # Long texts.
    "11 with many tags": Heavy(
        "broker",
        _C.PULL_MESSAGE,
        {**_PULL, "subscription": "||".join(map(str, range(120_000))), "expression_type": "TAG"},
    ),
    "11 with a long tag": Heavy(
        "broker",
        _C.PULL_MESSAGE,
        {**_PULL, "subscription": "x" * (_MB - 1000), "expression_type": "TAG"},
    ),
    "11 with a long condition": Heavy(
        "broker",
        _C.PULL_MESSAGE,
        {**_PULL, "subscription": "a > 1 OR " * 100_000 + "b > 1", "expression_type": "SQL92"},
    ),
    "11 of a long topic": Heavy(
        "broker",
        _C.PULL_MESSAGE,
        {**_PULL, "topic": "x" * (_MB - 1000), "subscription": "*", "expression_type": "TAG"},
    ),
    "310 with long properties": Heavy(
        "broker",
        _C.SEND_MESSAGE_V2,
        {**_SEND, "batch": False, "properties": "DELAY\x011\x02" + "a\x01b\x02" * 100_000},
    ),
    "46 of a long condition": Heavy(
        "broker", _C.CHECK_CLIENT_CONFIG, {}, _check("a > 1 OR "), 500_000
    ),
    "46 of a deep condition": Heavy("broker", _C.CHECK_CLIENT_CONFIG, {}, _check("("), 5_000_000),
    "46 of a long number": Heavy("broker", _C.CHECK_CLIENT_CONFIG, {}, _check("9"), 5_000_000),
    "25 of many settings": Heavy(
        "broker", _C.UPDATE_BROKER_CONFIG, {}, lambda n: b"a=b\n" * n, 4 * _MB
    ),
    "25 of many settings that are not known": Heavy(
        "broker",
        _C.UPDATE_BROKER_CONFIG,
        {},
        lambda n: b"".join(b"key%d=1\n" % i for i in range(n)),
        100_000,
    ),
    # Large bodies.
    "34 with many groups": Heavy("broker", _C.HEART_BEAT, {}, _heartbeat_groups, 20_000),
    "34 with many topics": Heavy("broker", _C.HEART_BEAT, {}, _heartbeat_topics, 60_000),
    "34 with many tags": Heavy("broker", _C.HEART_BEAT, {}, _heartbeat_tags, 500_000),
    "34 that is not plain": Heavy(
        "broker", _C.HEART_BEAT, {}, lambda n: b"{'clientID':'" + b"x" * n + b"'}", _MB - 100
    ),
    "41 of many queues": Heavy("broker", _C.LOCK_BATCH_MQ, {}, _lock, 100_000),
    "42 of many queues": Heavy("broker", _C.UNLOCK_BATCH_MQ, {}, _lock, 100_000),
    # The nameserver.
    "103 of many topics": Heavy(
        "nameserver",
        _C.REGISTER_BROKER,
        {**_REGISTRATION, "compressed": False},
        lambda n: _registration(n).encode(),
        80_000,
    ),
    "103 of many topics, compressed": Heavy(
        "nameserver",
        _C.REGISTER_BROKER,
        {**_REGISTRATION, "compressed": True},
        lambda n: _registration(n).encode_compressed(),
        400_000,
    ),
    "103 of zeros, compressed": Heavy(
        "nameserver",
        _C.REGISTER_BROKER,
        {**_REGISTRATION, "compressed": True},
        lambda n: zlib.compress(b"\0" * n, 9),
        64 * _MB,
    ),
    "206": Heavy("nameserver", _C.GET_ALL_TOPIC_LIST_FROM_NAMESERVER),
    "224": Heavy("nameserver", _C.GET_TOPICS_BY_CLUSTER, {"cluster": "FuzzCluster"}),
    "311": Heavy("nameserver", _C.GET_UNIT_TOPIC_LIST),
    "205": Heavy("nameserver", _C.WIPE_WRITE_PERM_OF_BROKER, {"broker_name": "fuzz-b1"}),
    "100 of a long value": Heavy(
        "nameserver",
        _C.PUT_KV_CONFIG,
        {"namespace": "ORDER_TOPIC_CONFIG", "key": "k", "value": "v" * (3 * _MB)},
    ),
    "219 of a long value": Heavy(
        "nameserver", _C.GET_KVLIST_BY_NAMESPACE, {"namespace": "ORDER_TOPIC_CONFIG"}
    ),
    "318 of many settings": Heavy(
        "nameserver", _C.UPDATE_NAMESRV_CONFIG, {}, lambda n: b"a=b\n" * n, 4 * _MB
    ),
    "104 of many topics": Heavy(
        "nameserver",
        _C.UNREGISTER_BROKER,
        {
            **{"broker_name": "fuzz-b1", "broker_addr": "10.0.0.1:1", "broker_id": 0},
            "cluster_name": "FuzzCluster",
        },
    ),
}


async def ask_heavily(rig: Rig, name: str, *, scale: float = 1.0) -> int:
    """Send one of the requests and wait for its answer; return how large it was."""
    heavy = HEAVY[name]
    peer = await rig.dial(heavy.server)
    maker = peer.server.maker
    frame = maker.frame(
        heavy.code,
        maker.fields(heavy.code, **heavy.fields),
        heavy.body(max(1, int(heavy.units * scale))),
        flag=0,
    )
    await peer.send(frame)
    await rig.settle()
    return len(frame)
