"""Progress of a step of Spark on standard error, if that is a terminal."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import TextIO

    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

SHOW_S: Final = 0.5
_CLEAR: Final = "\r\x1b[K"


@final
class Progress:
    """One line that changes while Spark works."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.is_shown = stream.isatty()

    @contextmanager
    def step(self, title: str, tasks: Callable[[], str]) -> Iterator[None]:
        """Show a title, and what `tasks` returns, until the block is left."""
        logger.debug("%s", title)
        if not self.is_shown:
            yield
            return
        ended = threading.Event()
        thread = threading.Thread(
            target=self._show_until, args=(title, tasks, ended), name="progress", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
            self._write(_CLEAR)

    def _show_until(self, title: str, tasks: Callable[[], str], ended: threading.Event) -> None:
        started_s = time.monotonic()
        while True:
            try:
                detail = tasks()
            except Exception:  # noqa: BLE001 - Spark may be going away; the step itself reports it
                detail = ""
            self._write(f"{_CLEAR}{title}{detail}  {time.monotonic() - started_s:.0f} s")
            if ended.wait(SHOW_S):
                return

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


def task_counter(spark: SparkSession | None) -> Callable[[], str]:
    """Return what tells how many tasks of the stages that run now are done."""
    if spark is None:
        return str
    tracker = spark.sparkContext.statusTracker()

    def count() -> str:
        done = total = 0
        for stage_id in tracker.getActiveStageIds():
            stage = tracker.getStageInfo(stage_id)
            if stage is not None:
                done += stage.numCompletedTasks
                total += stage.numTasks
        return f": {done} of {total} tasks" if total else ""

    return count
