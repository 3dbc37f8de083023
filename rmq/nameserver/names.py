"""Which names a nameserver keeps, and how it shows any text to people."""

from __future__ import annotations

import re
from typing import Final

SHOWN_CHARS_MAX: Final = 256

_control = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]").search


def problem_of_name(name: str, chars_max: int) -> str | None:
    """Say what is wrong with a name; None if it can be kept.

    RocketMQ 4.9.8 checks none. Which characters a topic or group may have is for brokers to say;
    here only those are refused that damage logs and terminals.
    """
    if len(name) > chars_max:
        return f"is longer than {chars_max} characters"
    if (not name.isascii() or not name.isprintable()) and _control(name) is not None:
        return "contains control characters"
    return None


def shown(text: str) -> str:
    """Return a text of a request as a remark or a log line shows it: as it is, up to a length."""
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."
