"""What all JSON bodies have in common: reading them from bytes and writing them to bytes.

A body is a frozen struct named after its class in RocketMQ 4.9.8, and its members are those of that
class. Rules for all of them:

- A member that is missing or null keeps the default. Defaults are Java's, with three exceptions:
  a collection that Java leaves null is empty here; where Java takes the present time there is 0;
  and names without which Java itself fails with a null pointer, and all of a `MessageQueue`, must
  be there.
- Unknown members are ignored, a name that an enum does not know is None.
- Java's lists and its sets of beans are tuples in the order sent. Its sets of strings and numbers
  are frozensets, which are written in the order of a Java `HashSet`.
- `MessageQueue` and integer keys of maps are read in every form Java writes or accepts.

Bodies written by stock peers are mostly standard JSON with the expected types. msgspec reads those
straight into the struct; whatever it refuses is read again by the tolerant rules, which also find
the words for what is wrong.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from typing import ClassVar, Final, Generic, Self, TypeVar

import msgspec

from rmq.errors import ProtocolError
from rmq.model import fastjson
from rmq.remoting.bodies.reading import KeyKinds, Mismatch, key_kinds_of, reader_of

LENIENT_BYTES_MAX: Final = 1024 * 1024
"""Reading leniently takes about a second per MiB, in which nothing else happens."""


REQUEST_LENIENT_BYTES_MAX: Final = 128 * 1024
"""For bodies that any client may send: reading 10 KiB leniently takes about a millisecond."""


class BodyError(ProtocolError):
    """The body of one command cannot be read as what it should be; the frame itself was sound."""

    def __init__(self, reason: str, *, body: str, path: str) -> None:
        super().__init__(f"{body}: {path}: {reason}")
        self.body = body
        self.path = path
        self.reason = reason


class Body(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Base of every JSON body, and of the beans inside them.

    Subclasses say `frozen=True, kw_only=True` again: type checkers inherit neither, msgspec only
    the first.
    """

    absent_means_default: ClassVar[bool] = False
    """Whether stock peers take a command without a body for one with all members at default."""

    @classmethod
    def decode(
        cls,
        data: bytes | None,
        *,
        lenient_bytes_max: int = LENIENT_BYTES_MAX,
        slow_bytes_max: int = sys.maxsize,
    ) -> Self:
        """Read a body; raise `MalformedJsonError`, or `BodyError` naming the member.

        A longer text than `lenient_bytes_max` must be plain JSON. Raise the bound for peers that
        are trusted, such as one's own master. One longer than `slow_bytes_max` must at least be
        standard JSON.
        """
        if not data:
            if cls.absent_means_default:
                return cls()
            raise BodyError("there is no body", body=cls.__name__, path="$")
        codec: _Codec[Self] = _codec_of(cls)
        return codec.decode(data, lenient_bytes_max, slow_bytes_max)

    def encode(self, *, standard: bool = False) -> bytes:
        """Write the body as stock peers do; `standard` is the strict JSON of route answers."""
        return fastjson.dumps(self, standard=standard)


B = TypeVar("B", bound=Body)

# A body with references or nulls may be standard JSON, but msgspec would read them as what they
# look like: members named "$ref", and None where the default is meant.
_NOT_PLAIN: Final = (b"$ref", b":null", b"[null", b",null", b" null", b"\nnull", b"\tnull")

# Java writes integer keys bare. Quoting them makes standard JSON. Should this match inside a
# string, the new quote ends the string right before a number, which is never JSON: a wrong guess is
# refused, not misread.
_BARE_KEY: Final = re.compile(rb"([{,])(-?[0-9]++)(?=:)")


class _Codec(Generic[B]):
    """Everything about one body class that can be worked out once."""

    def __init__(self, body_class: type[B]) -> None:
        self._name = body_class.__name__
        self._keys = key_kinds_of(body_class)
        self._decode = msgspec.json.Decoder(body_class).decode
        self._read = reader_of(body_class)

    def decode(self, data: bytes, lenient_bytes_max: int, slow_bytes_max: int) -> B:
        # msgspec has no text form for struct keys, so it could only read such a table when empty.
        if KeyKinds.STRUCT not in self._keys and not any(mark in data for mark in _NOT_PLAIN):
            try:
                return self._decode(data)
            except (ValueError, RecursionError):
                pass
            if KeyKinds.INTEGER in self._keys:
                try:
                    return self._decode(_BARE_KEY.sub(rb'\1"\2"', data))
                except (ValueError, RecursionError):
                    pass
        if KeyKinds.STRUCT not in self._keys and len(data) > lenient_bytes_max:
            raise BodyError(f"{len(data)} bytes that are not plain", body=self._name, path="$")
        try:
            return self._read(fastjson.loads(data, slow_bytes_max=slow_bytes_max))
        except Mismatch as mismatch:
            raise BodyError(mismatch.reason, body=self._name, path=mismatch.path) from None


@cache
def _codec_of(body_class: type[B]) -> _Codec[B]:
    return _Codec(body_class)
