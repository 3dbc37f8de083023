"""The frame decoder: bytes in, commands out. Pure.

Bytes may come in any split. A decoder holds at most one unfinished frame, and refuses it as soon as
its eight first bytes say that it will be too large or make no sense, before any memory is taken for
it. Whole frames that came before a bad one are still delivered: `take` hands them out first, and
only then is `error` set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.errors import RemoteProtocolError, to_keep
from rmq.remoting.codes import FLAG_RESPONSE, Serialization
from rmq.remoting.command import Command, decode_header
from rmq.remoting.header import READ_ERRORS
from rmq.remoting.layout import (
    FRAME_BYTES_MAX,
    FRAME_PREFIX,
    HEADER_BYTES_MAX,
    HEADER_LENGTH_MASK,
    SERIALIZATION_SHIFT,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_PREFIX_BYTES: Final = FRAME_PREFIX.size
_JSON: Final = Serialization.JSON
_SMALL_CHUNK_BYTES: Final = 4096
TLS_HANDSHAKE_BYTE: Final = 0x16
_HTTP: Final = int.from_bytes(b"HTTP", "big")
"""The frame length that a response of HTTP begins with."""
_unpack_prefix = FRAME_PREFIX.unpack_from


class FrameDecoder:
    """Cuts a byte stream into commands."""

    __slots__ = (
        "_chunks",
        "_code",
        "_data",
        "_frame_bytes_max",
        "_guess",
        "_header_bytes_max",
        "_needed",
        "_position",
        "_whole_decoders",
        "error",
        "expected_answer",
        "flags_seen",
        "held_bytes",
    )

    def __init__(
        self,
        *,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        header_bytes_max: int = HEADER_BYTES_MAX,
        whole_decoders: Mapping[int, Callable[[bytes], Command]] | None = None,
    ) -> None:
        self.error: RemoteProtocolError | None = None
        """Why the stream cannot be read further, once every frame before that point has been taken.
        """
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        # Requests of one code come in long runs. When two in a row were of a code that has a
        # `whole_header_decoder`, the next is read with it, and once more if the guess was wrong.
        self._whole_decoders = whole_decoders or {}
        self.expected_answer: Callable[[bytes], Command] | None = None
        """The `whole_header_decoder` of answers that are to come; the first other one ends it."""
        self._code = -1
        self._guess: Callable[[bytes], Command] | None = None
        self._data = b""
        self._position = 0
        # Bytes of an unfinished frame are kept as they came and joined once, when the frame is
        # complete: joining at every read would copy a large frame many times over.
        self._chunks: list[bytes] = []
        self._needed = 0
        self.flags_seen = 0
        """The flags of the commands taken last, or-ed: tells quickly that all were requests."""
        self.held_bytes = 0
        """How many bytes of an unfinished frame, or of frames not taken yet, are held."""

    def feed(self, data: bytes) -> None:
        """Add received bytes. Bytes that come after an error are not kept."""
        if self.error is not None:
            return
        self.held_bytes += len(data)
        if self._chunks:
            if len(self._chunks[-1]) < _SMALL_CHUNK_BYTES:
                # A frame that trickles in must not become millions of objects.
                self._chunks[-1] += data
            else:
                self._chunks.append(data)
            if self.held_bytes < self._needed:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        elif self._position < len(self._data):
            data = self._data[self._position :] + data
        self._data = data
        self._position = 0

    def take(self, frames_max: int) -> list[Command]:
        """Decode and return at most `frames_max` commands; none means more bytes are needed."""
        commands: list[Command] = []
        data = self._data
        position = self._position
        size = len(data)
        last_start = size - _PREFIX_BYTES
        limit = self._frame_bytes_max - 4
        needed = 4
        flags = 0
        is_answer = self.expected_answer is not None
        guess = self.expected_answer or self._guess
        try:
            while position <= last_start:
                length, mark = _unpack_prefix(data, position)
                header_start = position + _PREFIX_BYTES
                header_end = header_start + (mark & HEADER_LENGTH_MASK)
                end = position + 4 + length
                if not 4 <= length <= limit or header_end > end:
                    raise self._refuse(length, mark)
                if end > size:
                    # Only here: a header that a read brings whole costs nothing to speak of.
                    if header_end - header_start > self._header_bytes_max:
                        raise RemoteProtocolError(
                            f"header length {header_end - header_start} is over the limit"
                            f" ({self._header_bytes_max})"
                        )
                    needed = end - position
                    break
                header = data[header_start:header_end]
                if guess is None or mark > HEADER_LENGTH_MASK:
                    command = self._decode(header, mark >> SERIALIZATION_SHIFT)
                    if not is_answer:
                        guess = self._guess
                else:
                    try:
                        command = guess(header)
                        right = (
                            bool(command.flag & FLAG_RESPONSE)
                            if is_answer
                            else command.code == self._code and not command.flag & FLAG_RESPONSE
                        )
                    except READ_ERRORS:
                        right = False
                    if right:
                        # Undo what the header may have said of these, as `Command.hide` does.
                        command.binary_ext = None
                        command.serialization = _JSON
                        command.raw_header = header
                    else:
                        is_answer = False
                        self.expected_answer = None
                        command = self._decode(header, 0)
                        guess = self._guess
                command.body = data[header_end:end] if header_end < end else None
                commands.append(command)
                flags |= command.flag
                position = end
                frames_max -= 1
                if not frames_max:
                    self.flags_seen = flags
                    self._position = position
                    self.held_bytes = size - position
                    return commands
            if 4 <= size - position < _PREFIX_BYTES:
                # A length alone is enough to refuse a frame: nonsense is seen as soon as it can be.
                needed = _PREFIX_BYTES
                length = int.from_bytes(data[position : position + 4], "big", signed=True)
                if not 4 <= length <= limit:
                    raise self._refuse(length, None)
        except RemoteProtocolError as exc:
            self.error = to_keep(exc)
            position = size
        self.flags_seen = flags
        if size:
            self._hold(data, position, needed)
        return commands

    def clear(self) -> None:
        """Drop what is held: the connection has ended."""
        self._chunks.clear()
        self._data = b""
        self._position = self.held_bytes = 0

    def _decode(self, header: bytes, serialization: int) -> Command:
        command = decode_header(header, serialization)
        code = command.code
        self._guess = self._whole_decoders.get(code) if code == self._code else None
        self._code = code
        return command

    def _hold(self, data: bytes, position: int, needed: int) -> None:
        """Keep the unfinished rest until as many bytes as are needed have come."""
        rest = len(data) - position
        if rest:
            self._chunks.append(data[position:] if position else data)
        self.held_bytes = rest
        self._needed = needed
        self._data = b""
        self._position = 0

    def _refuse(self, length: int, mark: int | None) -> RemoteProtocolError:
        limit = self._frame_bytes_max - 4
        if length < 4:
            return RemoteProtocolError(f"frame length {length} is below the least possible (4)")
        if length >> 24 == TLS_HANDSHAKE_BYTE:
            return RemoteProtocolError("TLS bytes on a plain connection")
        if length == _HTTP:
            return RemoteProtocolError("HTTP bytes: is this a port for metrics or of a web server?")
        if length > limit:
            return RemoteProtocolError(f"frame length {length} is over the limit ({limit})")
        header_length = (mark or 0) & HEADER_LENGTH_MASK
        return RemoteProtocolError(
            f"header length {header_length} is over what the frame can hold ({length - 4})"
        )
