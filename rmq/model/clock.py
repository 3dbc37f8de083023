"""The time of day as RocketMQ writes it: milliseconds since 1970."""

from __future__ import annotations

import time


def system_ms() -> int:
    """Return the time of day. Paths that run once per message have this written out."""
    return time.time_ns() // 1_000_000
