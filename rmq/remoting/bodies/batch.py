"""The body of request 320, SEND_BATCH_MESSAGE: messages one after the other.

    i32 total size of the entry, this field included
    i32 magic, 0
    i32 CRC of the body, 0; brokers compute it themselves
    i32 flag of the application
    i32 length, body
    i16 length, properties (as text, not read here)

The layout is `BatchEntry`; the structs used here are derived from it.
"""

from __future__ import annotations

import struct
import sys
from typing import TYPE_CHECKING, Final, NamedTuple

import construct

from rmq.errors import LocalProtocolError
from rmq.packing import fixed_prefix_of, struct_of
from rmq.remoting.bodies.base import BodyError
from rmq.remoting.layout import BatchEntry

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

_PREFIX: Final = fixed_prefix_of(BatchEntry)
_PROPERTIES_LENGTH: Final = struct_of(construct.Struct(BatchEntry.properties_length))
_ENTRY_BYTES_MIN: Final = _PREFIX.size + _PROPERTIES_LENGTH.size


class BatchMessage(NamedTuple):
    """What a batch says about one message; everything else is the same for all of them."""

    flag: int
    body: bytes
    properties: bytes


class BatchError(BodyError):
    """A batch is not a row of whole entries."""

    def __init__(self, reason: str, *, entry: int, position: int) -> None:
        super().__init__(reason, body="batch", path=f"entry {entry} at byte {position}")
        self.entry = entry
        """Number of the entry, the first being 0."""
        self.position = position
        """Where the entry begins."""


def decode_batch(data: bytes | None) -> list[BatchMessage]:
    """Read a batch of at least one message; raise `BatchError` if any length is wrong."""
    messages: list[BatchMessage] = []
    _decode_some(data, 0, messages, sys.maxsize)
    return messages


def decode_batch_in_steps(
    data: bytes | None, at_once: int
) -> Generator[None, None, list[BatchMessage]]:
    """Do what `decode_batch` does, `at_once` messages between two yields."""
    messages: list[BatchMessage] = []
    position = _decode_some(data, 0, messages, at_once)
    while data is not None and position < len(data):
        yield
        position = _decode_some(data, position, messages, at_once)
    return messages


def _decode_some(
    data: bytes | None, start: int, messages: list[BatchMessage], count_max: int
) -> int:
    """Read the messages that begin at `start`; return where the next one begins."""
    if not data:
        raise BatchError("there is no body", entry=0, position=0)
    unpack_prefix, unpack_length = _PREFIX.unpack_from, _PROPERTIES_LENGTH.unpack_from
    # Half the time of the class's own constructor, which reads its arguments by name.
    new_message = tuple.__new__
    end, stop = len(data), len(messages) + count_max
    while start < end and len(messages) < stop:
        body_start = start + _PREFIX.size
        try:
            total_size, _, _, flag, body_length = unpack_prefix(data, start)
            body_end = body_start + body_length
            if body_end < body_start:
                raise BatchError(f"body length {body_length}", entry=len(messages), position=start)
            (properties_length,) = unpack_length(data, body_end)
        except struct.error:
            raise BatchError(
                f"needs {_needed(data, start)} bytes, {end - start} are left",
                entry=len(messages),
                position=start,
            ) from None
        properties_start = body_end + _PROPERTIES_LENGTH.size
        next_start = properties_start + properties_length
        if not properties_start <= next_start <= end:
            raise BatchError(
                f"properties length {properties_length} with {end - properties_start} bytes left",
                entry=len(messages),
                position=start,
            )
        if total_size != next_start - start:
            raise BatchError(
                f"total size {total_size}, but the fields make {next_start - start}",
                entry=len(messages),
                position=start,
            )
        messages.append(
            new_message(
                BatchMessage, (flag, data[body_start:body_end], data[properties_start:next_start])
            )
        )
        start = next_start
    return start


def encode_batch(messages: Iterable[BatchMessage]) -> bytes:
    """Write a batch; raise `LocalProtocolError` for a message the layout cannot hold."""
    parts: list[bytes] = []
    for flag, body, properties in messages:
        total_size = _ENTRY_BYTES_MIN + len(body) + len(properties)
        try:
            prefix = _PREFIX.pack(total_size, 0, 0, flag, len(body))
            properties_length = _PROPERTIES_LENGTH.pack(len(properties))
        except struct.error as exc:
            raise LocalProtocolError(
                f"a batch cannot hold flag {flag}, {len(body)} bytes of body"
                f" and {len(properties)} bytes of properties: {exc}"
            ) from None
        parts += (prefix, body, properties_length, properties)
    return b"".join(parts)


def _needed(data: bytes, start: int) -> int:
    """Return the least size an entry must have by what is there of it."""
    if len(data) - start < _PREFIX.size:
        return _ENTRY_BYTES_MIN
    *_, body_length = _PREFIX.unpack_from(data, start)
    return _ENTRY_BYTES_MIN + int(body_length)
