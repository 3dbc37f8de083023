"""What the tests of the statistics share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rmq.broker.stats.broker import BrokerStats

START_MS: Final = 50_000


def minute_of(stats: BrokerStats, name: str, key: str) -> tuple[int, float, float] | None:
    """Return sum, tps and avgpt of the last minute."""
    data = stats.view(name, key)
    if data is None:
        return None
    assert data.stats_minute is not None
    return data.stats_minute.sum, data.stats_minute.tps, data.stats_minute.avgpt
