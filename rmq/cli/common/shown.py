"""Text for terminals: names that peers have chosen, times, ages."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def shown(text: str) -> str:
    """Return text without characters that a terminal would obey or could not show."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", "surrogatepass").decode()
        for character in text
    )


def time_text(ms: int) -> str:
    """Return a time in milliseconds since 1970 as people read it, in UTC."""
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=ms)
    except OverflowError:
        return str(ms)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
