"""Ends a service that has failed and cannot even end: without memory, say.

When memory or threads run out, the machinery that a graceful end needs may fail itself: results of
threads that are never delivered leave a process without listening sockets that lives on for ever,
and no supervisor starts it again. A thread that was started in good times sees to it that the
process ends, with an exit code and a line that says why.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING, Final, final

from rmq.cli.common.exit_codes import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable

END_S: Final = 20.0
"""How long a service that has failed may take to end: saving what it can takes a few seconds."""


@final
class EndWatch:
    """A thread that ends the process if that does not end in time once it is armed.

    It allocates nothing after it was started.
    """

    def __init__(
        self, end_s: float = END_S, end_process: Callable[[int], object] = os._exit
    ) -> None:
        self._end_s = end_s
        self._end_process = end_process
        self._code = int(ExitCode.OUT_OF_RESOURCES)
        self._line = (
            f"rmq: error: failed, and not ended {end_s:g} s later; ended now\n"
            "hint: memory or threads may have run out; see the lines before\n"
        ).encode()
        self._unarmed = threading.Lock()
        self._running = threading.Lock()
        self._is_over = False
        self._thread = threading.Thread(target=self._watch, name="rmq end watch", daemon=True)

    def start(self) -> None:
        self._unarmed.acquire()
        self._running.acquire()
        try:
            self._thread.start()
        except RuntimeError:
            # No threads to begin with: then none is left out later.
            self._is_over = True

    def arm(self) -> None:
        """The service has failed: it must have ended in `end_s`."""
        if self._unarmed.locked():
            self._unarmed.release()

    def stop(self) -> None:
        """The service has ended."""
        if self._is_over:
            return
        self._is_over = True
        self._running.release()
        self.arm()
        self._thread.join()

    def _watch(self) -> None:
        self._unarmed.acquire()
        if self._running.acquire(timeout=self._end_s):
            return
        try:
            # A pipe that is not read must not keep it here.
            if select.select((), (2,), (), 0)[1]:
                os.write(2, self._line)
        finally:
            self._end_process(self._code)
