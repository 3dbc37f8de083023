"""Serves requests whose work is done in slices.

What a slice refuses is answered as a handler's refusal is, and what fails is answered and logged. A
request whose connection ends is given up between two of its slices, unless it has to be completed
(`to_the_end`), as a change that an operator asked for.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final, final

from rmq.errors import RefusedError
from rmq.log_limits import LimitedLog, host_of
from rmq.remoting.codes import ResponseCode
from rmq.remoting.request import name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from rmq.nameserver.slices import JobQueue, Slices
    from rmq.remoting.channel import Channel
    from rmq.remoting.request import Request

logger = logging.getLogger(__name__)


@final
class Serving:
    """Serves the requests of one nameserver in slices."""

    def __init__(self, slices: Slices, now: Callable[[], float]) -> None:
        self._slices: Final = slices
        self._now: Final = now
        self._lines: Final = LimitedLog(logger)

    def serve(
        self,
        queue: JobQueue,
        request: Request[Any],
        work: Generator[None, None, None],
        *,
        to_the_end: bool = False,
    ) -> None:
        """Do the work of a request, which answers it; now if it takes no time, else in slices."""
        if not self._slices.submit(queue, self._guarded(request, work, to_the_end=to_the_end)):
            request.defer()

    def warn(self, kind: str, request: Request[Any], message: str, *args: object) -> None:
        """Log a line about a peer, within the limits that lines of a kind about a host have."""
        peer = request.channel.peer
        message += " (from %s)"
        self._lines.warning(kind, host_of(peer), self._now(), message, *args, peer)

    def may_tell(self, kind: str, channel: Channel) -> bool:
        """Whether a line that an honest peer causes, too, is within the limits."""
        host = host_of(channel.peer)
        return self._lines.limits.take(kind, host, self._now()) is not None

    def summarize(self) -> None:
        """Log how many lines about peers were suppressed."""
        self._lines.summarize(self._now())

    def _guarded(
        self, request: Request[Any], work: Generator[None, None, None], *, to_the_end: bool
    ) -> Generator[None, None, None]:
        try:
            while to_the_end or request.channel.is_open:
                try:
                    next(work)
                except StopIteration:
                    return
                yield
            request.drop()
        except RefusedError as exc:
            request.refuse(exc.code, exc.remark)
        except Exception as exc:  # noqa: BLE001 - one bad request must not end the others
            self._lines.log(
                logging.ERROR,
                "failure",
                host_of(request.channel.peer),
                self._now(),
                "%s of %s failed",
                name_of(request.command),
                request.channel.peer,
                exc_info=exc,
            )
            if not request.answered:
                request.refuse(ResponseCode.SYSTEM_ERROR, f"{type(exc).__name__}: {exc}")
        finally:
            work.close()
