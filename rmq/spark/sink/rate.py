"""A limit of messages per second. Pure: the time is an argument.

The limit is one for the whole write. Tasks know nothing of each other, so each gets an equal part
of it, as many parts as tasks can run at the same time. Where fewer run, less is sent. A task that
is done waits until its part is no longer in debt (`Sender.finish`), so that the next task in its
place, which begins with a new part, does not exceed it either.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

BURST_S: Final = 0.1
"""Messages not sent within this time may be sent later."""

_LOCAL: Final = re.compile(r"local(?:\[(\d+|\*)(?:\s*,\s*\d+)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,\s*\d+\s*\]")


@final
class TokenBucket:
    """Tells when messages may go. They may once it is not in debt, and bring it into debt."""

    def __init__(self, per_second: float, now: float) -> None:
        assert per_second > 0, f"{per_second} messages a second"
        self._per_second = per_second
        self._tokens = 0.0
        self._filled_at = now

    def wait_s(self, now: float) -> float:
        """Return after how many seconds the next messages may go, 0 for now."""
        self._fill(now)
        return max(0.0, -self._tokens / self._per_second)

    def take(self, count: int, now: float) -> None:
        """Count messages that go now."""
        self._fill(now)
        self._tokens -= count

    def _fill(self, now: float) -> None:
        gained = (now - self._filled_at) * self._per_second
        self._tokens = min(self._tokens + gained, self._per_second * BURST_S)
        self._filled_at = now


def parallel_tasks(told: int, setting: Callable[[str], str | None], cores: int) -> int:
    """Return how many tasks of a write may run at the same time; raise `ConfigError` if unknown.

    `told` is the option `parallelTasks`, `setting` looks up a setting of Spark, and `cores` is what
    this machine has.
    """
    if told:
        return told
    master = setting("spark.master") or ""
    local = _LOCAL.fullmatch(master)
    if local is not None:
        slots = local[1] or "1"
        return cores if slots == "*" else max(1, int(slots))
    small = _LOCAL_CLUSTER.fullmatch(master)
    if small is not None:
        return max(1, int(small[1]) * int(small[2]))
    per_task = _number(setting("spark.task.cpus")) or 1
    is_dynamic = (setting("spark.dynamicAllocation.enabled") or "").lower() == "true"
    executors = _number(
        setting(
            "spark.dynamicAllocation.maxExecutors" if is_dynamic else "spark.executor.instances"
        )
    )
    cores_each = _number(setting("spark.executor.cores"))
    if executors and cores_each:
        return max(1, executors * (cores_each // per_task))
    cores_max = _number(setting("spark.cores.max"))
    if cores_max:
        return max(1, cores_max // per_task)
    raise ConfigError(
        "maxMessagesPerSecond",
        "the settings of Spark do not tell how many tasks share it",
        hint="say so with the option parallelTasks, or set spark.executor.instances and"
        " spark.executor.cores",
    )


def _number(text: str | None) -> int:
    return int(text) if text is not None and text.strip().isdecimal() else 0
