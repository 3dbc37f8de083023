"""Runs flows on plain sockets: one to its end, or several side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, final

from rmq.client.blocking.connections import FORKED
from rmq.client.core.flows import Answer, Ask, Pause, Tell
from rmq.errors import ClientError, ConnectionLostError

if TYPE_CHECKING:
    from rmq.client.blocking.calls import Call
    from rmq.client.blocking.connections import Connections
    from rmq.client.core.flows import Flow
    from rmq.remoting.command import Command

T = TypeVar("T")


@final
class FlowRunner:
    """Carries out the steps of flows."""

    def __init__(self, connections: Connections, *, timeout_s: float) -> None:
        self.connections = connections
        self.timeout_s = timeout_s

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end; return its result, or raise what it raises."""
        given: Answer | None = None
        error: ClientError | None = None
        try:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                given, error = None, None
                try:
                    if isinstance(step, Ask):
                        given = self._ask(step)
                    elif isinstance(step, Tell):
                        self._tell(step)
                    else:
                        assert isinstance(step, Pause), f"{step!r} is no step of a flow"
                        self.connections.sleep(step.seconds)
                except ClientError as exc:
                    error = exc
        finally:
            flow.close()

    def _ask(self, ask: Ask) -> Answer:
        command = self.connections.request(
            ask.address,
            ask.code,
            ask.header,
            body=ask.body,
            timeout_s=self.timeout_s if ask.timeout_s is None else ask.timeout_s,
            extra=ask.extra,
        )
        return Answer(ask, command)

    def _tell(self, tell: Tell) -> None:
        """Send a one-way request; return when it is written to the socket."""
        self.tell_soon(tell)
        self.connections.wait_written(tell.address, what=tell.code.name, timeout_s=self.timeout_s)

    def tell_soon(self, tell: Tell) -> None:
        """Queue a one-way request; it leaves when this client waits for anything."""
        self.connections.tell(
            tell.address,
            tell.code,
            tell.header,
            body=tell.body,
            remark=tell.remark,
        )

    def start(self, flow: Flow[T]) -> Task[T]:
        """Begin a flow. It goes on whenever this client waits for anything."""
        return Task(flow, self)

    def wait(self, task: Task[T]) -> T:
        """Wait for a flow's end; return its result, or raise what it raised."""
        while not task.is_done:
            self.connections.step()
        return task.result()


@final
class Task(Generic[T]):
    """A flow that is under way."""

    __slots__ = (
        "_ask",
        "_call",
        "_error",
        "_flow",
        "_generation",
        "_is_done",
        "_result",
        "_runner",
    )

    def __init__(self, flow: Flow[T], runner: FlowRunner) -> None:
        self._flow = flow
        self._runner = runner
        self._generation = runner.connections.generation
        self._ask: Ask | None = None
        self._call: Call | None = None
        self._is_done = False
        self._result: T | None = None
        self._error: Exception | None = None
        self._advance(None, None)

    @property
    def is_done(self) -> bool:
        """Whether there is a result or an error. Flows in flight at a fork have failed."""
        return self._is_done or self._generation != self._runner.connections.generation

    def result(self) -> T:
        """Return the result of a flow that is done, or raise what it raised."""
        if not self._is_done:
            self._fail(ConnectionLostError(self._ask.address if self._ask else "", FORKED))
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]  # done without error: it is a T

    def cancel(self) -> None:
        """Cancel a flow; the response that it waits for is ignored."""
        if self._is_done:
            return
        self._fail(ConnectionLostError(self._ask.address if self._ask else "", "given up"))

    def _fail(self, error: Exception) -> None:
        self._is_done = True
        self._error = error
        if self._call is not None:
            self._call.on_outcome = None
        self._flow.close()

    def _on_outcome(self, outcome: Command | ClientError) -> None:
        assert self._ask is not None
        if isinstance(outcome, ClientError):
            self._advance(None, outcome)
        else:
            self._advance(Answer(self._ask, outcome), None)

    def _resume(self) -> None:
        if not self._is_done:
            self._advance(None, None)

    def _advance(self, given: Answer | None, error: ClientError | None) -> None:
        """Resume the flow until it has to wait."""
        flow = self._flow
        while True:
            try:
                step = flow.send(given) if error is None else flow.throw(error)
            except StopIteration as end:
                self._result = end.value
                self._is_done = True
                return
            except Exception as exc:  # noqa: BLE001 - raised by `result`
                self._error = exc
                self._is_done = True
                return
            except BaseException as exc:
                self._error = ConnectionLostError("", f"interrupted by {type(exc).__name__}")
                self._is_done = True
                raise
            given, error = None, None
            try:
                if isinstance(step, Ask):
                    self._submit(step)
                    return
                if isinstance(step, Tell):
                    self._runner.tell_soon(step)
                else:
                    assert isinstance(step, Pause), f"{step!r} is no step of a flow"
                    self._runner.connections.call_later(step.seconds, self._resume)
                    return
            except ClientError as exc:
                error = exc
            except Exception as exc:  # noqa: BLE001 - raised by `result`
                self._fail(exc)
                return

    def _submit(self, ask: Ask) -> None:
        runner = self._runner
        self._ask = ask
        self._call = runner.connections.submit(
            ask.address,
            ask.code,
            ask.header,
            body=ask.body,
            timeout_s=runner.timeout_s if ask.timeout_s is None else ask.timeout_s,
            extra=ask.extra,
            on_outcome=self._on_outcome,
        )
