"""Parts of a table: how a slave asks for them, and where the next one goes on. Pure.

The answer to 21, 43 or 201 is one frame, which holds 16 MiB; a table may be longer. A slave of our
own therefore asks for about `partBytes` bytes. An answer with `partNext` is not the end of the
table: asked again with that text as `partFrom`, the master goes on. Stock brokers know none of
these fields: a stock master gives all it has, a stock slave is given all there is.

Nothing is kept for a slave between its requests. The place where a part ends is a position in the
order in which entries were added. New ones come last, and when some before it are removed, the rest
moves up by as many: so the place also tells how many had been removed until then, and the master
goes back by those that were removed since. Whatever is in the table all the time comes at least
once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

BYTES_FIELD: Final = "partBytes"
"""Of a request: how many bytes the answer should have, one entry more or less."""
FROM_FIELD: Final = "partFrom"
"""Of a request: where the last part ended."""
NEXT_FIELD: Final = "partNext"
"""Of an answer: where the next part begins; there is none without it."""
KNOWN_FIELD: Final = "knownVersion"
"""Of a request for topics or groups: the version of the table that the slave has."""
SAME_FIELD: Final = "sameVersion"
"""Of an answer: the slave has the table as it is, so it is not sent."""

PART_BYTES: Final = 1024 * 1024
"""What our slaves ask for: a second's work of a slow link."""
PART_BYTES_MAX: Final = 4 * 1024 * 1024

_PLACE: Final = re.compile(r"([0-9]{1,19}):([0-9]{1,19}):([0-9]{1,19})(?::(-?[0-9]{1,10}))?")


class WantedPart(NamedTuple):
    """What a request asks for."""

    bytes_max: int
    place: str
    """Empty: the beginning."""


class Part(NamedTuple):
    """What it gets."""

    body: bytes
    next_place: str
    """Empty: the table ends here."""

    @property
    def fields(self) -> dict[str, str]:
        return {NEXT_FIELD: self.next_place} if self.next_place else {}


class Place(NamedTuple):
    """Where a part ends."""

    table: int
    """Names the table: after a restart the entries may be in another order."""
    removed: int
    """How many entries had been removed since the table was made."""
    position: int
    """How many came before this place."""
    queue: int | None = None
    """Within the offsets of the next entry, the last queue that was sent."""

    def text(self) -> str:
        numbers = (self.table, self.removed, self.position)
        return ":".join(str(each) for each in (*numbers, self.queue) if each is not None)


def wanted_part(fields: Mapping[str, str]) -> WantedPart | None:
    """Return which part of a table a request asks for; None: all of it.

    Raises `ValueError` if its fields make no sense.
    """
    text = fields.get(BYTES_FIELD)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= 10):
        raise ValueError(f"{BYTES_FIELD} {text[:40]!r} is not a number of bytes")
    place = fields.get(FROM_FIELD, "")
    if place and _PLACE.fullmatch(place) is None:
        raise ValueError(f"{FROM_FIELD} {place[:80]!r} is not what {NEXT_FIELD} of an answer said")
    return WantedPart(max(1, min(int(text), PART_BYTES_MAX)), place)


def place_now(place: str, table: int, removed: int) -> Place:
    """Return where a place of an earlier answer is by now that `removed` entries are removed."""
    found = _PLACE.fullmatch(place)
    if found is None or int(found[1]) != table or int(found[2]) > removed:
        return Place(table, removed, 0)
    moved = removed - int(found[2])
    if not moved:
        queue = None if found[4] is None else int(found[4])
        return Place(table, removed, int(found[3]), queue)
    return Place(table, removed, max(0, int(found[3]) - moved))
