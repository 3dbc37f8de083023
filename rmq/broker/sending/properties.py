r"""From what a producer sent to what the store appends: stored properties and delays. Pure.

What of the received properties is stored, by kind of message, follows RocketMQ 4.9.8
SendMessageProcessor and CommitLog: an ordinary message loses `WAIT` and gains `CLUSTER`; one that
is parked in the schedule topic keeps `WAIT` and gains `REAL_TOPIC` and `REAL_QID` as well. Java
writes the pairs in the order of a hash map, here they stay in the order received: nothing reads
the order, and sorting would cost as much as storing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from rmq.model import flags
from rmq.model.limits import INT32_MAX
from rmq.model.names import HALF_TOPIC, SCHEDULE_TOPIC
from rmq.model.properties import (
    CLUSTER,
    NAME_VALUE,
    PAIR,
    REAL_QUEUE_ID,
    REAL_TOPIC,
    WAIT,
    decode_properties,
    decode_text,
    encode_properties,
    find_delay,
)

if TYPE_CHECKING:
    from rmq.model.record import NewMessage


RETRY_TOPIC: Final = "RETRY_TOPIC"
"""The topic that a message which is sent again was sent to first."""
_WAIT_MARK: Final = WAIT + "\x01"
_CLUSTER_MARK: Final = CLUSTER + "\x01"
_NUMBER: Final = re.compile(rb"[+-]?[0-9]{1,10}")
_DELAYABLE: Final = (0, flags.TRANSACTION_COMMIT)


def cluster_pair(cluster: str) -> bytes:
    """Return the property every received message gets, encoded."""
    return CLUSTER.encode() + NAME_VALUE + cluster.encode("utf-8", "replace")


def stored_properties(received: str | None, added: bytes) -> bytes:
    """Return the properties to store of an ordinary message: without WAIT, with `added`."""
    if not received:
        return added
    if _CLUSTER_MARK in received:
        # Sent again by a client that got it from a broker: ours takes the place of the old one.
        pairs = [pair for pair in received.split("\x02") if not pair.startswith(_CLUSTER_MARK)]
        received = "\x02".join(pairs)
    start = received.find(_WAIT_MARK)
    if start >= 0:
        # Every stock client sends it, so its one pair is cut out without reading the others.
        end = received.find("\x02", start)
        if received.find(_WAIT_MARK, start + 1) >= 0 or (start and received[start - 1] != "\x02"):
            pairs = received.split("\x02")
            received = "\x02".join([pair for pair in pairs if not pair.startswith(_WAIT_MARK)])
        elif end < 0:
            received = received[: start - 1] if start else ""
        else:
            received = received[:start] + received[end + 1 :]
    if not received:
        return added
    if received[-1] == "\x02":
        # Older clients end the last pair as if another one followed.
        return received.encode("utf-8", "replace") + added
    return received.encode("utf-8", "replace") + PAIR + added


def joined_properties(first: bytes, second: bytes) -> bytes:
    """Return two encoded rows of properties as one."""
    if not first:
        return second
    if not second:
        return first
    return first + second if first.endswith(PAIR) else first + PAIR + second


def waits_until_safe(received: str | None) -> bool:
    """Tell whether the producer wants its answer only when the message is safe (`WAIT`)."""
    if not received:
        return True
    before, mark, rest = received.rpartition(_WAIT_MARK)
    if not mark:
        return True
    value: str | None = rest.partition("\x02")[0]
    if not value or before[-1:] not in ("", "\x02"):
        # An empty one does not count, nor does part of something else: an earlier one may.
        value = decode_properties(received.encode("utf-8", "replace")).get(WAIT)
    return value is None or value.lower() == "true"


def delay_level(properties: bytes) -> int:
    """Return the delay level a message asks for, 0 if none; raise ValueError if it is no number."""
    text = find_delay(properties)
    if not text:
        return 0
    # `int` takes more than Java does: blanks, underscores, any length.
    level = int(text) if _NUMBER.fullmatch(text) else INT32_MAX + 1
    if level > INT32_MAX:
        raise ValueError(f'For input string: "{decode_text(text)}"')
    return level


def parked(message: NewMessage, level: int, level_max: int, properties: bytes) -> NewMessage:
    """Return a delayed message as it rests in the schedule topic.

    `properties` are those to keep; where it is to go one day is added to them.
    """
    level = min(level, level_max)
    pairs = decode_properties(properties)
    pairs["DELAY"] = str(level)
    pairs[REAL_TOPIC] = message.topic
    pairs[REAL_QUEUE_ID] = str(message.queue_id)
    return msgspec.structs.replace(
        message,
        topic=SCHEDULE_TOPIC,
        queue_id=level - 1,
        properties=encode_properties(pairs),
    )


def is_delayable(sys_flag: int) -> bool:
    """Tell whether a delay level counts: it does not for half and rolled back messages."""
    return sys_flag & flags.TRANSACTION_MASK in _DELAYABLE


def half(message: NewMessage, properties: bytes) -> NewMessage:
    """Return the first half of a transaction as it rests until the producer decides."""
    pairs = decode_properties(properties)
    pairs[REAL_TOPIC] = message.topic
    pairs[REAL_QUEUE_ID] = str(message.queue_id)
    return msgspec.structs.replace(
        message,
        topic=HALF_TOPIC,
        queue_id=0,
        sys_flag=message.sys_flag & ~flags.TRANSACTION_MASK,
        properties=encode_properties(pairs),
    )
