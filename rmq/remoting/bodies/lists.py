"""Long JSON lists, encoded some items at a time. Pure.

An answer may list ten thousand clients. Encoding it whole takes as long as a thousand other
requests, so it is put together in steps, with other work in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model import fastjson

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

ITEMS_PER_STEP: Final = 64
"""About a millisecond's work."""


def list_in_steps(items: Iterable[object]) -> Generator[None, None, bytes]:
    """Return what `fastjson.dumps` gives for a list of these items."""
    rows: list[bytes] = []
    for number, item in enumerate(items, 1):
        rows.append(fastjson.dumps(item))
        if number % ITEMS_PER_STEP == 0:
            yield
    return b"[" + b",".join(rows) + b"]"
