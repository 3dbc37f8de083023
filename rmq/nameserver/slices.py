"""Work that takes long, done in slices between which the loop serves other requests.

A job is a generator; each of its steps takes about a millisecond at most. Jobs wait in queues:
those of one queue are done one after the other, queues take turns, and `BUDGET_S` is spent on all
of them together before other tasks run. So it makes no difference to others how many jobs there
are.

A job that is submitted while nothing waits in its queue begins at once, within the same budget.
Most are complete then: an answer that takes no time waits for none.

Pure but for the clock, which is passed in. Its owner calls `work` in each pass of the loop for as
long as it `is_waiting`.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

logger = logging.getLogger(__name__)

BUDGET_S: Final = 0.003


class JobQueue(Enum):
    """Where a job waits."""

    CHANGES = auto()
    """Registrations, and what operators change."""
    LONG_CHANGES = auto()
    """Registrations of many topics; short ones do not wait for them."""
    ANSWERS = auto()
    CLEANING = auto()


@final
class Slices:
    """The jobs of one nameserver."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock = clock
        self._queues: dict[JobQueue, deque[Generator[None, None, None]]] = {
            queue: deque() for queue in JobQueue
        }
        self._turns: deque[JobQueue] = deque()
        """Queues in which jobs wait."""
        self._spent_s = 0.0
        self.on_work: Callable[[], object] = lambda: None
        """Called when `work` has to be called."""
        self.steps = 0
        """How many steps were done so far."""

    @property
    def is_waiting(self) -> bool:
        """Whether `work` has anything to do."""
        return bool(self._turns) or self._spent_s >= BUDGET_S / 2

    def waiting(self, queue: JobQueue) -> int:
        """How many jobs of a queue are not complete."""
        return len(self._queues[queue])

    def submit(self, queue: JobQueue, job: Generator[None, None, None]) -> bool:
        """Do a job, now or later; return whether it is complete already."""
        waiting = self._queues[queue]
        if not waiting and self._run(job):
            if self.is_waiting:
                self.on_work()
            return True
        waiting.append(job)
        if len(waiting) == 1:
            self._turns.append(queue)
        self.on_work()
        return False

    def work(self) -> None:
        """Do what the budget of one pass of the loop allows."""
        self._spent_s = 0.0
        while self._turns and self._spent_s < BUDGET_S:
            queue = self._turns.popleft()
            waiting = self._queues[queue]
            if self._step(waiting[0]):
                waiting.popleft()
            if waiting:
                self._turns.append(queue)

    def _run(self, job: Generator[None, None, None]) -> bool:
        """Go on with a job as long as the budget allows; return whether it is complete."""
        while self._spent_s < BUDGET_S:
            if self._step(job):
                return True
        return False

    def _step(self, job: Generator[None, None, None]) -> bool:
        begun_at = self._clock()
        self.steps += 1
        try:
            next(job)
        except StopIteration:
            return True
        except Exception:
            logger.exception("a job of the nameserver failed")
            return True
        finally:
            self._spent_s += self._clock() - begun_at
        return False
