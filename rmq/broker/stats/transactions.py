"""Ends of transactions, for metrics. Pure."""

from __future__ import annotations

from typing import Final, final

from rmq.counting.histogram import Histogram

FINISH_BOUNDS_S: Final = (1.0, 5.0, 30.0, 60.0, 600.0, 3600.0, 43_200.0, 86_400.0)
TOPICS_MAX: Final = 5000
"""For how many topics ends are counted."""


@final
class TransactionStats:
    """The transactions of one broker."""

    def __init__(self) -> None:
        self.commits: dict[str, int] = {}
        """By topic."""
        self.rollbacks: dict[str, int] = {}
        """By topic."""
        self.finish = Histogram(FINISH_BOUNDS_S)
        """From the half message to its commit, in seconds."""

    def committed(self, topic: str, took_ms: int) -> None:
        """Count a half message that consumers may see."""
        _count(self.commits, topic)
        self.finish.note(max(0, took_ms) / 1000)

    def rolled_back(self, topic: str) -> None:
        """Count a half message that no consumer will see."""
        _count(self.rollbacks, topic)

    def remove_topic(self, topic: str) -> None:
        """Forget what was counted for a topic."""
        self.commits.pop(topic, None)
        self.rollbacks.pop(topic, None)


def _count(table: dict[str, int], topic: str) -> None:
    if topic in table or len(table) < TOPICS_MAX:
        table[topic] = table.get(topic, 0) + 1
