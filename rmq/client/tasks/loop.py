"""What the client needs of its event loop, and what differs between trio and asyncio.

Most of what tasks do is the same on both: anyio starts, cancels and wakes them. Here is the rest:
connections, and what every message passes through. `rmq.client.trio.loop` and
`rmq.client.aio.loop` are the two that there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmq.client.core.messages import SendResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from contextlib import AbstractAsyncContextManager

    from rmq.client.core.broker_requests import BrokerRequests
    from rmq.client.core.config import ClientConfig
    from rmq.errors import ClientError, RmqError
    from rmq.remoting.busy_wait import Wakings
    from rmq.remoting.codes import RequestCode, Serialization
    from rmq.remoting.command import Command, FrameEncoder, FrameTemplate
    from rmq.remoting.header import Header
    from rmq.remoting.signing import Credentials

T = TypeVar("T")


# --- waiting -------------------------------------------------------------------------------------


class Awaited(Protocol[T]):
    """The outcome that one task waits for. It is called with it, once."""

    outcome: T | None

    def __call__(self, outcome: T) -> None: ...

    def sleep(self, give_up: Callable[[], None]) -> Awaitable[object]:
        """Sleep until the outcome is there; `give_up` is called if that is cancelled.

        The task that slept has to call `woke` then.
        """

    def woke(self) -> None:
        """The task that was woken runs again."""


class Waiter(Protocol[T]):
    """An outcome that any number of tasks wait for. It is called with it; the first one counts."""

    @property
    def outcome(self) -> T | RmqError | None:
        """The result or the error; None while there is none."""

    def __call__(self, outcome: T | RmqError) -> None: ...

    async def wait(self) -> T:
        """Return the result, or raise the error, when it is there."""


class PendingSend(Waiter[SendResult], Protocol):
    """A pipelined send: `await pending.wait()` returns its result or raises its error."""


class ParkingLot(Protocol):
    """Tasks that sleep until they are woken, the one that came first before the others."""

    def __len__(self) -> int: ...

    async def park(self) -> None: ...

    def unpark(self) -> object:
        """Wake one task, if there is any."""

    def unpark_all(self) -> object: ...


# --- connections ---------------------------------------------------------------------------------


class Call(Protocol):
    """A request that waits for its response."""

    is_complete: bool


class Channel(Protocol):
    """The connection to one broker or nameserver."""

    @property
    def peer(self) -> str: ...

    @property
    def close_reason(self) -> str | None:
        """Why the connection ended; None while it is open."""

    @property
    def encoder(self) -> FrameEncoder: ...

    def submit(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        on_outcome: Callable[[Command | ClientError], None],
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        serialization: Serialization = ...,
    ) -> Call:
        """Send a request; `on_outcome` is called once, with the answer or with why there is none.

        Raises `ClientError` if nothing was sent.
        """

    def submit_like(
        self,
        template: FrameTemplate,
        values: tuple[str | int, ...],
        body: bytes | None,
        on_outcome: Callable[[Command | ClientError], None],
        timeout_s: float,
        now: float,
        is_urgent: bool = False,
    ) -> Call:
        """Do what `submit` does, for a request that is like many others and is not signed."""

    def oneway(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        extra: Mapping[str, str] | None = None,
        serialization: Serialization = ...,
    ) -> None:
        """Send a request that the peer must not answer."""

    async def wait_written(self) -> None:
        """Wait until all that is queued is with the kernel, or the connection has ended."""


class Connections(Protocol):
    """The connections of one client, by address: made when needed, and again when lost."""

    @property
    def wakings(self) -> Wakings:
        """Counts tasks that waited here and are about to run."""

    @property
    def credentials(self) -> Credentials | None: ...

    def running(self) -> AbstractAsyncContextManager[object]: ...

    async def channel(self, address: str) -> Channel:
        """Return the connection to an address, made now if there is none."""

    def open_channel_to(self, address: str) -> Channel | None:
        """Return the open connection to an address if there is one."""

    async def request(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
    ) -> Command:
        """Send a request and wait for its answer; connecting counts against `timeout_s`."""

    async def oneway(
        self,
        address: str,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        timeout_s: float = 3.0,
        extra: Mapping[str, str] | None = None,
        remark: str | None = None,
    ) -> None:
        """Send a request that gets no answer. Returns when it is queued for writing."""

    async def busy_wait_for(self, awaited: Any, is_alone: Callable[[], bool]) -> None:  # noqa: ANN401
        """Busy-wait for an outcome (`busy_wait_s`) while `is_alone()`."""


class ConnectionOwner(Protocol):
    """Whom connections tell that there is a new one."""

    def channel_opened(self, channel: Channel) -> None: ...


# --- the loop ------------------------------------------------------------------------------------


class Loop(Protocol):
    """An event loop."""

    @property
    def awaited(self) -> Callable[[Wakings], Awaited[Any]]:
        """Makes an outcome for one task."""

    @property
    def waiter(self) -> Callable[[], Waiter[Any]]:
        """Makes an outcome for several tasks."""

    @property
    def pending_send(self) -> Callable[[], PendingSend]: ...

    @property
    def parking_lot(self) -> Callable[[], ParkingLot]: ...

    @property
    def checkpoint(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Lets other tasks run; is cancelled if the task is to be."""

    @property
    def checkpoint_if_cancelled(self) -> Callable[[], Coroutine[Any, Any, None]]:
        """Is cancelled if the task is to be, where that is checked without a pause."""

    def check_running(self) -> None:
        """Raise `WrongLoopError` if another loop runs here, or none."""

    def clock(self) -> Callable[[], float]:
        """Return the clock of the loop that runs: every send asks it."""

    def connections(
        self, config: ClientConfig, requests: BrokerRequests, owner: ConnectionOwner
    ) -> Connections: ...

    def stacks(self) -> str:
        """Return all tasks of the loop, and where they wait, as text."""
