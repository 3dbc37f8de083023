r"""Message properties: the text `name 0x01 value` pairs joined by `0x02`, as RocketMQ stores it.

Reading follows RocketMQ 4.9.8 MessageDecoder: a pair needs a name and a value, both not empty, else
it is dropped; the last of several pairs with one name counts; a trailing 0x02, which older writers
left, means nothing. Bytes that are not UTF-8 read as U+FFFD, as many of them as Java makes.

A `PropertyFinder` reads one property without parsing the rest: dispatch reads three of them per
message.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME_VALUE: Final = b"\x01"
PAIR: Final = b"\x02"

KEYS: Final = "KEYS"
TAGS: Final = "TAGS"
DELAY: Final = "DELAY"
UNIQ_KEY: Final = "UNIQ_KEY"
WAIT: Final = "WAIT"
CLUSTER: Final = "CLUSTER"
REPLY_TO_CLIENT: Final = "REPLY_TO_CLIENT"
REAL_TOPIC: Final = "REAL_TOPIC"
REAL_QUEUE_ID: Final = "REAL_QID"
TRAN_MSG: Final = "TRAN_MSG"

KEY_SEPARATOR: Final = " "


_LONE_SURROGATE: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]?")


def decode_text(data: bytes) -> str:
    """Decode UTF-8 as Java does, which hashes what it gets: the tag codes depend on it."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        # The two agree on how many U+FFFD malformed bytes become, except for half a surrogate pair:
        # one in Java, one per byte in Python. 0xFF stands for nothing and becomes one in both.
        return _LONE_SURROGATE.sub(b"\xff", data).decode("utf-8", "replace")


def decode_properties(data: bytes) -> dict[str, str]:
    """Return the properties in `data`, by name."""
    properties: dict[str, str] = {}
    for pair in decode_text(data).split("\x02"):
        name, separator, value = pair.partition("\x01")
        if separator and name and value:
            properties[name] = value
    return properties


def encode_properties(properties: Mapping[str, str]) -> bytes:
    """Write properties in the order given; empty names and values have no form and are left out."""
    return "\x02".join(
        f"{name}\x01{value}" for name, value in properties.items() if name and value
    ).encode("utf-8", "replace")


class PropertyFinder:
    """Finds the value of one property in encoded properties."""

    __slots__ = ("_first", "_inner", "_name", "_skip")

    def __init__(self, name: str) -> None:
        self._name = name
        self._first = name.encode() + NAME_VALUE
        self._inner = PAIR + self._first
        self._skip = len(self._inner)

    def __call__(self, data: bytes) -> bytes:
        """Return the value, empty if there is none."""
        inner = data.rfind(self._inner)
        if inner >= 0:
            start = inner + self._skip
        elif data.startswith(self._first):
            start = self._skip - 1
        else:
            return b""
        end = data.find(PAIR, start)
        value = data[start:] if end < 0 else data[start:end]
        if value:
            return value
        # A pair without a value does not count, so an earlier one of the same name may.
        return decode_properties(data).get(self._name, "").encode("utf-8", "replace")


find_keys: Final = PropertyFinder(KEYS)
find_tags: Final = PropertyFinder(TAGS)
find_delay: Final = PropertyFinder(DELAY)
find_unique_key: Final = PropertyFinder(UNIQ_KEY)
