"""Delays from how often each of them was seen: percentiles and bins. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from rmq.spark.jobs.report.data import Delays
from rmq.spark.pages.scales import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

_BINS_MS: Final = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 60_000)


def delays_of(seen: Mapping[int, int]) -> Delays:
    """Return the delay that 50, 95 and 99 of 100 messages do not exceed, negative ones left out.

    `seen` has the number of messages by delay in ms.
    """
    known = sorted((delay, count) for delay, count in seen.items() if delay >= 0)
    total = sum(count for _, count in known)
    if not total:
        return Delays(None, None, None)
    ranks = [math.ceil(share * total / 100) for share in (50, 95, 99)]
    found: list[float] = []
    passed = 0
    for delay, count in known:
        passed += count
        while len(found) < len(ranks) and passed >= ranks[len(found)]:
            found.append(float(delay))
    return Delays(*found)


def negative_of(seen: Mapping[int, int]) -> int:
    """Return how many delays are negative."""
    return sum(count for delay, count in seen.items() if delay < 0)


def delay_bins(seen: Mapping[int, int]) -> list[tuple[str, int]]:
    """Return how many messages lie in each bin of delays; negative delays are in none."""
    totals = [0] * len(_BINS_MS)
    for delay, count in seen.items():
        if delay >= 0:
            totals[sum(delay >= edge for edge in _BINS_MS) - 1] += count
    names = ["< 1 ms", *(duration_text(edge / 1000) for edge in _BINS_MS[1:])]
    used = [index for index, total in enumerate(totals) if total]
    last = used[-1] + 1 if used else 0
    return list(zip(names[:last], totals[:last], strict=True))
