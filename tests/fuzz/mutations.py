"""Ways to damage a frame.

Half of the art is to damage only one thing: a frame whose lengths are wrong is refused at once, so
most mutations change header or body and then make the lengths right again.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from typing import Final

from rmq.remoting.layout import FRAME_PREFIX, HEADER_LENGTH_MASK

_DEPTHS: Final = (70, 400, 990, 3000)

VALUES: Final = (
    *(b"null", b"true", b"false", b"0", b"-1", b"1.5", b"1e3", b"1e999", b"9" * 20, b"9" * 400),
    *(b'""', b"''", b"[]", b"{}", b"[1]", b'{"a":1}', b"{1:2}", b"{{}:1}", b'["x",null,{}]'),
    *(b'"true"', b'"12"', b'"-1"', b'"null"', b'"GO"', b'"\xff\xfe"', b'"\xed\xa0\x80"'),
    *(rb'"\ud800"', rb'"\udc00\ud800"', rb'"\ud83d\ude00"', rb'"\x41\0"', b'"a\x01b\x02"'),
    *(b'{"$ref":"%b"}' % path for path in (b"$", b"@", b"..", b"$.extFields", b"$.remark", b"$.x")),
    *(b"[" * depth + b"]" * depth for depth in _DEPTHS),
    *(b'{"a":' * depth + b"1" + b"}" * depth for depth in _DEPTHS),
)
TOKENS: Final = (
    *VALUES,
    *(b"{", b"}", b"[", b"]", b'"', b"'", b",", b":", b"\\", b"\0", b"\xff", b"/*", b"//", b"x"),
    *(b"NaN", b"undefined", b"0x10", b"1L", rb'"\u12"', b"[" * 3000, b"9" * 5000),
    *(b'"code"', b'"flag"', b'"opaque"', b'"version"', b'"remark"', b'"language"', b'"extFields"'),
    *(b'"~body"', b'"~binaryExt"', b'"~serialization"'),
)
MEMBERS: Final = (
    b'"~body":"AAAA",',
    b'"~binaryExt":{"topic":"x"},',
    b'"~serialization":1,',
    b'"extFields":{"topic":"x"},',
    b'"extFields":null,',
    b'"opaque":"7",',
    b'"language":3,',
    b'"remark":{"$ref":"$"},',
    b'"remark":["xxxxxxxx",{"$ref":"$.remark[0]"}],',
    b",,",
)
NUMBERS: Final = (
    *(0, 1, 2, 3, 4, 8, 127, 128, 255, 256, 2**15 - 1, 2**15, 2**16 - 1, 2**24 - 1, 2**24),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**63 - 1, 2**63, 2**64, 10**30),
)
NUMBER_TEXTS: Final = (
    *(b"%d" % number for number in NUMBERS),
    *(b"-%d" % number for number in NUMBERS),
    *(
        b"",
        b"-",
        b"007",
        b"+5",
        b" 1",
        b"1 ",
        b"1e5",
        b"1.0",
        b"0.5",
        b"\xd9\xa1",
        b"1_0",
        b"9" * 400,
    ),
)

_TOKEN: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|-?[0-9]++|true|false|null|[{}\[\],:]', re.DOTALL)
_VALUE: Final = re.compile(rb'(?<=:)(?:"(?:[^"\\]|\\.)*+"|-?[0-9]++|true|false|null)', re.DOTALL)
_DIGITS: Final = re.compile(rb"-?[0-9]++")

_Mutation = Callable[[bytes, random.Random], bytes]
_Parts = tuple[int, bytes, bytes]


def mutated(frame: bytes, other: bytes, chance: random.Random) -> bytes:
    """Return a frame with something wrong; `other` is a second one to take pieces from."""
    if chance.random() < 0.2:
        frame = _applied(_ON_FRAMES, frame, chance)
        return _spliced(frame, other, chance) if chance.random() < 0.2 else frame
    mark, header, body = _parts(frame)
    if body and chance.random() < 0.35:
        body = _applied(_ON_TEXTS, body, chance)
    else:
        is_binary = mark > HEADER_LENGTH_MASK
        header = _applied(_ON_BINARY if is_binary else _ON_TEXTS, header, chance)
    if chance.random() < 0.1:
        mark, header, body = _exchanged((mark, header, body), _parts(other), chance)
    mark = mark & ~HEADER_LENGTH_MASK | len(header)
    return FRAME_PREFIX.pack(4 + len(header) + len(body), mark) + header + body


def mutated_text(data: bytes, chance: random.Random) -> bytes:
    """Return a text, mostly JSON, with something wrong."""
    return _applied(_ON_TEXTS, data, chance)


def mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """Return bytes of any kind with something wrong."""
    return _applied(_ON_BYTES, data, chance)


def _applied(mutations: Sequence[_Mutation], data: bytes, chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 1, 2, 4))):
        data = chance.choice(mutations)(data, chance)
    return data


def _parts(frame: bytes) -> _Parts:
    _, mark = FRAME_PREFIX.unpack_from(frame)
    end = 8 + (mark & HEADER_LENGTH_MASK)
    return mark, frame[8:end], frame[end:]


def _exchanged(parts: _Parts, others: _Parts, chance: random.Random) -> _Parts:
    """Take the mark, the header or the body from the other frame."""
    mark, header, body = parts
    match chance.randrange(3):
        case 0:
            return others[0], header, body
        case 1:
            return mark, others[1], body
        case _:
            return mark, header, others[2]


def _spliced(frame: bytes, other: bytes, chance: random.Random) -> bytes:
    return frame[: chance.randrange(len(frame) + 1)] + other[chance.randrange(len(other)) :]


def _span(data: bytes, chance: random.Random) -> tuple[int, int]:
    start = chance.randrange(len(data) + 1)
    return start, min(len(data), start + chance.choice((1, 1, 2, 4, 8, 30, 200)))


def _flip_bits(data: bytes, chance: random.Random) -> bytes:
    if not data:
        return b"\x01"
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _truncate(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _remove(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[end:]


def _repeat(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + data[start:end] * chance.choice((2, 2, 3, 20)) + data[end:]


def _move(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    rest = data[:start] + data[end:]
    place = chance.randrange(len(rest) + 1)
    return rest[:place] + data[start:end] + rest[place:]


def _overwrite(data: bytes, chance: random.Random) -> bytes:
    start, end = _span(data, chance)
    return data[:start] + chance.randbytes(end - start) + data[end:]


def _set_integer(data: bytes, chance: random.Random) -> bytes:
    """Put a number where a length may be: any two or four bytes."""
    size = chance.choice((2, 4, 4))
    number = chance.choice((*NUMBERS[:20], len(data), len(data) - 1)) * chance.choice((1, 1, -1))
    start = chance.randrange(max(1, len(data) - size))
    packed = (number & (1 << 8 * size) - 1).to_bytes(size, "big")
    return data[:start] + packed + data[start + size :]


def _set_frame_length(data: bytes, chance: random.Random) -> bytes:
    around = len(data) - 4 + chance.randrange(-9, 10)
    length = chance.choice((around, around, *NUMBERS[:18])) * chance.choice((1, 1, 1, -1))
    return (length & 0xFFFFFFFF).to_bytes(4, "big") + data[4:]


def _set_serialization(data: bytes, chance: random.Random) -> bytes:
    return data[:4] + bytes((chance.choice((0, 1, 1, 2, 127, 128, 255)),)) + data[5:]


def _set_header_length(data: bytes, chance: random.Random) -> bytes:
    length = chance.choice((0, 1, len(data) - 8, len(data) - 7, chance.randrange(400), 2**24 - 1))
    return data[:5] + (length & 0xFFFFFF).to_bytes(3, "big") + data[8:]


def _edit_token(data: bytes, chance: random.Random) -> bytes:
    """Replace, remove or double one token of JSON, or put another in front of it."""
    tokens = [match.span() for match in _TOKEN.finditer(data)]
    if not tokens:
        return data + chance.choice(TOKENS)
    start, end = chance.choice(tokens)
    match chance.randrange(5):
        case 0 | 1:
            replacement = chance.choice(TOKENS)
        case 2:
            replacement = b""
        case 3:
            replacement = data[start:end] * 2
        case _:
            replacement = chance.choice(TOKENS) + data[start:end]
    return data[:start] + replacement + data[end:]


def _edit_value(data: bytes, chance: random.Random) -> bytes:
    """Replace the value of one member by one of another kind; what was JSON still is."""
    values = [match.span() for match in _VALUE.finditer(data)]
    if not values:
        return data
    start, end = chance.choice(values)
    return data[:start] + chance.choice(VALUES) + data[end:]


def _exchange_tokens(data: bytes, chance: random.Random) -> bytes:
    tokens = [match.span() for match in _TOKEN.finditer(data)]
    if len(tokens) < 2:
        return data
    (a, b), (c, d) = sorted(chance.sample(tokens, 2))
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def _insert_member(data: bytes, chance: random.Random) -> bytes:
    openings = [match.end() for match in re.finditer(rb"\{", data)]
    place = chance.choice(openings) if openings else 0
    return data[:place] + chance.choice(MEMBERS) + data[place:]


def _edit_number(data: bytes, chance: random.Random) -> bytes:
    numbers = [match.span() for match in _DIGITS.finditer(data)]
    if not numbers:
        return data
    start, end = chance.choice(numbers)
    return data[:start] + chance.choice(NUMBER_TEXTS) + data[end:]


_ON_BYTES: Final[tuple[_Mutation, ...]] = (
    _flip_bits,
    _truncate,
    _remove,
    _repeat,
    _move,
    _overwrite,
    _set_integer,
)
_ON_FRAMES: Final = (*_ON_BYTES, _set_frame_length, _set_serialization, _set_header_length)
_ON_BINARY: Final = (*_ON_BYTES, _set_integer, _set_integer, _edit_number)
_ON_TEXTS: Final = (
    *_ON_BYTES,
    *(_edit_value, _edit_value, _edit_value, _edit_value, _edit_value),
    *(_edit_token, _edit_token, _exchange_tokens, _insert_member, _edit_number, _edit_number),
)
