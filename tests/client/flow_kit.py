"""Drives flows with answers from a list, and keeps what they asked for.

    script = Script(reply(GetMaxOffsetResponse(offset=7)), ConnectionLostError(...))
    assert script.run(max_offset(routes, queue)) == 7
    assert script.asks[0].code is RequestCode.GET_MAX_OFFSET

Answers go through the encoding of the wire, so that a flow reads what a peer would have sent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeVar

from rmq.client.core.flows import Answer, Ask, Flow, Pause, Tell
from rmq.client.core.routes import RouteTable, TopicRoute
from rmq.errors import ClientError
from rmq.remoting.bodies import BrokerData, QueueData, TopicRouteData
from rmq.remoting.codes import FLAG_RESPONSE, ResponseCode
from rmq.remoting.command import decode_header, encode_frame
from rmq.remoting.layout import FRAME_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rmq.client.core.flows import Step
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

T = TypeVar("T")


class Reply(NamedTuple):
    """What a peer answers."""

    code: int
    header: Header | None
    body: bytes | None
    remark: str | None


def reply(
    header: Header | None = None,
    *,
    code: int = ResponseCode.SUCCESS,
    body: bytes | None = None,
    remark: str | None = None,
) -> Reply:
    return Reply(code, header, body, remark)


class Script:
    """Answers in order; a step of a flow that none is left for fails the test."""

    def __init__(self, *answers: Reply | ClientError | Callable[[Ask], Reply]) -> None:
        self._answers = list(answers)
        self.steps: list[Step] = []
        self.on_pause: Callable[[float], None] | None = None
        """Is told of each pause, such as to let time pass."""

    @property
    def asks(self) -> list[Ask]:
        return [step for step in self.steps if isinstance(step, Ask)]

    @property
    def tells(self) -> list[Tell]:
        return [step for step in self.steps if isinstance(step, Tell)]

    @property
    def pauses(self) -> list[float]:
        return [step.seconds for step in self.steps if isinstance(step, Pause)]

    def run(self, flow: Flow[T]) -> T:
        """Run a flow to its end. Pauses take no time; one-way requests take an answer only if it
        is an error.
        """
        given: Answer | None = None
        error: ClientError | None = None
        try:
            while True:
                try:
                    step = flow.send(given) if error is None else flow.throw(error)
                except StopIteration as end:
                    result: T = end.value
                    return result
                self.steps.append(step)
                given, error = None, None
                if isinstance(step, Ask):
                    given, error = self._answer(step)
                elif isinstance(step, Pause):
                    if self.on_pause is not None:
                        self.on_pause(step.seconds)
                elif isinstance(step, Tell) and self._answers:
                    first = self._answers[0]
                    if isinstance(first, ClientError):
                        error = first
                        self._answers.pop(0)
        finally:
            flow.close()

    def assert_done(self) -> None:
        assert not self._answers, f"nobody asked for {self._answers}"

    def _answer(self, ask: Ask) -> tuple[Answer | None, ClientError | None]:
        assert self._answers, f"nothing is left to answer {ask} with"
        answer = self._answers.pop(0)
        if isinstance(answer, ClientError):
            return None, answer
        if not isinstance(answer, Reply):
            answer = answer(ask)
        return Answer(ask, command_of(answer)), None


def command_of(answer: Reply) -> Command:
    """Return an answer as it would have arrived."""
    frame = encode_frame(
        code=answer.code, flag=FLAG_RESPONSE, header=answer.header, remark=answer.remark
    )
    command = decode_header(frame[FRAME_PREFIX.size :], 0)
    command.body = answer.body
    return command


def routes_of(
    topic: str,
    brokers: Mapping[str, Mapping[int, str]],
    *,
    queues: int = 4,
    perm: int = 6,
) -> RouteTable:
    """Return a table with one route: addresses by broker name and id."""
    table = RouteTable()
    table.put(
        TopicRoute(
            topic,
            TopicRouteData(
                queue_datas=tuple(
                    QueueData(
                        broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=perm
                    )
                    for name in brokers
                ),
                broker_datas=tuple(
                    BrokerData(cluster="c", broker_name=name, broker_addrs=dict(addresses))
                    for name, addresses in brokers.items()
                ),
            ),
        )
    )
    return table
