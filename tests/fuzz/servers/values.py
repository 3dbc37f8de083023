"""What goes into the requests that servers are fuzzed with: names, numbers, properties, bodies.

A `Values` draws plausible values by the name of a field, so that many requests mean something, and
values at the edge of what a field can hold, so that others do not. It remembers what servers
answered (where messages are), because most offsets mean nothing unless they are true ones.
"""

from __future__ import annotations

import random
import zlib
from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec
from msgspec import inspect

from rmq.broker.config.schema import SCHEMA as BROKER_SCHEMA
from rmq.model.queues import MessageQueue
from rmq.nameserver.config import SCHEMA as NAMESERVER_SCHEMA
from rmq.remoting.bodies import (
    BatchMessage,
    RegisterBrokerBody,
    encode_batch,
)
from rmq.remoting.codes import RequestCode
from rmq.remoting.protocol import REQUESTS
from tests.fuzz.mutations import NUMBERS, mutated_text
from tests.fuzz.servers.pools import (
    ADDRESSES,
    BROKERS,
    CLIENTS,
    CLUSTERS,
    DELAYS,
    EDGE_NUMBERS,
    EDGE_TEXTS,
    EXPRESSIONS,
    GROUPS,
    QUEUES,
    STATS,
    SYSTEM_TOPICS,
    TOPICS,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_KEEP: Final = 256


class Values:
    """Draws values; `chance` decides everything."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.late = random.Random(chance.random())
        """For decisions whose order depends on when answers come."""
        self.offsets: list[int] = [0]
        """Physical offsets of messages."""
        self.halves: list[tuple[str, int, int]] = []
        """Producer group, queue offset and physical offset of half messages."""
        self.message_ids: list[str] = []
        self.edginess = 0.1
        """How often a value is one at the edge."""

    # --- what servers answered ---------------------------------------------------------------

    def remember(self, message_id: str, physical_offset: int) -> None:
        _keep(self.offsets, physical_offset, self.late)
        _keep(self.message_ids, message_id, self.late)

    def remember_half(self, group: str, queue_offset: int, physical_offset: int) -> None:
        _keep(self.halves, (group, queue_offset, physical_offset), self.late)

    # --- single values -----------------------------------------------------------------------

    def edge_text(self) -> str:
        return self.chance.choice(EDGE_TEXTS)

    def text(self, field: str) -> str:
        """Return a text for a field of this name."""
        draw = _TEXTS.get(field)
        if draw is None or self.chance.random() < self.edginess:
            return self.edge_text()
        return draw(self)

    def topic(self) -> str:
        """Return a topic: one of a few, or sometimes one of many."""
        if self.chance.random() < 0.05:
            return f"FuzzOther{self.chance.randrange(500)}"
        return self.chance.choice(TOPICS)

    def number(self, field: str, low: int, high: int) -> int:
        """Return a whole number for a field of this name within the limits of its type."""
        draw = _NUMBERS.get(field)
        if draw is None or self.chance.random() < self.edginess:
            inside = [number for number in EDGE_NUMBERS if low <= number <= high]
            return self.chance.choice(inside)
        return max(low, min(draw(self), high))

    def properties(self) -> str:
        """Return message properties as a client sends them, or not quite so."""
        chance = self.chance
        pairs: list[tuple[str, str]] = []
        for _ in range(chance.choice((0, 1, 2, 2, 3, 6))):
            name = chance.choice(_PROPERTY_NAMES)
            draw = _PROPERTIES.get(name)
            pairs.append((name, draw(self) if draw is not None else self.edge_text()))
        if chance.random() < 0.02:
            pairs.append(("big", "x" * chance.choice((32_000, 32_767, 33_000, 70_000))))
        text = "\x02".join(f"{name}\x01{value}" for name, value in pairs)
        if chance.random() < 0.5 and text:
            text += "\x02"
        if chance.random() < self.edginess:
            return mutated_text(text.encode("utf-8", "replace"), chance).decode("utf-8", "replace")
        return text

    def queue(self) -> MessageQueue:
        return MessageQueue(
            topic=self.text("topic"),
            broker_name=self.text("broker_name"),
            queue_id=self.number("queue_id", -(2**31), 2**31 - 1),
        )

    def payload(self) -> bytes:
        """Return the body of a message."""
        chance = self.chance
        size = chance.choice((0, 1, 10, 10, 100, 100, 1000, 5000))
        if chance.random() < 0.01:
            size = chance.choice((64 * 1024, 1024**2, 1024**2 + 1, 2 * 1024**2))
        return chance.randbytes(min(size, 64)) * max(1, size // 64) if size else b""

    # --- bodies ------------------------------------------------------------------------------

    def body(self, code: int) -> bytes:
        """Return a sound body for a request, empty for one that has none."""
        draw = _BODIES.get(code)
        if draw is not None:
            return draw(self)
        declared = REQUESTS.get(cast("RequestCode", code))
        if declared is None or declared.body is None:
            return b""
        return cast("bytes", self.struct(declared.body).encode())

    def broken_body(self, body: bytes) -> bytes:
        """Return something else in the place of a sound body."""
        chance = self.chance
        match chance.randrange(8):
            case 0:
                return b""
            case 1:
                return body[: chance.randrange(len(body) + 1)]
            case 2:
                return chance.choice(_NO_BODIES)
            case 3:
                return chance.randbytes(chance.choice((1, 8, 100, 3000)))
            case _:
                return mutated_text(body, chance)

    def settings(self, keys: tuple[str, ...]) -> bytes:
        """Return an update of settings."""
        chance = self.chance
        changes: dict[str, str] = {}
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            key = chance.choice(keys) if chance.random() > self.edginess else self.edge_text()
            changes[key] = chance.choice(
                (*map(str, EDGE_NUMBERS[:14]), "true", "false", "0.5", self.edge_text())
            )
        lines = (f"{key}={value}" for key, value in changes.items())
        return "\n".join(lines).encode("utf-8", "replace")

    def batch(self) -> bytes:
        chance = self.chance
        messages = [
            BatchMessage(
                self.number("flag", -(2**31), 2**31 - 1),
                self.payload(),
                self.properties().encode("utf-8", "replace")[:32_767],
            )
            for _ in range(chance.choice((1, 1, 2, 5, 50)))
        ]
        return encode_batch(messages)

    def registration(self) -> bytes:
        body = cast("RegisterBrokerBody", self.struct(RegisterBrokerBody))
        if self.chance.random() < 0.3:
            return self.chance.choice(_compressed())
        return body.encode()

    def struct(self, kind: type[Any]) -> Any:  # noqa: ANN401 - whatever is asked for
        """Return a value of a struct class with most of its members set."""
        return kind(
            **{
                field.name: self.member(field.name, field.type)
                for field in fields_of(kind)
                if field.required or self.chance.random() < 0.8
            }
        )

    def member(self, name: str, info: inspect.Type) -> Any:  # noqa: ANN401 - see above
        """Return a value of a type for a field of this name."""
        chance = self.chance
        match info:
            case inspect.StrType():
                return self.text(name)
            case inspect.BoolType():
                return chance.random() < 0.5
            case inspect.IntType(ge=int(low), le=int(high)):
                return self.number(name, low, high)
            case inspect.FloatType():
                return chance.choice((0.0, -1.5, 1e300))
            case inspect.EnumType():
                return chance.choice(list(info.cls))
            case inspect.UnionType(types=types):
                return self.member(name, types[0]) if chance.random() < 0.9 else None
            case inspect.StructType():
                return self.struct(info.cls)
            case inspect.DictType():
                return {
                    self.member(name, info.key_type): self.member(name, info.value_type)
                    for _ in range(chance.randrange(3))
                }
            case inspect.VarTupleType() | inspect.FrozenSetType():
                items = [self.member(name, info.item_type) for _ in range(chance.randrange(3))]
                return tuple(items) if isinstance(info, inspect.VarTupleType) else frozenset(items)
        raise msgspec.ValidationError(f"no value for {info!r}")


_FIELDS: Final[dict[type[Any], tuple[inspect.Field, ...]]] = {}


def fields_of(kind: type[Any]) -> tuple[inspect.Field, ...]:
    """Return the fields of a struct class."""
    if kind not in _FIELDS:
        _FIELDS[kind] = cast("inspect.StructType", inspect.type_info(kind)).fields
    return _FIELDS[kind]


def _keep(known: list[Any], new: object, chance: random.Random) -> None:
    if len(known) < _KEEP:
        known.append(new)
    else:
        known[chance.randrange(_KEEP)] = new


@cache
def _compressed() -> tuple[bytes, ...]:
    """Return bodies of registrations that are compressed, the last one more than can be taken."""
    empty = RegisterBrokerBody().encode_compressed()
    return (empty, empty[:-3], *(zlib.compress(bytes(size), 9) for size in (10, 10**5, 8 * 10**7)))


def _one_of(*values: str) -> Callable[[Values], str]:
    return lambda v: v.chance.choice(values)


def _any_of(*values: int) -> Callable[[Values], int]:
    return lambda v: v.chance.choice(values)


_TEXTS: Final[dict[str, Callable[[Values], str]]] = {
    "topic": lambda v: v.topic(),
    "topic_name": lambda v: v.topic(),
    "origin_topic": _one_of(*TOPICS),
    "default_topic": _one_of("TBW102", "TBW102", "TBW102", "FuzzA"),
    **dict.fromkeys(
        (
            *("consumer_group", "producer_group", "group", "group_name", "src_group"),
            *("dest_group", "compare_group", "filter_groups"),
        ),
        _one_of(*GROUPS),
    ),
    **dict.fromkeys(("client_id", "client_addr"), _one_of(*CLIENTS)),
    "broker_name": _one_of(*BROKERS),
    **dict.fromkeys(("broker_addr", "ha_server_addr", "filter_server_list"), _one_of(*ADDRESSES)),
    **dict.fromkeys(("cluster_name", "cluster"), _one_of(*CLUSTERS)),
    "namespace": _one_of("FuzzSpace", "ORDER_TOPIC_CONFIG"),
    **dict.fromkeys(("key", "value", "stats_key"), _one_of("FuzzA", "FuzzA@fuzz-g1", "k", "v")),
    "stats_name": _one_of(*STATS),
    "properties": Values.properties,
    **dict.fromkeys(("subscription", "sub_string"), _one_of(*EXPRESSIONS)),
    "expression_type": _one_of("TAG", "TAG", "SQL92", ""),
    **dict.fromkeys(
        ("msg_id", "origin_msg_id", "transaction_id", "offset_msg_id"),
        lambda v: v.chance.choice(v.message_ids or ["7F0000010000000000000000000000FF"]),
    ),
    "topic_filter_type": _one_of("SINGLE_TAG", "SINGLE_TAG", "MULTI_TAG", "NONE"),
    **dict.fromkeys(("tags_set", "class_name"), _one_of("a", "b")),
}
_SOME_TIMES: Final = (0, -1, 1, 1_700_000_000_000, 2**62)
_NUMBERS: Final[dict[str, Callable[[Values], int]]] = {
    "queue_id": lambda v: v.chance.randrange(-1, QUEUES + 1),
    **dict.fromkeys(
        ("queue_offset", "commit_offset", "tran_state_table_offset", "index"),
        lambda v: v.chance.choice((0, 0, 0, 1, 5, 1000)),
    ),
    **dict.fromkeys(("offset", "commit_log_offset"), lambda v: v.chance.choice(v.offsets)),
    **dict.fromkeys(("max_msg_nums", "max_num", "count"), _any_of(1, 10, 32)),
    "sys_flag": _any_of(0, 0, 1, 2, 3, 4, 6, 7, 8, 12, 16),
    "flag": _any_of(0, 1),
    **dict.fromkeys(
        ("read_queue_nums", "write_queue_nums", "default_topic_queue_nums"), _any_of(4)
    ),
    "perm": _any_of(6, 6, 6, 7, 4, 2),
    "topic_sys_flag": _any_of(0, 0, 1, 2, 3),
    "commit_or_rollback": _any_of(0, 8, 12),
    "suspend_timeout_millis": _any_of(0, 1, 1000, 5000, 15_000),
    "delay_level": _any_of(0, 0, 1, 3, -1),
    **dict.fromkeys(("reconsume_times", "max_reconsume_times"), _any_of(0, 0, 1, 16)),
    **dict.fromkeys(
        ("begin_timestamp", "timestamp", "born_timestamp", "sub_version"), _any_of(*_SOME_TIMES)
    ),
    "end_timestamp": _any_of(2**62, 2**63 - 1, 0),
    "broker_id": _any_of(0, 0, 1, 2),
    "body_crc32": _any_of(0),
    **dict.fromkeys(("retry_queue_nums", "retry_max_times"), _any_of(0, 1, 1, 16)),
    "which_broker_when_consume_slowly": _any_of(0, 1),
}

_PROPERTIES: Final[dict[str, Callable[[Values], str]]] = {
    "KEYS": _one_of("k", "k k2", "k " * 60, " "),
    "TAGS": _one_of("a", "b", "c", ""),
    "DELAY": _one_of(*DELAYS),
    "WAIT": _one_of("true", "false", "", "x"),
    "TRAN_MSG": _one_of("true", "true", "false", "TRUE"),
    "PGROUP": _one_of(*GROUPS),
    "UNIQ_KEY": _one_of("7F0000010000000000000000000000FF", "u"),
    "REPLY_TO_CLIENT": _one_of(*CLIENTS),
    "REAL_TOPIC": _one_of(*TOPICS, *SYSTEM_TOPICS),
    "REAL_QID": lambda v: str(v.chance.choice(EDGE_NUMBERS)),
    "CHECK_IMMUNITY_TIME_IN_SECONDS": lambda v: str(v.chance.choice(EDGE_NUMBERS)),
    "TRANSACTION_CHECK_TIMES": lambda v: str(v.chance.choice(EDGE_NUMBERS)),
    "TRAN_PREPARED_QUEUE_OFFSET": lambda v: str(v.chance.choice(EDGE_NUMBERS)),
    "CLUSTER": _one_of(*CLUSTERS),
    "RETRY_TOPIC": _one_of(*TOPICS),
    "ORIGIN_MESSAGE_ID": _one_of("", "x"),
    "INNER_NUM": lambda v: str(v.chance.choice(NUMBERS)),
}
_PROPERTY_NAMES: Final = (*_PROPERTIES, "a", "b", "é", "")

_BROKER_KEYS: Final = tuple(setting.key for setting in BROKER_SCHEMA)
_NAMESERVER_KEYS: Final = tuple(setting.key for setting in NAMESERVER_SCHEMA)

_MESSAGES: Final = (
    *(RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2),
    *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
)
_BODIES: Final[dict[int, Callable[[Values], bytes]]] = {
    **dict.fromkeys(map(int, _MESSAGES), Values.payload),
    RequestCode.SEND_BATCH_MESSAGE: Values.batch,
    RequestCode.REGISTER_BROKER: Values.registration,
    RequestCode.UPDATE_BROKER_CONFIG: lambda v: v.settings(_BROKER_KEYS),
    RequestCode.UPDATE_NAMESRV_CONFIG: lambda v: v.settings(_NAMESERVER_KEYS),
}
_NO_BODIES: Final = (
    *(b"{}", b"[]", b"null", b"0", b'""', b"{", b"}", b"\0", b"\xff\xfe", b'{"a":', b"not JSON"),
    *(b"[" * 100_000, b'{"a":' * 3000, b'{"clientID":' + b"[" * 70, b"9" * 10_000, b"1e999"),
    *(b'{"consumerDataSet":{}}', b'{"clientID":1e400}', b'{"mqSet":[{"$ref":"$"}]}', b"\n=\n:\\"),
)
