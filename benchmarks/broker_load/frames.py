"""Frames for a broker, made before the clock runs. No I/O here.

Requests have the bytes that a stock client sends: JSON headers, single-letter send fields, a unique
key of its own on every message. Opaque numbers have a fixed number of digits, so that an answer's
can be found by its place.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from rmq.remoting.bodies.batch import BatchMessage, encode_batch
from rmq.remoting.codes import LanguageCode, RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    CreateTopicRequest,
    GetMaxOffsetRequest,
    PullMessageRequest,
    SendMessageRequestV2,
)
from rmq.remoting.layout import FRAME_PREFIX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rmq.remoting.header import Header

OPAQUE_FIRST: Final = 100_000
"""Opaque numbers count from here and stay six digits long."""

PULL_MESSAGES_MAX: Final = 32
"""What a stock client asks for at a time, and the most a stock broker gives out of memory."""

_PULL_SUSPEND: Final = 2
_PULL_SUBSCRIPTION: Final = 4
"""The subscription is in the request, so that no heartbeat has to announce it."""

_HOLD_MS: Final = 120_000
_READ_AND_WRITE: Final = 6
_BORN_MS: Final = 1_700_000_000_000
# A number that stands for the queue offset in a frame made beforehand.
_OFFSET_MARK: Final = 1_111_111_111_111_111_111


@dataclass(frozen=True, slots=True)
class SendShape:
    """What is sent: a body, alone or in a batch of so many."""

    topic: str
    body: bytes
    batch: int = 1


class UniqueKeys:
    """Counts out unique keys as long as a stock client's."""

    def __init__(self) -> None:
        self._numbers = itertools.count()

    def properties(self) -> str:
        """Return what a stock client says of a message that has nothing special about it."""
        return f"UNIQ_KEY\x017F00000100002A9F18B4AAC2{next(self._numbers):08X}\x02WAIT\x01true\x02"


def send_frame(shape: SendShape, queue_id: int, opaque: int, keys: UniqueKeys) -> bytes:
    """Return a whole SEND_MESSAGE_V2, or SEND_BATCH_MESSAGE if the shape is a batch."""
    if shape.batch == 1:
        code, properties, body = RequestCode.SEND_MESSAGE_V2, keys.properties(), shape.body
    else:
        code, properties = RequestCode.SEND_BATCH_MESSAGE, "WAIT\x01true\x02"
        body = encode_batch(
            BatchMessage(0, shape.body, keys.properties().encode()) for _ in range(shape.batch)
        )
    header = SendMessageRequestV2(
        producer_group="bench_producer",
        topic=shape.topic,
        default_topic="TBW102",
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=_BORN_MS,
        flag=0,
        properties=properties,
        reconsume_times=0,
        batch=shape.batch > 1,
    )
    return _frame(code, opaque, header, len(body)) + body


def send_rings(
    shape: SendShape, opaques: range, *, queues: int, keys: UniqueKeys, keys_min: int
) -> dict[int, Iterator[bytes]]:
    """Return for each opaque number an endless row of requests that carry it.

    A request is repeated only after `keys_min` other messages: an index that is given the same key
    over and over would be cheaper to write than a real one.
    """
    variants = -(-keys_min // (len(opaques) * shape.batch))
    return {
        opaque: itertools.cycle(
            [
                send_frame(shape, (opaque + variant) % queues, opaque, keys)
                for variant in range(variants)
            ]
        )
        for opaque in opaques
    }


class PullFrame:
    """A PULL_MESSAGE of one queue; only the offset changes from one to the next."""

    __slots__ = ("_after", "_before", "_length", "opaque", "queue_id")

    def __init__(self, topic: str, queue_id: int, opaque: int, *, hold: bool) -> None:
        self.queue_id = queue_id
        self.opaque = opaque
        header = PullMessageRequest(
            consumer_group="bench_consumer",
            topic=topic,
            queue_id=queue_id,
            queue_offset=_OFFSET_MARK,
            max_msg_nums=PULL_MESSAGES_MAX,
            sys_flag=_PULL_SUBSCRIPTION | (_PULL_SUSPEND if hold else 0),
            commit_offset=0,
            suspend_timeout_millis=_HOLD_MS if hold else 0,
            subscription="*",
            sub_version=0,
            expression_type="TAG",
        )
        encoded = _frame(RequestCode.PULL_MESSAGE, opaque, header)[FRAME_PREFIX.size :]
        self._before, self._after = encoded.split(b"%d" % _OFFSET_MARK)
        self._length = len(self._before) + len(self._after)

    def at(self, queue_offset: int) -> bytes:
        """Return the request for messages from `queue_offset` on."""
        offset = b"%d" % queue_offset
        length = self._length + len(offset)
        return FRAME_PREFIX.pack(4 + length, length) + self._before + offset + self._after


def create_topic_frame(topic: str, queues: int, opaque: int) -> bytes:
    header = CreateTopicRequest(
        topic=topic,
        default_topic="TBW102",
        read_queue_nums=queues,
        write_queue_nums=queues,
        perm=_READ_AND_WRITE,
        topic_filter_type="SINGLE_TAG",
        topic_sys_flag=0,
        order=False,
    )
    return _frame(RequestCode.UPDATE_AND_CREATE_TOPIC, opaque, header)


def max_offset_frame(topic: str, queue_id: int, opaque: int) -> bytes:
    header = GetMaxOffsetRequest(topic=topic, queue_id=queue_id)
    return _frame(RequestCode.GET_MAX_OFFSET, opaque, header)


def _frame(code: RequestCode, opaque: int, header: Header, body_length: int = 0) -> bytes:
    return encode_frame(
        code=code,
        opaque=opaque,
        header=header,
        body_length=body_length,
        language=LanguageCode.JAVA,
    )
