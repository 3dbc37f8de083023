"""What goes on inside servers under fuzz: what they log, and how long they keep the event loop.

Times are processor time of the thread, so that other processes do not count.
"""

from __future__ import annotations

import logging
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import trio

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator, Sequence

    from rmq.remoting.dispatch import Dispatcher
    from rmq.remoting.request import Request

    Note = Callable[[str, str], None]
    """Takes the kind of a finding, the same for all like it, and what it is."""

BLOCKED_S_MAX: Final = 0.2
"""How long one request may keep the event loop."""
FUZZ_TASK: Final = "fuzz"
"""How the names of tasks begin that are not the servers'."""

_EXPECTED_ERRORS: Final = (
    "group %s: no consumer status of %d of %d members",
    "group %s: %s not told to reset offsets",
    "update of the settings refused",
    "cannot accept",
    "the half message %s for topic %s is given up",
    # Where a change of settings has made its lease (haMasterLease) a few milliseconds.
    "this master takes no more messages",
)


class LogWatch(logging.Handler):
    """Reads what is logged. A traceback is a finding, and so is most of what is an error."""

    def __init__(self, note: Note) -> None:
        super().__init__(logging.DEBUG)
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except Exception as exc:  # noqa: BLE001 - any kind is what is looked for
            self._note(f"a log line cannot be written: {record.msg!r}", str(exc))
            return
        raised = record.exc_info[1] if record.exc_info else None
        if raised is not None:
            told = "".join(traceback.format_exception(raised))
            self._note(f"traceback logged: {kind_of(raised)}", f"{message[:2000]}\n{told}")
        elif record.levelno >= logging.ERROR and not _is_expected(record.msg, message):
            self._note(f"error logged by {record.name}: {record.msg}", message[:2000])


def _is_expected(template: str, message: str) -> bool:
    # A consumer may answer with any code, which is handed on if that can be; and there may be more
    # of something than fits into a frame.
    return template.startswith(_EXPECTED_ERRORS) or any(
        words in message for words in ("has no room for code", "is over the limit of")
    )


def kind_of(exc: BaseException) -> str:
    """Say what was raised and where, the same for all inputs that lead there."""
    frames = traceback.extract_tb(exc.__traceback__)
    if not frames:
        return type(exc).__name__
    place = frames[-1]
    return f"{type(exc).__name__} in {place.name} ({Path(place.filename).name}:{place.lineno})"


class Worst(NamedTuple):
    """The longest time that requests of a code took at once."""

    seconds: float
    requests: int
    bytes: int
    what: str


@final
class StepWatch(trio.abc.Instrument):
    """Measures every step of the servers' tasks."""

    def __init__(self, note: Note) -> None:
        self._note = note
        self._cpu = self._wall = 0.0
        self._requests = 0
        self.doing = ""
        """What is being tried, for findings."""
        self.worst: dict[str, Worst] = {}
        """By code of the request."""
        self.worst_step = (0.0, "")
        self.worst_wall = (0.0, "")

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._requests = 0
        self._wall = time.perf_counter()
        self._cpu = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        wall = time.perf_counter() - self._wall
        if wall < 0.01 or task.name.startswith(FUZZ_TASK) or task.name.endswith("._round"):
            return
        # Of many requests that one read brought, each may take its time.
        cpu = (time.thread_time() - self._cpu) / max(1, self._requests)
        what = f"{task.name} during {self.doing}"
        self.worst_step = max(self.worst_step, (cpu, what))
        self.worst_wall = max(self.worst_wall, (wall, what))
        if cpu > BLOCKED_S_MAX:
            self._note(
                f"the event loop is kept by {task.name}, {self.doing}", f"for {cpu:.3f} s: {what}"
            )

    def measure(self, dispatcher: Dispatcher) -> None:
        """Measure every request that a server hands to a handler from now on."""
        for code, bound in dispatcher._bound.items():
            if bound.handle_batch is not None:
                bound.handle_batch = self._timed(str(code), bound.handle_batch)
            if bound.handle_async is not None:
                bound.handle_async = self._timed_async(str(code), bound.handle_async)

    def _timed(
        self, code: str, handle: Callable[[Sequence[Request[Any]]], Any]
    ) -> Callable[[Sequence[Request[Any]]], Any]:
        def timed(requests: Sequence[Request[Any]]) -> Any:  # noqa: ANN401 - as it comes
            started = time.thread_time()
            try:
                return handle(requests)
            finally:
                self._took(code, time.thread_time() - started, requests)

        return timed

    def _timed_async(
        self, code: str, handle: Callable[[Request[Any]], Awaitable[None]]
    ) -> Callable[[Request[Any]], Awaitable[None]]:
        return lambda request: _Steps(
            handle(request), lambda seconds: self._took(code, seconds, [request])
        )

    def _took(self, code: str, seconds: float, requests: Sequence[Request[Any]]) -> None:
        self._requests += len(requests)
        worst = self.worst.get(code)
        if worst is None or seconds > worst.seconds:
            size = sum(len(request.body or b"") for request in requests)
            self.worst[code] = Worst(seconds, len(requests), size, self.doing)


@final
class _Steps:
    """A coroutine of which every step is measured."""

    def __init__(self, awaitable: Awaitable[None], took: Callable[[float], None]) -> None:
        self._awaitable = awaitable
        self._took = took

    def __await__(self) -> Generator[Any, Any, None]:
        inner: Any = self._awaitable.__await__()
        sent: Any = None
        error: BaseException | None = None
        while True:
            started = time.thread_time()
            try:
                trap = inner.send(sent) if error is None else inner.throw(error)
            except StopIteration:
                return
            finally:
                self._took(time.thread_time() - started)
            sent = error = None
            try:
                sent = yield trap
            except BaseException as exc:  # noqa: BLE001 - handed on
                error = exc
