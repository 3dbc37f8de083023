"""How fast a store takes and gives messages, as RocketMQ 4.9.8 StoreStatsService counts it.

Pure but for `run`. Totals are sampled every second; rates are over the last 10, 60 and 600 of
those samples. How long storing took is counted into classes that are shown once a minute is over,
the figures of the last whole minute.

Callers add up what one batch brought and count once.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from datetime import date, datetime
from itertools import accumulate
from typing import Final, NamedTuple, final

import trio

SAMPLE_INTERVAL_MS: Final = 1000
RATE_SPANS_S: Final = (10, 60, 600)
_SAMPLES_MAX: Final = RATE_SPANS_S[-1] + 1
_LATENCY_SPAN_MS: Final = 60_000

TIME_CLASSES: Final = (
    "[<=0ms]",
    "[0~10ms]",
    "[10~50ms]",
    "[50~100ms]",
    "[100~200ms]",
    "[200~500ms]",
    "[500ms~1s]",
    "[1~2s]",
    "[2~3s]",
    "[3~4s]",
    "[4~5s]",
    "[5~10s]",
    "[10s~]",
)
_CLASS_ENDS_MS: Final = (1, 10, 50, 100, 200, 500, 1000, 2000, 3000, 4000, 5000, 10_000)

# The classes that percentiles are found by: as (width, how many), from 0 ms on.
_FINE_WIDTHS: Final = ((1, 20), (2, 15), (5, 10), (10, 10), (50, 6), (100, 5), (1000, 9))


_FINE_TOPS_MS: Final = tuple(
    accumulate(width for width, count in _FINE_WIDTHS for _ in range(count))
)
"""Inclusive upper bounds, the last one 10 s; one class more is for all above."""


class Totals(NamedTuple):
    """What was counted since the start."""

    put: int = 0
    """Messages stored."""
    found: int = 0
    """Reads that brought messages."""
    missed: int = 0
    """Reads that brought none."""
    transferred: int = 0
    """Messages read."""


class Mornings(NamedTuple):
    """Totals of messages at the last two midnights, local time; 0 before there was one."""

    put_yesterday: int = 0
    put_today: int = 0
    get_yesterday: int = 0
    get_today: int = 0


@final
class StoreStats:
    """The counts of one store."""

    def __init__(self, boot_ms: int) -> None:
        self.boot_ms = boot_ms
        self.put_count = 0
        self.put_size = 0
        self.put_failures = 0
        self.put_ms_max: float = 0
        self.get_found = 0
        self.get_missed = 0
        self.get_count = 0
        self.get_count_from_disk = 0
        """Those of them that lay so far back that they likely had left memory."""
        self.get_ms_max: float = 0
        self.mornings = Mornings()
        self._samples: deque[tuple[int, Totals]] = deque(maxlen=_SAMPLES_MAX)
        self._classes = [0] * len(TIME_CLASSES)
        self._fine = [0] * (len(_FINE_TOPS_MS) + 1)
        self._last_classes = tuple(self._classes)
        self._last_fine = tuple(self._fine)
        self._minute_began_ms: int | None = None
        self._day: date | None = None

    # --- counting --------------------------------------------------------------------------

    def put(self, count: int, size: int) -> None:
        """Count messages that are in the log."""
        self.put_count += count
        self.put_size += size

    def put_took(self, elapsed_ms: float, times: int = 1) -> None:
        """Count how long storing took; a batch is one time."""
        if elapsed_ms < 1:
            # As good as always, and four times as fast.
            self._classes[0] += times
            self._fine[0] += times
        else:
            self._classes[bisect_right(_CLASS_ENDS_MS, elapsed_ms)] += times
            self._fine[bisect_left(_FINE_TOPS_MS, elapsed_ms)] += times
        if elapsed_ms > self.put_ms_max:
            self.put_ms_max = elapsed_ms

    def put_failed(self, times: int = 1) -> None:
        """Count sends that did not end well."""
        self.put_failures += times

    def get(self, count: int, elapsed_ms: float = 0) -> None:
        """Count one read of a queue and the messages it brought."""
        if count:
            self.get_found += 1
            self.get_count += count
        else:
            self.get_missed += 1
        if elapsed_ms > self.get_ms_max:
            self.get_ms_max = elapsed_ms

    # --- figures ---------------------------------------------------------------------------

    @property
    def totals(self) -> Totals:
        return Totals(self.put_count, self.get_found, self.get_missed, self.get_count)

    def rate(self, span_s: int) -> RatesPerSecond | None:
        """Return the rates over the last samples, None while there are too few of them."""
        if len(self._samples) <= span_s:
            return None
        first_ms, first = self._samples[-(span_s + 1)]
        last_ms, last = self._samples[-1]
        elapsed_ms = last_ms - first_ms
        if elapsed_ms <= 0:
            return RatesPerSecond()
        return RatesPerSecond(
            *((end - begin) / elapsed_ms * 1000 for begin, end in zip(first, last, strict=True))
        )

    @property
    def put_times_by_class(self) -> tuple[int, ...]:
        """How many sends of the last whole minute took how long, as `TIME_CLASSES` names it."""
        return self._last_classes

    def put_ms_at(self, quantile: float) -> float:
        """Return the time within which that part of the last whole minute's sends was stored.

        Times are spread evenly over their class; above 10 s all are taken for 10 s.
        """
        wanted = int(sum(self._last_fine) * quantile)
        below_ms = passed = 0
        for top_ms, count in zip(_FINE_TOPS_MS, self._last_fine, strict=False):
            if wanted <= passed + count:
                return below_ms + ((top_ms - below_ms) * (wanted - passed) / count if count else 0)
            passed += count
            below_ms = top_ms
        return float(below_ms)

    # --- sampling --------------------------------------------------------------------------

    def sample(self, now_ms: int, day: date) -> None:
        """Note the totals; to be called every second. Only differences of `now_ms` matter.

        `day` is today's date: when it turns, the totals are those of this morning.
        """
        self._samples.append((now_ms, self.totals))
        if self._minute_began_ms is None:
            self._minute_began_ms = now_ms
        elif now_ms >= self._minute_began_ms + _LATENCY_SPAN_MS:
            self._minute_began_ms = now_ms
            self._last_classes, self._classes = tuple(self._classes), [0] * len(self._classes)
            self._last_fine, self._fine = tuple(self._fine), [0] * len(self._fine)
        if self._day is None:
            self._day = day
        elif day > self._day:
            self._day = day
            before = self.mornings
            self.mornings = Mornings(
                before.put_today, self.put_count, before.get_today, self.get_count
            )

    async def run(self) -> None:
        """Sample for as long as the store is open."""
        due = trio.current_time()
        while True:
            now = trio.current_time()
            # The clock is not the wall's: a correction of that one would bend all figures.
            self.sample(round(now * 1000), datetime.now().date())  # noqa: DTZ005 - days are local
            due = max(due + SAMPLE_INTERVAL_MS / 1000, now)
            await trio.sleep_until(due)


class RatesPerSecond(NamedTuple):
    """Rates of what `Totals` counts."""

    put: float = 0.0
    found: float = 0.0
    missed: float = 0.0
    transferred: float = 0.0
