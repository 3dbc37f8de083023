"""One request as its handler sees it, with the methods that answer it."""

from __future__ import annotations

import logging
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, final

import msgspec

from rmq.counting.requests import CodeCounts
from rmq.errors import LocalProtocolError
from rmq.remoting.channel import Channel
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode, Serialization
from rmq.remoting.command import Command
from rmq.remoting.groups import GroupState
from rmq.remoting.header import Header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rmq.remoting.outbox import Content

H = TypeVar("H", bound=Header)

_REFUSAL_CHARS_MAX: Final = 1000
PARKED_BYTES_FREE: Final = 4096
"""Bodies up to this size do not count while their requests wait: the number of those is bounded."""


@final
class Request(msgspec.Struct, Generic[H], eq=False):
    """One request as its handler sees it. Answer it at most once, now or later."""

    command: Command
    header: H
    channel: Channel
    _group: GroupState
    _counts: CodeCounts
    since: float
    """When it had arrived, at the latest."""
    _answered: bool = False
    _counted: bool = False
    _deferred: bool = False
    _parked: int = 0
    has_begun: bool = False
    """Whether it is served already: such a one is never refused for waiting too long."""
    was_held: bool = False
    """Whether it waited for what it asks for: then it did not take long."""

    @property
    def body(self) -> bytes | None:
        return self.command.body

    @property
    def answered(self) -> bool:
        return self._answered

    def reply(
        self,
        header: Header | None = None,
        *,
        code: int = ResponseCode.SUCCESS,
        body: Content | None = None,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Answer, in the serialization of the request. A one-way request's answer is not sent.

        A body in several pieces is given as a tuple of views that are not empty; they are not
        joined, and must not change until they are written.
        """
        if self._answered or self._counted:
            self._complete()
        self._answered = True
        self._count_answer(code)
        if not self.command.flag & FLAG_ONEWAY:
            self._send(header, code, body, remark, extra)

    def defer(self) -> None:
        """Keep the request unanswered past the handler's return; it counts against its group until
        `reply`.
        """
        self._deferred = True
        if self._begin_count():
            self._group.count(self.channel)

    def drop(self) -> None:
        """Drop a deferred request without a response."""
        if not self._answered:
            self._complete()
            self._counts.dropped += 1

    def refuse(self, code: int, remark: str) -> None:
        """Answer with an error, as the server itself does: in the server's own serialization
        (JSON).
        """
        self._complete()
        self._count_answer(code)
        if not self.command.flag & FLAG_ONEWAY:
            self.channel.send(_refusal(self.command, self.channel, code, remark))

    def _send(
        self,
        header: Header | None,
        code: int = ResponseCode.SUCCESS,
        body: Content | None = None,
        remark: str | None = None,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        command = self.command
        channel = self.channel
        if body is None:
            length = 0
        else:
            length = sum(map(len, body)) if isinstance(body, tuple) else len(body)
        try:
            frame = channel.encoder.response(
                command.opaque,
                code,
                header,
                length,
                command.serialization,
                remark,
                extra,
            )
        except LocalProtocolError as exc:
            channel.log(
                logging.ERROR,
                "answer dropped",
                "answer to %s of %s dropped: %s",
                name_of(command),
                channel.peer,
                exc,
            )
            frame = _refusal(command, channel, ResponseCode.SYSTEM_ERROR, str(exc))
            body = None
        channel.send(frame, body)

    def _count_answer(self, code: int) -> None:
        took_s = self.channel.now() - self.since
        if self.was_held:
            self._counts.answered_held(code, took_s)
        else:
            self._counts.answered(code, took_s)

    def _begin_count(self) -> bool:
        """Return whether the group has to count this request, too."""
        if self._counted or self._answered:
            return False
        self._counted = True
        body = self.command.body
        if body is not None and len(body) > PARKED_BYTES_FREE:
            self._parked = len(body)
            self.channel.park_bytes(self._parked)
        return True

    def _end_count(self) -> None:
        """Be a request that is not counted any longer; the caller tells the group."""
        self._counted = False
        if self._parked:
            self.channel.park_bytes(-self._parked)
            self._parked = 0

    def _complete(self) -> None:
        if self._answered:
            raise RuntimeError(f"{name_of(self.command)} of {self.channel.peer} answered twice")
        self._answered = True
        if self._counted:
            self._end_count()
            self._group.uncount(self.channel)


def defer_all(requests: Sequence[Request[Any]]) -> None:
    """Defer many requests of one group: those of a connection that stand together are counted
    together.
    """
    for channel, run in groupby(requests, key=attrgetter("channel")):
        counted = 0
        for request in run:
            request._deferred = True
            counted += request._begin_count()
        if counted:
            request._group.count(channel, counted)


def refuse(channel: Channel, command: Command, code: int, remark: str) -> None:
    if not command.flag & FLAG_ONEWAY:
        channel.send(_refusal(command, channel, code, remark))


def _refusal(command: Command, channel: Channel, code: int, remark: str) -> bytes:
    # The remark may be any text: characters that cannot be encoded must not prevent the response.
    remark = remark[:_REFUSAL_CHARS_MAX].encode("utf-8", "replace").decode()
    return channel.encoder.response(
        command.opaque, code, None, 0, Serialization.JSON, remark=remark
    )


_NAMES: Final = {int(code): code.name for code in RequestCode}


def name_of(command: Command) -> str:
    return f"{_NAMES.get(command.code, 'request')} ({command.code})"
