"""What a client calls itself: `ip@instance[@unit][@STREAM]`, as brokers and tools show it. Pure."""

from __future__ import annotations

from typing import Final

DEFAULT_INSTANCE: Final = "DEFAULT"
_STREAM: Final = "STREAM"


def client_id(ip: str, instance: str, *, unit: str | None = None, is_stream: bool = False) -> str:
    """Return a client id; two clients of a group with the same one get the same queues."""
    parts = [ip, instance]
    if unit:
        parts.append(unit)
    if is_stream:
        parts.append(_STREAM)
    return "@".join(parts)


def unique_instance(pid: int, nanoseconds: int) -> str:
    """Return an instance name that no other process of the machine has."""
    return f"{pid}#{nanoseconds}"
