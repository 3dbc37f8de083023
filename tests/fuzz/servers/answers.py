"""What servers under fuzz answered: whether it makes sense, and what they promised with it."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from typing import TYPE_CHECKING, Final, final

from rmq.errors import RmqError
from rmq.model.properties import decode_properties
from rmq.model.record import parse_message_id
from rmq.remoting.bodies import decode_batch
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import (
    SendMessageRequest,
    SendMessageRequestV2,
    SendMessageResponse,
)
from rmq.remoting.protocol import REQUESTS

if TYPE_CHECKING:
    from rmq.remoting.command import Command
    from tests.fuzz.servers.peer import Server
    from tests.fuzz.servers.values import Values
    from tests.fuzz.servers.watch import Note

_HANDED_ON: Final = (
    RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY,
)
"""Requests whose answers are a consumer's, whatever it says."""
_CODES: Final = frozenset(map(int, ResponseCode))
_PYTHON_ERROR: Final = re.compile(r"[A-Z]\w*(?:Error|Exception|Group): ?")
_LENIENT_BYTES: Final = 1 << 30


@final
class Answers:
    """Looks at every answer."""

    def __init__(self, values: Values, note: Note) -> None:
        self._values = values
        self._note = note
        self.counts: Counter[tuple[str, int]] = Counter()
        """How often requests of a code were answered with a code."""
        self.ledger: dict[int, tuple[int, int]] = {}
        """Length and checksum of acknowledged messages, by physical offset."""

    def check(self, server: Server, request: Command, answer: Command) -> None:
        """Look at an answer, whatever the request was."""
        self.counts[f"{server.name} {request.code}", answer.code] += 1
        if request.code not in _HANDED_ON:
            self._check_code(server, request, answer)
            if answer.code == ResponseCode.SUCCESS:
                try:
                    self._read(request, answer)
                except (RmqError, ValueError) as exc:
                    self._note(
                        f"{server.name} {request.code}: the answer cannot be read",
                        f"{exc}\n  {describe(request)}",
                    )

    def acknowledge(self, message_id: str, body: bytes) -> None:
        """Note that a message was taken."""
        _, offset = parse_message_id(message_id)
        self.ledger[offset] = (len(body), zlib.crc32(body))

    def _check_code(self, server: Server, request: Command, answer: Command) -> None:
        remark = answer.remark or ""
        if answer.code not in _CODES:
            self._note(f"{server.name} {request.code}: unknown code {answer.code}", remark)
        if answer.code == ResponseCode.SYSTEM_ERROR and not remark.strip():
            self._note(f"{server.name} {request.code}: no reason given", describe(request))
        if _PYTHON_ERROR.match(remark):
            self._note(
                f"{server.name} {request.code}: {remark.partition(':')[0]}",
                f"{remark}\n  {describe(request)}",
            )

    def _read(self, request: Command, answer: Command) -> None:
        try:
            code = RequestCode(request.code)
        except ValueError:
            return
        declared = REQUESTS[code]
        if declared.response_header is not None:
            answer.header(declared.response_header)
        if declared.response_body is not None and answer.body:
            declared.response_body.decode(answer.body, lenient_bytes_max=_LENIENT_BYTES)
        if code is RequestCode.SEND_MESSAGE:
            self._remember(request, request.header(SendMessageRequest), answer)
        elif code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
            self._remember(request, request.header(SendMessageRequestV2), answer)

    def _remember(
        self,
        request: Command,
        header: SendMessageRequest | SendMessageRequestV2,
        answer: Command,
    ) -> None:
        stored = answer.header(SendMessageResponse)
        bodies = [request.body or b""]
        if header.batch:
            bodies = [message.body for message in decode_batch(request.body)]
        ids = stored.msg_id.split(",")
        if len(ids) != len(bodies):
            raise ValueError(f"{len(ids)} ids for {len(bodies)} messages: {stored.msg_id}")
        for message_id, body in zip(ids, bodies, strict=True):
            self.acknowledge(message_id, body)
            self._values.remember(message_id, parse_message_id(message_id)[1])
        pairs = decode_properties((header.properties or "").encode("utf-8", "replace"))
        if pairs.get("TRAN_MSG", "").lower() == "true" and not header.batch:
            self._values.remember_half(
                pairs.get("PGROUP", ""), stored.queue_offset, parse_message_id(ids[0])[1]
            )


def describe(command: Command) -> str:
    """Return a request in a line."""
    try:
        fields: object = {
            name: value if len(value) < 200 else f"{value[:80]}... ({len(value)})"
            for name, value in command.ext_fields.items()
        }
    except RmqError as exc:
        fields = exc
    body = command.body or b""
    return (
        f"{command.code} {command.serialization.name} version {command.version} flag"
        f" {command.flag} {fields} body {len(body)}: {body[:300]!r}"
    )
