"""Request 103, REGISTER_BROKER: everything a broker tells a nameserver, in two forms.

The plain form is JSON like any other body. The compressed form is a zlib stream (level 9) of the
layout `CompressedRegistration`:

    i32 length, DataVersion as JSON
    i32 number of topics, then for each: i32 length, text `name read write perm filterType`
    i32 length, JSON array of filter servers

Bodies of nameservers' callers are read by `registration_steps`, whatever their size.

`topic_sys_flag` and `order` of a topic have no place in the compressed form and arrive as defaults.
Bytes after the last field, and after the end of the stream, are ignored, as Java does.
"""

from __future__ import annotations

import re
import zlib
from typing import ClassVar, Final, NoReturn

import construct
import msgspec

from rmq.errors import LocalProtocolError, MalformedJsonError
from rmq.model import fastjson
from rmq.model.crc import crc32
from rmq.model.limits import INT32_MAX, INT32_MIN
from rmq.packing import struct_of
from rmq.remoting.bodies.base import Body, BodyError
from rmq.remoting.bodies.topics import (
    TopicConfig,
    TopicConfigSerializeWrapper,
    TopicFilterType,
)
from rmq.remoting.layout import CompressedRegistration

CRC32_MASK: Final = 0x7FFFFFFF
DECOMPRESSED_BYTES_MAX: Final = 32 * 1024 * 1024
"""How much a compressed registration may hold; zlib could make a frame a thousandfold."""


def body_crc32(data: bytes) -> int:
    """Return the header field `bodyCrc32` for a body; there 0 means that it is not checked."""
    return crc32(data) & CRC32_MASK


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """The body of REGISTER_BROKER. A broker that sends none registers no topics, at version 0."""

    absent_means_default: ClassVar[bool] = True

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = msgspec.field(
        default_factory=TopicConfigSerializeWrapper
    )
    filter_server_list: tuple[str, ...] = ()

    def encode_compressed(self) -> bytes:
        """Write the compressed form; raise `LocalProtocolError` for a topic it cannot carry."""
        wrapper = self.topic_config_serialize_wrapper
        topics = [_topic_line(topic) for topic in wrapper.topic_config_table.values()]
        parts = [*_prefixed(wrapper.data_version.encode()), INT32.pack(len(topics))]
        for topic in topics:
            parts += _prefixed(topic)
        parts += _prefixed(fastjson.dumps(self.filter_server_list))
        return zlib.compress(b"".join(parts), zlib.Z_BEST_COMPRESSION)


# All lengths of the layout are of the type of its topic count.
INT32: Final = struct_of(construct.Struct(CompressedRegistration.topic_count))


def _prefixed(field: bytes) -> tuple[bytes, bytes]:
    return INT32.pack(len(field)), field


def refuse(path: str, reason: str) -> NoReturn:
    """Say what is wrong with a compressed body."""
    raise BodyError(reason, body=f"compressed {RegisterBrokerBody.__name__}", path=path)


_TOPIC_LINE: Final = re.compile(
    r"([^ ]*) ([+-]?[0-9]{1,10}) ([+-]?[0-9]{1,10}) ([+-]?[0-9]{1,10}) (SINGLE_TAG|MULTI_TAG) *"
)


def _topic_line(topic: TopicConfig) -> bytes:
    filter_type = topic.topic_filter_type
    if " " in topic.topic_name or filter_type is None:
        raise LocalProtocolError(
            f"topic {topic.topic_name!r} with filter type {filter_type} has no compressed form"
        )
    sizes = f"{topic.read_queue_nums} {topic.write_queue_nums} {topic.perm}"
    return f"{topic.topic_name} {sizes} {filter_type.name}".encode("utf-8", "replace")


def read_topic(line: bytes, number: int) -> TopicConfig:
    """Read a topic of a compressed body, the `number`-th one."""
    fields = _TOPIC_LINE.fullmatch(line.decode("utf-8", "replace"))
    if fields is None:
        refuse(f"topic {number}", "is not `name read write perm filterType`")
    read_queues, write_queues, perm = (int(fields[group]) for group in (2, 3, 4))
    if not all(INT32_MIN <= value <= INT32_MAX for value in (read_queues, write_queues, perm)):
        refuse(f"topic {number}", "has a number of more than 32 bits")
    return TopicConfig(
        topic_name=fields[1],
        read_queue_nums=read_queues,
        write_queue_nums=write_queues,
        perm=perm,
        topic_filter_type=TopicFilterType[fields[5]],
    )


def read_filter_servers(text: bytes) -> tuple[str, ...]:
    """Read the last field of a compressed body."""
    try:
        servers = fastjson.loads(text)
    except MalformedJsonError as exc:
        refuse("filter servers", str(exc))
    if not isinstance(servers, list):
        refuse("filter servers", "are not a list")
    addresses = [server for server in servers if isinstance(server, str)]
    if len(addresses) < len(servers):
        refuse("filter servers", "are not all text")
    return tuple(addresses)
