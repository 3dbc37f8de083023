"""Moments as they are written on a command line."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

MOMENT_MAX_MS: Final = 253_402_300_799_999
"""The last moment of the year 9999."""


def parse_moment_ms(text: str) -> int:
    """Read milliseconds since 1970, or a time as ISO 8601 has it; without an offset it is local.

    Raises `ValueError` whose text says what is wrong with it.
    """
    if text.isascii() and text.isdigit():
        time_ms = int(text)
    else:
        try:
            moment = datetime.fromisoformat(text)
            time_ms = int(moment.astimezone(UTC).timestamp() * 1000)
        except (ValueError, OverflowError):
            raise ValueError(
                f"{text!r} is not milliseconds since 1970 or a time such as"
                " 2024-05-31T08:00:00+02:00"
            ) from None
    if not 0 <= time_ms <= MOMENT_MAX_MS:
        raise ValueError(f"{text!r} is no time between 1970 and 9999")
    return time_ms
