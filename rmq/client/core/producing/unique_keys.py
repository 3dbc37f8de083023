"""The ids that a client gives to messages (`UNIQ_KEY`), in the format of stock clients. Pure.

Upper-case hexadecimal of:

    4 or 16 bytes   address of this machine
    i16             process id, its low 16 bits
    i32             a number of this process (stock clients: the hash of the class loader)
    i32             milliseconds since the month began, by local time
    i16             counter

Stock tools derive the time of sending from an id to find the message, so the format is kept.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
import time
from typing import Final, final

from rmq.errors import ConfigError

_BACKWARDS_MS_MAX: Final = 1_000_000
"""A clock set back by less stays in its month: ids say the month's beginning then."""


@final
class UniqueKeys:
    """Hands out ids; no two of one object are the same, whatever the clock does.

    Two objects of one process need different `loader_hash`es, and so do two processes made by
    `fork`: see `new_unique_keys`.
    """

    __slots__ = ("_counter", "_fixed", "_month_end_ms", "_month_start_ms", "_now_ms", "_prefix")

    def __init__(self, ip: bytes, pid: int, loader_hash: int) -> None:
        """`ip` is 4 or 16 bytes."""
        if len(ip) not in (4, 16):
            raise ConfigError("ip", f"{len(ip)} bytes are no address")
        self._fixed = f"{ip.hex().upper()}{pid & 0xFFFF:04X}{loader_hash & 0xFFFFFFFF:08X}"
        self._counter = 0
        self._month_start_ms = self._month_end_ms = 0
        self._now_ms = -1
        self._prefix = ""

    def next(self, now_ms: int) -> str:
        """Return a new id."""
        if now_ms != self._now_ms:
            self._turn_to(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._prefix}{counter:04X}"

    def many(self, now_ms: int, count: int) -> list[str]:
        """Return `count` new ids at once."""
        if now_ms != self._now_ms:
            self._turn_to(now_ms)
        prefix, counter = self._prefix, self._counter
        self._counter = (counter + count) & 0xFFFF
        return [f"{prefix}{number & 0xFFFF:04X}" for number in range(counter, counter + count)]

    def _turn_to(self, now_ms: int) -> None:
        if not self._month_start_ms - _BACKWARDS_MS_MAX < now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = month_of(now_ms)
        self._now_ms = now_ms
        self._prefix = f"{self._fixed}{max(0, now_ms - self._month_start_ms):08X}"


def new_unique_keys(address: str) -> UniqueKeys:
    """Return ids for this process, which knows itself by `address`.

    What is no address is replaced by the low bytes of the clock, as stock clients do.
    """
    try:
        ip = ipaddress.ip_address(address.partition("%")[0]).packed
    except ValueError:
        ip = (time.time_ns() // 1_000_000 & 0xFFFFFFFF).to_bytes(4, "big")
    return UniqueKeys(ip, os.getpid(), secrets.randbits(32))


def month_of(now_ms: int) -> tuple[int, int]:
    """Return when the month of a time began and when it ends, by local time."""
    year, month = time.localtime(now_ms / 1000)[:2]
    return _month_start_ms(year, month), _month_start_ms(year, month + 1)


def _month_start_ms(year: int, month: int) -> int:
    # `mktime` takes month 13 for January, and works out whether it is summer time.
    return int(time.mktime((year, month, 1, 0, 0, 0, 0, 0, -1))) * 1000
