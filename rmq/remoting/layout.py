"""Byte layouts of the remoting wire, declared with construct.

Everything is big-endian. This is the reference: tests, docs and inspection tools parse with it, and
the hot path uses `struct.Struct` objects that `rmq.packing` derives from it.

    Frame      i32 length of what follows | u8 serialization, u24 header length | header | body
    Header     JSON text (serialization 0) or `BinaryHeader` (serialization 1)
"""

from __future__ import annotations

from typing import Final

from construct import (
    Array,
    BitsInteger,
    BitStruct,
    Bytes,
    Default,
    GreedyBytes,
    GreedyRange,
    Int8sb,
    Int16sb,
    Int32sb,
    Int32ub,
    Prefixed,
    Rebuild,
    Struct,
    len_,
    this,
)

from rmq.packing import bit_fields_of, fixed_prefix_of, struct_of

FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
"""Largest frame either side accepts, its four length bytes included
(`com.rocketmq.remoting.frameMaxLength`).
"""

HEADER_BYTES_MAX: Final = 0xFFFFFF
"""What 24 bits of header length can say."""

REQUEST_HEADER_BYTES_MAX: Final = 1024 * 1024
"""Of requests to a broker or nameserver. The longest that are served carry properties of 32,767
bytes, an expression of 32,768 characters or a KV value of 65,536, each of which JSON may write with
six; what is a little longer is refused with an answer, what is longer than this with the end of the
connection.
"""

Mark = BitStruct("serialization" / BitsInteger(8), "header_length" / BitsInteger(24))
"""The packed word: how the header is written, and its length."""

FramePrefix = Struct("length" / Int32sb, "mark" / Int32ub)
"""What must have arrived before anything about a frame is known; `mark` holds a `Mark`."""

Frame = Struct(
    "length" / Rebuild(Int32sb, 4 + len_(this.header) + len_(this.body)),
    "mark" / Mark,
    "header" / Bytes(this.mark.header_length),
    "body" / Bytes(this.length - 4 - this.mark.header_length),
)

ExtKey = Struct("length" / Rebuild(Int16sb, len_(this.text)), "text" / Bytes(this.length))
ExtValue = Struct("length" / Rebuild(Int32sb, len_(this.text)), "text" / Bytes(this.length))
ExtEntry = Struct("key" / ExtKey, "value" / ExtValue)
"""One header field of the binary serialization: both strings are UTF-8, length 0 means null."""

BinaryHeader = Struct(
    "code" / Int16sb,
    "language" / Int8sb,
    "version" / Int16sb,
    "opaque" / Int32sb,
    "flag" / Int32sb,
    "remark_length" / Rebuild(Int32sb, len_(this.remark)),
    "remark" / Bytes(this.remark_length),
    "ext" / Prefixed(Int32sb, GreedyRange(ExtEntry)),
)
"""The ROCKETMQ header serialization. A remark of length 0 is null."""

BatchEntry = Struct(
    "total_size" / Rebuild(Int32sb, 22 + len_(this.body) + len_(this.properties)),
    "magic" / Default(Int32sb, 0),
    "body_crc" / Default(Int32sb, 0),
    "flag" / Int32sb,
    "body_length" / Rebuild(Int32sb, len_(this.body)),
    "body" / Bytes(this.body_length),
    "properties_length" / Rebuild(Int16sb, len_(this.properties)),
    "properties" / Bytes(this.properties_length),
)
"""One message inside the body of SEND_BATCH_MESSAGE; the broker computes the CRC itself and reads
no magic.
"""

CompressedRegistration = Struct(
    "data_version" / Prefixed(Int32sb, GreedyBytes),
    "topic_count" / Rebuild(Int32sb, len_(this.topics)),
    "topics" / Array(this.topic_count, Prefixed(Int32sb, GreedyBytes)),
    "filter_servers" / Prefixed(Int32sb, GreedyBytes),
)
"""What the zlib stream of a compressed REGISTER_BROKER body holds: JSON, then topic lines, then a
JSON array.
"""

FRAME_PREFIX: Final = struct_of(FramePrefix)
BINARY_HEADER_PREFIX: Final = fixed_prefix_of(BinaryHeader)
"""code, language, version, opaque, flag, remark length."""
EXT_KEY_LENGTH: Final = fixed_prefix_of(ExtKey)
EXT_VALUE_LENGTH: Final = fixed_prefix_of(ExtValue)
EXT_LENGTH: Final = struct_of(Struct("length" / Int32sb))

_MARK = bit_fields_of(Mark)
SERIALIZATION_SHIFT: Final = _MARK["serialization"].shift
HEADER_LENGTH_MASK: Final = _MARK["header_length"].mask
