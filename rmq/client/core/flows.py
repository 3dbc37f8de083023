"""Conversations with nameservers and brokers, free of I/O.

A flow is a generator. It yields what is to be done next, is given the answer, and returns its
result:

    def newest_offset(queue: MessageQueue, address: str) -> Flow[int]:
        answer = yield Ask(address, RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequest(...))
        return expect(answer).header(GetMaxOffsetResponse).offset

The clients on trio and asyncio run flows on their connections (`rmq.client.tasks.runner`), the
blocking one on plain sockets (`rmq.client.blocking`), tests with answers from a list. What a call
failed with is thrown into the flow at its `yield` as a `ClientError`.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from rmq.errors import BadAnswerError, ProtocolError, ResponseError
from rmq.remoting.codes import RequestCode, ResponseCode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.bodies.base import Body
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

T = TypeVar("T")
H = TypeVar("H", bound="Header")
B = TypeVar("B", bound="Body")


class Ask(NamedTuple):
    """A request whose answer the flow wants, whatever its code."""

    address: str
    code: RequestCode
    header: Header | None = None
    body: bytes | None = None
    timeout_s: float | None = None
    """None: the timeout that the client is configured with."""
    extra: Mapping[str, str] | None = None
    """Header fields that no class declares."""


class Tell(NamedTuple):
    """A one-way request; the flow is given None."""

    address: str
    code: RequestCode
    header: Header | None = None
    body: bytes | None = None
    remark: str | None = None


class Pause(NamedTuple):
    """Go on after a while; the flow is given None."""

    seconds: float


class Answer(NamedTuple):
    """What a peer answered to an `Ask`."""

    ask: Ask
    command: Command

    @property
    def code(self) -> int:
        return self.command.code

    def header(self, header_class: type[H]) -> H:
        """Read the answer's header; raise `BadAnswerError`."""
        try:
            return self.command.header(header_class)
        except ProtocolError as exc:
            raise BadAnswerError(self.ask.address, self.ask.code.name, str(exc)) from exc

    def body(self, body_class: type[B]) -> B:
        """Read the answer's JSON body; raise `BadAnswerError`."""
        try:
            return body_class.decode(self.command.body)
        except ProtocolError as exc:
            raise BadAnswerError(self.ask.address, self.ask.code.name, str(exc)) from exc

    def failure(self) -> ResponseError:
        """Return the error for the response code."""
        ask, command = self.ask, self.command
        return ResponseError(ask.address, ask.code.name, command.code, command.remark)


Step: TypeAlias = Ask | Tell | Pause
Flow: TypeAlias = Generator[Step, Answer | None, T]


def expect(answer: Answer | None, *codes: ResponseCode) -> Answer:
    """Return an answer with one of the codes (SUCCESS if none is given); raise `ResponseError`."""
    assert answer is not None, "only an Ask has an answer"
    if answer.command.code not in (codes or (ResponseCode.SUCCESS,)):
        raise answer.failure()
    return answer


def ask(
    address: str,
    code: RequestCode,
    header: Header | None = None,
    *,
    body: bytes | None = None,
    timeout_s: float | None = None,
    extra: Mapping[str, str] | None = None,
) -> Flow[Answer]:
    """Ask once, and expect success: `answer = yield from ask(...)`."""
    return expect((yield Ask(address, code, header, body, timeout_s, extra)))
