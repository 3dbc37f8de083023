"""Whole tables as slaves copy them: all at once, or in parts (`rmq.broker.tables.parts`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from rmq.broker.tables.parts import KNOWN_FIELD, SAME_FIELD, wanted_part
from rmq.errors import RefusedError
from rmq.remoting.codes import ResponseCode
from rmq.steps import in_steps

if TYPE_CHECKING:
    from rmq.broker.tables.groups import GroupTable
    from rmq.broker.tables.parts import WantedPart
    from rmq.broker.tables.topics import TopicTable
    from rmq.remoting.header import Header
    from rmq.remoting.request import Request

_HEADER_BYTES: Final = 1024
"""Room for what comes before the body of an answer."""
_ENTRIES_AT_ONCE: Final = 1000
"""A shorter table is given as it was encoded last; a longer one takes long to encode."""


def part_of(request: Request[Any]) -> WantedPart | None:
    """Return which part of a table a request asks for; None: all of it."""
    try:
        return wanted_part(request.command.ext_fields)
    except ValueError as exc:
        raise RefusedError(ResponseCode.SYSTEM_ERROR, str(exc)) from None


def refuse_long(request: Request[Any], what: str, size: int, remedy: str) -> None:
    """Raise `RefusedError` if a table of this size does not fit into one response."""
    limit = request.channel.encoder.frame_bytes_max - _HEADER_BYTES
    if size > limit:
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"the {what} of this broker are more than the {limit} bytes that one answer holds."
            f" Slaves of rmq copy them in parts, stock ones cannot: {remedy}",
        )


async def answer_table(
    request: Request[Any], table: TopicTable | GroupTable, what: str, header: Header | None = None
) -> None:
    """Answer with all topics or groups, or with the part that is asked for."""
    wanted = part_of(request)
    if wanted is None:
        body = await in_steps(table.encoding())
        refuse_long(request, what, len(body), f"delete {what} that are not used")
        request.reply(header, body=body)
        return
    if not wanted.place:
        if request.command.ext_fields.get(KNOWN_FIELD) == table.version_text:
            request.reply(header, extra={SAME_FIELD: table.version_text})
            return
        if len(table) <= _ENTRIES_AT_ONCE:
            body = await in_steps(table.encoding())
            if len(body) <= wanted.bytes_max:
                request.reply(header, body=body)
                return
    part = await in_steps(table.part(wanted))
    request.reply(header, body=part.body, extra=part.fields or None)
