"""Requests for servers under fuzz: sound ones, ones at the edge, and ones that are not sound.

`Maker.stream` gives the bytes of one request, `expected` says what a server owes for a stream of
bytes: it reads them with the decoder servers use, so that damaged bytes have an outcome, too.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import msgspec

from rmq.errors import HeaderError, LocalProtocolError
from rmq.model import flags
from rmq.model.pull_flags import FLAG_SUSPEND
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    VERSION,
    LanguageCode,
    RequestCode,
    Serialization,
)
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import EndTransactionRequest, PullMessageRequest
from rmq.remoting.layout import FRAME_PREFIX
from tests.fuzz.mutations import mutated
from tests.fuzz.servers.pools import NO_NUMBERS, NO_TEXTS
from tests.fuzz.servers.values import fields_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rmq.remoting.command import Command
    from rmq.remoting.dispatch import HandlerTable
    from rmq.remoting.frame import FrameDecoder
    from rmq.remoting.header import Header
    from tests.fuzz.servers.values import Values

UNKNOWN_CODES: Final = (0, 1, 9, 13, 16, 22, 99, 220, 326, 330, 9999, -1, 32_767, -(2**31))
_VERSIONS: Final = (VERSION, VERSION, VERSION, 0, 1, 71, 121, 277, 400, 401, 2**31 - 1, -1)
_LANGUAGES: Final = (*("JAVA",) * 6, "CPP", "GO", "PYTHON", "DELPHI", "KLINGON", "")


class Owed(NamedTuple):
    """What a server owes for a stream of bytes."""

    requests: list[Command]
    """Requests of which each gets exactly one answer."""
    quiet: list[Command]
    """Requests of which each gets one answer at most."""
    silent: int
    """Frames that must not be answered: one-way requests and responses."""
    is_sound: bool
    """Whether the connection stays open."""


def expected(
    stream: bytes,
    served: Mapping[int, type[Header]],
    decoder: FrameDecoder,
    *,
    answers_unknown: bool,
) -> Owed:
    """Read a stream as a server does and tell what comes of it.

    `decoder` has read all that was sent on the connection before.
    """
    decoder.feed(stream)
    requests: list[Command] = []
    quiet: list[Command] = []
    silent = 0
    while commands := decoder.take(100):
        for command in commands:
            if command.flag & (FLAG_RESPONSE | FLAG_ONEWAY):
                silent += 1
            elif command.code not in served:
                (requests if answers_unknown else quiet).append(command)
            elif _may_rest(command):
                quiet.append(command)
            else:
                requests.append(command)
    return Owed(requests, quiet, silent, decoder.error is None)


def _may_rest(command: Command) -> bool:
    """Tell whether RocketMQ 4.9.8 leaves a request unanswered: a pull that waits for messages, and
    a transaction that its producer has not decided.
    """
    try:
        if command.code == RequestCode.PULL_MESSAGE:
            return bool(command.header(PullMessageRequest).sys_flag & FLAG_SUSPEND)
        if command.code == RequestCode.END_TRANSACTION:
            decision = command.header(EndTransactionRequest).commit_or_rollback
            return decision not in (flags.TRANSACTION_COMMIT, flags.TRANSACTION_ROLLBACK)
    except HeaderError:
        pass
    return False


ROLE_CHANGES: Final = frozenset(
    {
        RequestCode.HA_PROMOTE,
        RequestCode.HA_DEMOTE,
        RequestCode.HA_RESYNC,
        RequestCode.HA_STEP_DOWN,
        RequestCode.HA_FENCE,
        RequestCode.HA_RENOUNCE,
    }
)
"""Left out: they do what they are told, and a broker that is a slave takes no messages."""


@final
class Maker:
    """Makes requests for one server."""

    def __init__(self, table: HandlerTable, values: Values) -> None:
        self.served = {
            code: entry.header_class
            for code, entry in sorted(table.entries.items())
            if code not in ROLE_CHANGES
        }
        self.values = values
        self.chance = values.chance
        self._codes = list(self.served)
        self._opaque = 0

    def code(self) -> int:
        """Return a code that is served, or sometimes one that is not."""
        if self.chance.random() < 0.02:
            return self.chance.choice(UNKNOWN_CODES)
        return self.chance.choice(self._codes)

    def stream(self, code: int | None = None, *, damage: float = 0.0) -> bytes:
        """Return a request, of the given code or of any; with a chance of `damage` broken bytes."""
        chance = self.chance
        code = self.code() if code is None else code
        fields = self.fields(code)
        body = self.values.body(code)
        # Most requests have nothing or only one thing wrong: others are refused at the first.
        match chance.randrange(10):
            case 0:
                self._spoil_field(code, fields)
            case 1:
                body = self.values.broken_body(body)
            case 2 if chance.random() < 0.3:
                self._spoil_field(code, fields)
                self._spoil_field(code, fields)
                body = self.values.broken_body(body)
        frame = self.frame(code, fields, body)
        if chance.random() < damage:
            frame = mutated(frame, self.frame(self.code(), {}, b""), chance)
        return frame

    def fields(self, code: int, **fixed: object) -> dict[str, Any]:
        """Return header fields for a request by their names on the wire."""
        header_class = self.served.get(code)
        if header_class is None:
            return {}
        fields: dict[str, Any] = {}
        for field in fields_of(header_class):
            if field.name in fixed:
                value: object = fixed[field.name]
            elif not field.required and self.chance.random() < 0.3:
                continue
            else:
                value = self.values.member(field.name, field.type)
            if value is not None:
                fields[field.encode_name] = _wire_text(value)
        if code == RequestCode.END_TRANSACTION and self.values.halves and not fixed:
            self._point_to_half(fields)
        return fields

    def frame(
        self,
        code: int,
        fields: Mapping[str, Any],
        body: bytes = b"",
        *,
        flag: int | None = None,
        opaque: int | None = None,
        serialization: Serialization | None = None,
    ) -> bytes:
        """Return a frame; what is not given is drawn.

        A binary header cannot hold everything: what does not fit gets one of JSON.
        """
        chance = self.chance
        if flag is None:
            flag = FLAG_ONEWAY if chance.random() < 0.05 else 0
        if opaque is None:
            self._opaque += 1
            opaque = self._opaque
        version = chance.choice(_VERSIONS)
        language = chance.choice(_LANGUAGES)
        if serialization is None:
            serialization = chance.choice((Serialization.JSON, *Serialization))
        if serialization is Serialization.ROCKETMQ:
            binary = _binary(code, fields, body, flag, opaque, version)
            if binary is not None:
                return binary
        header = json.dumps(
            {
                "code": code,
                "extFields": fields,
                "flag": flag,
                "language": language,
                "opaque": opaque,
                "serializeTypeCurrentRPC": "JSON",
                "version": version,
            }
        ).encode()
        return FRAME_PREFIX.pack(4 + len(header) + len(body), len(header)) + header + body

    def response(self) -> bytes:
        """Return an answer that nobody waits for."""
        chance = self.chance
        body = self.values.broken_body(b"{}")
        opaque = chance.choice((0, 1, 2, 3, chance.randrange(100), -1, 2**31 - 1))
        code = chance.choice((0, 1, 2, 17, 9999, -1))
        return self.frame(code, {}, body, flag=chance.choice((1, 1, 3)), opaque=opaque)

    def _spoil_field(self, code: int, fields: dict[str, Any]) -> None:
        if not fields:
            fields[self.values.edge_text()] = self.values.edge_text()
            return
        chance = self.chance
        name = chance.choice(list(fields))
        match chance.randrange(5):
            case 0:
                del fields[name]
            case 1:
                fields[name] = chance.choice(NO_NUMBERS)
            case 2:
                fields[name] = chance.choice(NO_TEXTS)
            case 3:
                fields[name] = str(chance.choice((2**31, -(2**31) - 1, 2**63, 10**40)))
            case _:
                fields[name] = self.values.edge_text()

    def _point_to_half(self, fields: dict[str, Any]) -> None:
        group, queue_offset, physical_offset = self.chance.choice(self.values.halves)
        fields["producerGroup"] = group
        fields["tranStateTableOffset"] = str(queue_offset)
        fields["commitLogOffset"] = str(physical_offset)


def _wire_text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def _binary(
    code: int, fields: Mapping[str, Any], body: bytes, flag: int, opaque: int, version: int
) -> bytes | None:
    """Return a frame with a binary header; None if it cannot hold this."""
    texts = {
        name.encode("utf-8", "replace").decode(): str(value).encode("utf-8", "replace").decode()
        for name, value in fields.items()
        if value is not None
    }
    try:
        head = encode_frame(
            code=code,
            flag=flag,
            opaque=opaque,
            extra=texts,
            body_length=len(body),
            serialization=Serialization.ROCKETMQ,
            language=LanguageCode.JAVA,
            version=version,
        )
    except (LocalProtocolError, msgspec.MsgspecError):
        return None
    return head + body
