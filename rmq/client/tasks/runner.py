"""Runs flows on the connections of a remoting client."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

import anyio

from rmq.client.core.flows import Answer, Ask, Flow, Pause, Tell
from rmq.errors import ClientError, ConfigError, ConnectFailedError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.client.tasks.loop import Connections

T = TypeVar("T")

REQUEST_TYPE: Final = "ReqT"
STREAM: Final = "0"


@final
class FlowRunner:
    """Carries out the steps of flows."""

    def __init__(
        self,
        remoting: Connections,
        *,
        timeout_s: float,
        is_stream: bool = False,
    ) -> None:
        """`is_stream`: say with every request that it is one of a pulling consumer (`ReqT`)."""
        self.remoting = remoting
        self._timeout_s = timeout_s
        self.is_stream = is_stream

    async def run(self, flow: Flow[T]) -> T:
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
                        given = await self._ask(step)
                    elif isinstance(step, Tell):
                        await self._tell(step)
                    else:
                        assert isinstance(step, Pause), f"{step!r} is no step of a flow"
                        await anyio.sleep(step.seconds)
                except ClientError as exc:
                    error = exc
                except ConfigError as exc:
                    # A nameserver told an address that is none.
                    assert not isinstance(step, Pause)
                    error = ConnectFailedError(step.address, exc.text)
        finally:
            flow.close()

    def extra(self, extra: Mapping[str, str] | None = None) -> Mapping[str, str] | None:
        """Return the header fields that go with a request beside its own."""
        if self.is_stream:
            return {**(extra or {}), REQUEST_TYPE: STREAM}
        return extra

    async def _ask(self, ask: Ask) -> Answer:
        command = await self.remoting.request(
            ask.address,
            ask.code,
            ask.header,
            body=ask.body,
            timeout_s=self._timeout_s if ask.timeout_s is None else ask.timeout_s,
            extra=self.extra(ask.extra),
        )
        return Answer(ask, command)

    async def _tell(self, tell: Tell) -> None:
        await self.remoting.oneway(
            tell.address,
            tell.code,
            tell.header,
            body=tell.body,
            remark=tell.remark,
            timeout_s=self._timeout_s,
            extra=self.extra(),
        )
