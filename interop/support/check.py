"""The frame of every check: time limit, temporary folder, signals, exit code.

Exit codes are those of `interop/run`: 0 all cases passed, 1 some did not, 77 something is missing
on this machine.
"""

from __future__ import annotations

import logging
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final, final

import trio

from interop.support.cases import CaseTable, say
from interop.support.java import CACHE, MissingPartError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    Main = Callable[[CaseTable, Path], Awaitable[None]]

EXIT_FAILURE: Final = 1
EXIT_MISSING: Final = 77


def run_check(main: Main, *, timeout_s: float) -> int:
    """Run `main` with an empty table and a temporary folder; show the table, return the exit code.

    Whatever `main` starts must end with its own blocks; these are left in every case, also after
    `timeout_s` and at a signal.
    """
    # The peers are given plenty of nonsense on purpose; what rmq logs about it is not a finding.
    logging.basicConfig(level=logging.CRITICAL)
    CACHE.mkdir(exist_ok=True)
    run = _Run(main)
    with tempfile.TemporaryDirectory(prefix="run-", dir=CACHE) as folder:
        trio.run(run.supervise, Path(folder), timeout_s)
    if run.table.cases:
        run.table.show()
    if isinstance(run.failure, MissingPartError):
        say(f"missing: {run.failure}")
        return EXIT_MISSING
    if run.failure is not None:
        raise run.failure
    if run.stopped_by is not None:
        say(f"incomplete: {run.stopped_by}")
    complete = run.stopped_by is None and run.table.cases and not run.table.failures
    return 0 if complete else EXIT_FAILURE


@final
class _Run:
    """One run of a check."""

    def __init__(self, main: Main) -> None:
        self.table = CaseTable()
        self.failure: Exception | None = None
        self.stopped_by: str | None = None
        self._main = main
        self._scope = trio.CancelScope()

    async def supervise(self, folder: Path, timeout_s: float) -> None:
        with self._scope, trio.move_on_after(timeout_s) as limit:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._watch_signals)
                # Kept rather than raised: out of a nursery it would come wrapped in a group.
                try:
                    await self._main(self.table, folder)
                except Exception as exc:  # noqa: BLE001 - raised again by run_check
                    self.failure = exc
                nursery.cancel_scope.cancel()
        if limit.cancelled_caught:
            self.stopped_by = f"still running after {timeout_s:g} s"

    async def _watch_signals(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        with trio.open_signal_receiver(*numbers) as received:
            task_status.started()
            async for number in received:
                self.stopped_by = f"stopped by {signal.Signals(number).name}"
                self._scope.cancel()
