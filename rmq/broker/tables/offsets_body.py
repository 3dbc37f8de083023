"""All consumer offsets of a broker as slaves get them: the answer to 43, GET_ALL_CONSUMER_OFFSET.

To the table of RocketMQ 4.9.8 comes one member of our own, `resets`, which stock slaves ignore.
A table of a hundred thousand offsets takes a fifth of a second to read. So it is read in steps,
between which other tasks may run, and nothing is given out before all of it was sound.
"""

from collections.abc import Generator
from typing import Final

import msgspec

from rmq.errors import ProtocolError
from rmq.remoting.bodies.base import BodyError
from rmq.remoting.bodies.offsets import ConsumerOffsetSerializeWrapper
from rmq.remoting.header import Int32, Int64

LOG_END_FIELD: Final = "logEnd"
"""A field of our answers to 43 and 45: what the progress in them rests on lies before it.

It is there when the request has it, too, with whatever value.
"""
PIECE_BYTES: Final = 32 * 1024
"""Bytes per step: about a millisecond to read."""

_HEAD: Final = b'{"offsetTable":{'
_BETWEEN: Final = b'},"'
_BEHIND: Final = b'}},"'
_GUESSES_MAX: Final = 4


class SharedOffsets(ConsumerOffsetSerializeWrapper, frozen=True, kw_only=True):
    """Offsets, and which of them were moved on purpose."""

    resets: dict[str, dict[Int32, Int64]] = msgspec.field(default_factory=dict)
    """By `topic@group` and queue, a number that has grown if the offset was reset meanwhile.

    An offset without one only ever grows. A queue that has a number and no offset was forgotten.
    """


class SavedOffsets(SharedOffsets, frozen=True, kw_only=True):
    """Offsets as consumerOffset.json has them."""

    trail: dict[Int64, dict[Int32, Int64]] = msgspec.field(default_factory=dict)
    """How far transactions had been checked when the log ended at a place (`progress_trail`)."""


def decode_in_steps(
    data: bytes | None, piece_bytes: int = PIECE_BYTES
) -> Generator[None, None, SharedOffsets]:
    """Read an answer to 43; raise `BodyError` or `MalformedJsonError`.

    A long one must be written without blanks, as brokers do it, and is cut where a table ends and
    the name of the next begins. Should that be inside of a name, the halves are no JSON, because
    they have half a string: a wrong guess is never misread. Then it is cut a little later.
    """
    if data is None or len(data) <= piece_bytes:
        return SharedOffsets.decode(data)
    if not data.startswith(_HEAD):
        # RocketMQ 5 has another member in front. All at once, then.
        return SharedOffsets.decode(data)
    tables: dict[str, dict[int, int]] = {}
    start = len(_HEAD)
    # Where another member follows; too early if that is in a name, and then the last one is long.
    stop = start if data.startswith(b"}", start) else data.find(_BEHIND, start)
    if stop < 0:
        stop = len(data)
    guesses = 0
    end = data.find(_BETWEEN, start + piece_bytes, stop)
    while end >= 0:
        try:
            piece = _decoded(b"%b%b}}" % (_HEAD, data[start : end + 1]), piece_bytes)
        except ProtocolError as exc:
            guesses += 1
            if guesses > _GUESSES_MAX:
                raise _refusal(data, str(exc)) from None
            end = data.find(_BETWEEN, end + 1, stop)
        else:
            if piece.resets:
                raise _refusal(data, "another member comes before the end of the offsets")
            tables.update(piece.offset_table)
            guesses = 0
            start = end + 2
            end = data.find(_BETWEEN, start + piece_bytes, stop)
        yield
    try:
        last = _decoded(_HEAD + data[start:], piece_bytes)
    except ProtocolError as exc:
        raise _refusal(data, str(exc)) from None
    tables.update(last.offset_table)
    return SharedOffsets(offset_table=tables, resets=last.resets)


def _decoded(data: bytes, piece_bytes: int) -> SharedOffsets:
    # By the tolerant rules only what is short: they take a second per MiB.
    return SharedOffsets.decode(data, lenient_bytes_max=2 * piece_bytes + len(_HEAD))


def _refusal(data: bytes, reason: str) -> BodyError:
    return BodyError(
        f"{len(data)} bytes that are not plain: {reason}", body=SharedOffsets.__name__, path="$"
    )
