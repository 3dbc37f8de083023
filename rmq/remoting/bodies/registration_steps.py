"""Reads registrations of any size in steps of about a millisecond.

Brokers with many topics send megabytes, and every host that reaches a nameserver may send anything.
Decoded at once, 60,000 topics stop the loop for a third of a second, and a few kilobytes that
inflate to 32 MiB for a tenth.

- A compressed body is inflated piece by piece, and its fields are read as they come. What is no
  registration ends where it stops making sense, not when all of it is inflated.
- The table of topics in a plain body is cut between its members, and each cut is decoded like a
  body of its own. What is left without the table has to be short. The result is that of
  `RegisterBrokerBody.decode`, but for references between topics, which no peer writes.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING, Final

from rmq.model.crc import crc32
from rmq.remoting.bodies.base import LENIENT_BYTES_MAX, BodyError
from rmq.remoting.bodies.registration import (
    CRC32_MASK,
    DECOMPRESSED_BYTES_MAX,
    INT32,
    RegisterBrokerBody,
    read_filter_servers,
    read_topic,
    refuse,
)
from rmq.remoting.bodies.topics import DataVersion, TopicConfig, TopicConfigSerializeWrapper

if TYPE_CHECKING:
    from collections.abc import Generator

AT_ONCE_BYTES_MAX: Final = 8 * 1024
"""Bodies up to here are read in one step, with all that Java's JSON library allows."""
FRAME_BYTES_MAX: Final = 64 * 1024
"""How long a plain body may be without its topics."""

_CUT_BYTES: Final = 8 * 1024
_MEMBER_BYTES_MAX: Final = 8 * 1024
_INFLATED_BYTES_PER_STEP: Final = 128 * 1024
_FIELD_BYTES_MAX: Final = 16 * 1024
_TOPICS_PER_STEP: Final = 256
_CRC_BYTES_PER_STEP: Final = 1024 * 1024

_TABLE: Final = re.compile(rb'(?<!\\)"topicConfigTable"[ \t\r\n]*+:[ \t\r\n]*+\{[ \t\r\n]*+')
_TEXT: Final = rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_FLAT: Final = rb"[^{}\"]*+(?:" + _TEXT + rb"[^{}\"]*+)*+"
# A topic: its members, of which later versions have some that are objects themselves.
_MEMBER: Final = re.compile(
    rb"[ \t\r\n]*+" + _TEXT + rb"[ \t\r\n]*+:[ \t\r\n]*+"
    rb"\{" + _FLAT + rb"(?:\{" + _FLAT + rb"\}" + _FLAT + rb")*+\}[ \t\r\n]*+([,}])",
    re.DOTALL,
)


def crc32_in_steps(data: bytes) -> Generator[None, None, int]:
    """Return what `body_crc32` does."""
    view = memoryview(data)
    value = 0
    for start in range(0, len(view), _CRC_BYTES_PER_STEP):
        if start:
            yield
        value = crc32(view[start : start + _CRC_BYTES_PER_STEP], value)
    return value & CRC32_MASK


def read_registration(
    data: bytes | None,
    *,
    compressed: bool = False,
    is_bare: bool = False,
    size_max: int = DECOMPRESSED_BYTES_MAX,
) -> Generator[None, None, RegisterBrokerBody]:
    """Read a body of REGISTER_BROKER; raise `BodyError` or `MalformedJsonError`.

    `is_bare` says that it is a `TopicConfigSerializeWrapper`, as brokers below version 37 send.
    `size_max` bounds what a compressed one may inflate to.
    """
    if compressed:
        return (yield from _read_compressed(data or b"", size_max))
    if not data or len(data) <= AT_ONCE_BYTES_MAX:
        return _read_at_once(data, is_bare=is_bare)
    topics: dict[str, TopicConfig] = {}
    table = _TABLE.search(data)
    start = len(data) if table is None else table.end()
    end = start
    lenient_bytes_max = LENIENT_BYTES_MAX if len(data) <= LENIENT_BYTES_MAX else 0
    if table is not None and data[start : start + 1] != b"}":
        is_last = False
        while not is_last:
            yield
            cut, end, is_last = _cut(data, end)
            part = TopicConfigSerializeWrapper.decode(
                b'{"topicConfigTable":{' + cut + b"}}", lenient_bytes_max=lenient_bytes_max
            )
            topics.update(part.topic_config_table)
        end -= 1
    rest = len(data) - (end - start)
    if rest > FRAME_BYTES_MAX:
        raise BodyError(
            f"{rest} bytes besides its topics, above {FRAME_BYTES_MAX}",
            body=RegisterBrokerBody.__name__,
            path="$",
        )
    yield
    frame = _read_at_once(
        data[:start] + data[end:], is_bare=is_bare, lenient_bytes_max=AT_ONCE_BYTES_MAX
    )
    wrapper = frame.topic_config_serialize_wrapper
    if wrapper.topic_config_table and topics:
        raise BodyError(
            "there are several", body=RegisterBrokerBody.__name__, path="$.topicConfigTable"
        )
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table=topics or wrapper.topic_config_table,
            data_version=wrapper.data_version,
        ),
        filter_server_list=frame.filter_server_list,
    )


