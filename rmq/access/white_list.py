"""Addresses that need no signature: the forms that RocketMQ 4.9.8 knows. Pure.

| form | matches |
| --- | --- |
| nothing | no address |
| `*`, `*.*.*.*`, `*:*:*:*:*:*:*:*` | every address |
| `10.0.0.1`, `2001:db8::1` | this one |
| `10.0.0.1,10.0.0.2` | each of the list |
| `10.0.0.{1,2}`, `2001:db8::{1,2}` | each of them |
| `10.0.0.*`, `10.0.1-5.*`, `10.0.0.1-20` | every number, or those of the range |
| `2001:db8::5:*`, `2001:db8::1-20`, `2001:db8::1-20:*` | the same in the last groups |

Where a form can be read in two ways, the one that matches less is taken: 4.9.8 ignores what stands
behind the first `*` or range (`10.*.0.1` is all of 10 there), and fills `::` with fewer zeros when
it stands right before the last group.
"""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import Final, TypeAlias, final

Address: TypeAlias = tuple[int, ...]
"""The four numbers of an IPv4 address, or the eight groups of an IPv6 address."""
_Pattern: TypeAlias = tuple[tuple[int, int], ...]
"""The least and the greatest number that each part may be."""

_EVERY: Final = ("*", "*.*.*.*", "*:*:*:*:*:*:*:*")
_BRACES: Final = re.compile(r"([^{}]*)\{([^{}]*)\}")
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_GROUP: Final = re.compile(r"[0-9a-fA-F]{1,4}", re.ASCII)
_BYTE_MAX: Final = 0xFF
_GROUP_MAX: Final = 0xFFFF
_GROUPS: Final = 8


@final
class WhiteList:
    """The addresses that one entry of a file names."""

    __slots__ = ("_patterns", "matches_every", "text")

    def __init__(self, text: str | None) -> None:
        """Read an entry; raise ValueError with what a stock broker says of it."""
        self.text = text or ""
        self.matches_every = self.text in _EVERY
        self._patterns: tuple[_Pattern, ...] = ()
        if self.text.strip() and not self.matches_every:
            self._patterns = tuple(_read(self.text))

    @property
    def is_empty(self) -> bool:
        """Whether no address matches."""
        return not (self.matches_every or self._patterns)

    def matches(self, address: Address | None) -> bool:
        """Return whether an address is named; None is what no entry but `*` matches."""
        if self.matches_every:
            return True
        if address is None or not self._patterns:
            return False
        return any(
            len(pattern) == len(address)
            and all(low <= each <= high for each, (low, high) in zip(address, pattern, strict=True))
            for pattern in self._patterns
        )


@lru_cache(maxsize=4096)
def address_of(host: str) -> Address | None:
    """Return the numbers of an address; None for what is none."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return None
    packed = address.packed
    if isinstance(address, ipaddress.IPv4Address):
        return tuple(packed)
    return tuple(int.from_bytes(packed[at : at + 2], "big") for at in range(0, 16, 2))


def _read(text: str) -> list[_Pattern]:
    if text.endswith("}"):
        return _braces(text)
    if "," in text:
        return [_single(part) for part in text.split(",") if part]
    if "*" in text or "-" in text:
        return [_ipv6_range(text) if ":" in text else _ipv4_range(text)]
    return [_single(text)]


def _single(text: str) -> _Pattern:
    address = None if "%" in text else address_of(text)
    if address is None:
        raise ValueError(f"Netaddress examine Exception netaddress is {text}")
    return tuple((number, number) for number in address)


def _braces(text: str) -> list[_Pattern]:
    match = _BRACES.fullmatch(text)
    ends = [end for end in match[2].split(",") if end] if match else []
    if match is None or not ends or not match[1].endswith((".", ":")):
        raise _wrong(text)
    return [_single(match[1] + end) for end in ends]


def _ipv4_range(text: str) -> _Pattern:
    parts = [part.strip() for part in text.split(".")]
    if len(parts) != 4:
        raise _wrong(text)
    return tuple(_part(part, _NUMBER, 10, _BYTE_MAX, text) for part in parts)


def _ipv6_range(text: str) -> _Pattern:
    head, _, last = text.rpartition(":")
    ends = [last]
    if last == "*" and "-" in head.rpartition(":")[2]:
        head, _, before = head.rpartition(":")
        ends.insert(0, before)
    if not ("*" in last or "-" in last):
        raise _wrong(text)
    tail = [_part(each, _GROUP, 16, _GROUP_MAX, text) for each in ends]
    start = _groups(head, _GROUPS - len(tail), text)
    rest = _GROUPS - len(start) - len(tail)
    # Fewer groups without `::` are a prefix, as in 4.9.8.
    return (*((group, group) for group in start), *tail, *[(0, _GROUP_MAX)] * rest)


def _groups(text: str, count: int, whole: str) -> list[int]:
    """Return the groups before the range: all `count` of them if there is a `::`."""
    left, gap, right = f"{text}:".partition("::") if text.endswith(":") else text.partition("::")
    before = [_group(each, whole) for each in left.split(":")] if left else []
    after = [_group(each, whole) for each in right.split(":")] if right else []
    missing = count - len(before) - len(after)
    if missing < (1 if gap else 0) or not (before or gap):
        raise _wrong(whole)
    return [*before, *[0] * missing, *after] if gap else before


def _group(text: str, whole: str) -> int:
    if not _GROUP.fullmatch(text):
        raise _wrong(whole)
    return int(text, 16)


def _part(
    text: str, number: re.Pattern[str], base: int, greatest: int, whole: str
) -> tuple[int, int]:
    """Read `*`, one number, or a range."""
    if text == "*":
        return 0, greatest
    start, dash, end = text.partition("-")
    end = end if dash else start
    if number.fullmatch(start) and number.fullmatch(end):
        low, high = int(start, base), int(end, base)
        if low <= high <= greatest:
            return low, high
    raise _wrong(whole)


def _wrong(text: str) -> ValueError:
    return ValueError(f"Netaddress examine scope Exception netaddress is {text}")