def _read_at_once(
    data: bytes | None, *, is_bare: bool, lenient_bytes_max: int = LENIENT_BYTES_MAX
) -> RegisterBrokerBody:
    if not is_bare:
        return RegisterBrokerBody.decode(data, lenient_bytes_max=lenient_bytes_max)
    if not data:
        return RegisterBrokerBody()
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper.decode(
            data, lenient_bytes_max=lenient_bytes_max
        )
    )


def _cut(data: bytes, start: int) -> tuple[bytes, int, bool]:
    """Return some members of the table, where the next one begins, and whether there is none."""
    position = start
    while position - start < _CUT_BYTES:
        member = _MEMBER.match(data, position, position + _MEMBER_BYTES_MAX)
        if member is None:
            raise BodyError(
                f"byte {position} is not the beginning of a topic of at most {_MEMBER_BYTES_MAX}"
                " bytes in standard JSON",
                body=RegisterBrokerBody.__name__,
                path="$.topicConfigTable",
            )
        position = member.end()
        if member[1] == b"}":
            return data[start : position - 1], position, True
    return data[start : position - 1], position, False


# ---- the compressed form -------------------------------------------------------------------------


def _read_compressed(data: bytes, size_max: int) -> Generator[None, None, RegisterBrokerBody]:
    if not data:
        return RegisterBrokerBody()
    fields = _Fields(data, size_max)
    data_version = DataVersion.decode((yield from fields.next_bytes("data version")))
    count = yield from fields.next_integer("number of topics")
    if count < 0:
        refuse("number of topics", f"{count}")
    topics: dict[str, TopicConfig] = {}
    for number in range(count):
        line = yield from fields.next_bytes(f"topic {number}")
        topic = read_topic(line, number)
        topics[topic.topic_name] = topic
        if number % _TOPICS_PER_STEP == _TOPICS_PER_STEP - 1:
            yield
    filter_servers = read_filter_servers((yield from fields.next_bytes("filter servers")))
    # What follows is ignored, but it has to be a sound stream.
    yield from fields.skip_rest()
    return RegisterBrokerBody(
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(
            topic_config_table=topics, data_version=data_version
        ),
        filter_server_list=filter_servers,
    )


class _Fields:
    """Inflates a stream as far as the next field needs it."""

    def __init__(self, data: bytes, size_max: int) -> None:
        self._size_max = size_max
        self._stream = zlib.decompressobj()
        self._left = data
        self._plain = b""
        self._position = 0
        self._inflated = 0

    def next_integer(self, name: str) -> Generator[None, None, int]:
        raw = yield from self._take(INT32.size, f"length of {name}")
        (number,) = INT32.unpack(raw)
        return int(number)

    def next_bytes(self, name: str) -> Generator[None, None, bytes]:
        length = yield from self.next_integer(name)
        if not 0 <= length <= _FIELD_BYTES_MAX:
            refuse(name, f"length {length}, not between 0 and {_FIELD_BYTES_MAX}")
        return (yield from self._take(length, name))

    def skip_rest(self) -> Generator[None, None, None]:
        while not self._stream.eof:
            self._plain, self._position = b"", 0
            self._inflate()
            yield

    def _take(self, length: int, name: str) -> Generator[None, None, bytes]:
        while len(self._plain) - self._position < length:
            if self._stream.eof:
                refuse(name, f"the content ends at byte {self._inflated}")
            self._inflate()
            yield
        start, self._position = self._position, self._position + length
        return self._plain[start : self._position]

    def _inflate(self) -> None:
        try:
            piece = self._stream.decompress(self._left, _INFLATED_BYTES_PER_STEP)
        except zlib.error as exc:
            refuse("zlib stream", str(exc))
        self._left = self._stream.unconsumed_tail
        self._inflated += len(piece)
        if self._inflated > self._size_max:
            refuse("zlib stream", f"holds more than {self._size_max} bytes")
        if not piece and not self._left and not self._stream.eof:
            refuse("zlib stream", f"ends early, after {self._inflated} bytes of content")
        self._plain = self._plain[self._position :] + piece
        self._position = 0
