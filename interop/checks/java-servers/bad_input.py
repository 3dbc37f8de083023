"""The same bad input for the stock broker and for our server, and what each does with it.

An outcome is what a client can see: an answer and its code, a closed connection, or nothing, and
whether the connection still serves afterwards. The words of remarks are shown but not compared.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import trio

from interop.support.cases import expect, say, show_columns
from rmq.errors import RemoteProtocolError
from rmq.remoting import headers
from rmq.remoting.codes import FLAG_ONEWAY, FLAG_RESPONSE, RequestCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.frame import FrameDecoder
from rmq.remoting.groups import SEND
from rmq.remoting.protocol import Requests
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Mapping

    from interop.support.cases import CaseTable
    from rmq.remoting.command import Command
    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request

ANSWER_TIMEOUT_S: Final = 2.0
SILENCE_S: Final = 0.7
OPAQUE: Final = 77
FRAME_BYTES_MAX: Final = 16 * 1024 * 1024
JSON, BINARY = 0, 1

_NAMED: Final = "marked mandatory in Java: a missing one is refused by name, read or not"

# Where we mean to differ, and why.
INTENDED: Final = {
    "extFields a list": "the frame is sound, so only this request is refused",
    "send without group": _NAMED,
    "send without default topic": _NAMED,
    "send without default queues": _NAMED,
    "send without topic, binary": "refused before the handler, as stock does where none catches:"
    " in the server's own serialization",
}


async def compare_bad_input(table: CaseTable, stock_address: str) -> None:
    """Show what both do, side by side, and add a case for all that agree and each that does not."""
    async with trio.open_nursery() as nursery:
        ours = RemotingServer(_table(), ServerConfig(host="127.0.0.1"))
        await nursery.start(ours.run)
        results = [
            (name, *await _outcomes(stock_address, f"127.0.0.1:{ours.port}", data))
            for name, data in INPUTS.items()
        ]
        nursery.cancel_scope.cancel()
    rows = [
        (name, stock.seen, rmq.seen, _verdict(name, stock, rmq)) for name, stock, rmq in results
    ]
    remarks = [f"{_short(stock.remark)} / {_short(rmq.remark)}" for _, stock, rmq in results]
    titles = ("bad input", "stock broker", "rmq", "verdict")
    show_columns(titles, rows, last_column=("remarks: stock / rmq", remarks))
    say("")

    with table.case("bad input", "the comparison sees good requests answered"):
        expect("good request", results[0][1:], (Outcome("code 0"), Outcome("code 0")))
    differing = [name for name, *_, verdict in rows if verdict == "DIFFERS"]
    with table.case("bad input", "outcomes differ nowhere but where intended") as case:
        expect("inputs", differing, [])
        case.note(f"{len(rows)} inputs")
    for name, _, _, verdict in rows:
        if name in INTENDED:
            with table.case("bad input", name) as case:
                # Were they the same by now, the exception would have to go.
                expect("outcomes", verdict, "intended")
                case.note(f"intended: {INTENDED[name]}")


async def _outcomes(stock_address: str, our_address: str, data: bytes) -> tuple[Outcome, Outcome]:
    outcomes: dict[str, Outcome] = {}

    async def find_out(address: str) -> None:
        outcomes[address] = await _outcome(address, data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(find_out, stock_address)
        nursery.start_soon(find_out, our_address)
    return outcomes[stock_address], outcomes[our_address]


def _verdict(name: str, stock: Outcome, rmq: Outcome) -> str:
    if stock.seen == rmq.seen:
        return "same"
    return "intended" if name in INTENDED else "DIFFERS"


def _short(remark: str | None) -> str:
    if remark is None:
        return "-"
    return remark if len(remark) <= 60 else remark[:57] + "..."


# ---- our side ------------------------------------------------------------------------------------


def _table() -> HandlerTable:
    """Serve what the inputs and the probe ask for, as a broker would."""
    table = HandlerTable()
    table.add(Requests.GET_BROKER_RUNTIME_INFO, _answer)
    table.add(Requests.SEND_MESSAGE_V2, _take, group=SEND)
    table.add(Requests.GET_MAX_OFFSET, _max_offset)
    return table


def _answer(request: Request[EmptyHeader]) -> None:
    request.reply(body=b'{"table":{}}')


def _take(request: Request[headers.SendMessageRequestV2]) -> None:
    request.reply(headers.SendMessageResponse(msg_id="0" * 32, queue_id=0, queue_offset=0))


def _max_offset(request: Request[headers.GetMaxOffsetRequest]) -> None:
    request.reply(headers.GetMaxOffsetResponse(offset=0))


# ---- outcomes ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Outcome:
    """What a client sees."""

    seen: str
    remark: str | None = None


async def _outcome(address: str, data: bytes) -> Outcome:
    host, _, port = address.partition(":")
    stream = await trio.open_tcp_stream(host, int(port))
    async with stream:
        connection = _Connection(stream)
        answer = await connection.exchange(data, OPAQUE, SILENCE_S)
        if connection.closed:
            return Outcome("closes")
        seen = "silent" if answer is None else f"code {answer.code}"
        if answer is not None and answer.serialization == BINARY:
            seen += " in binary"
        probe = _frame(_json_header(RequestCode.GET_BROKER_RUNTIME_INFO, opaque=OPAQUE + 1))
        alive = await connection.exchange(probe, OPAQUE + 1, ANSWER_TIMEOUT_S)
        if connection.closed:
            seen += ", then closes"
        elif alive is None:
            seen += ", then deaf"
        return Outcome(seen, None if answer is None else answer.remark)


class _Connection:
    """A raw connection that can send anything."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self._stream = stream
        self._decoder = FrameDecoder()
        self.closed = False

    async def exchange(self, data: bytes, opaque: int, timeout_s: float) -> Command | None:
        """Send bytes and return the answer with that number; None when none comes in time."""
        try:
            await self._stream.send_all(data)
            with trio.move_on_after(timeout_s):
                while True:
                    received = await self._stream.receive_some()
                    if not received:
                        self.closed = True
                        return None
                    self._decoder.feed(received)
                    while commands := self._decoder.take(32):
                        for command in commands:
                            if command.opaque == opaque:
                                return command
                    if self._decoder.error is not None:
                        raise RemoteProtocolError(f"bad answer: {self._decoder.error}")
        except trio.BrokenResourceError:
            self.closed = True
        return None


# ---- inputs --------------------------------------------------------------------------------------


def _frame(header: bytes, body: bytes = b"", *, kind: int = JSON) -> bytes:
    return struct.pack(">ii", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def _json_header(code: object, **members: Any) -> bytes:  # noqa: ANN401 - any JSON is the point
    header = {"code": code, "flag": 0, "language": "JAVA", "opaque": OPAQUE, "version": 409}
    return json.dumps({**header, **members}).encode()


def _binary_header(code: int, ext: bytes = b"", *, remark_length: int = 0) -> bytes:
    fixed = struct.pack(">hbhiii", code, 0, 409, OPAQUE, 0, remark_length)
    return fixed + struct.pack(">i", len(ext)) + ext


def _entry(key: bytes, value: bytes) -> bytes:
    return struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value


_INFO: Final = int(RequestCode.GET_BROKER_RUNTIME_INFO)
_SEND: Final = int(RequestCode.SEND_MESSAGE_V2)
_MAX_OFFSET: Final = int(RequestCode.GET_MAX_OFFSET)
# A topic with which any broker stores a message at once.
_FIELDS: Final = {
    "a": "producers",
    "b": "InteropBadInput",
    "c": "TBW102",
    "d": "4",
    "e": "0",
    "f": "0",
    "g": "0",
    "h": "0",
    "i": "",
    "j": "0",
    "k": "false",
    "m": "false",
}


def _send(fields: Mapping[str, object] | None, body: bytes = b"body") -> bytes:
    return _frame(_json_header(_SEND, extFields=fields), body)


def _without(*names: str) -> dict[str, str]:
    return {name: value for name, value in _FIELDS.items() if name not in names}


def _binary_send(fields: Mapping[str, str]) -> bytes:
    ext = b"".join(_entry(key.encode(), value.encode()) for key, value in fields.items())
    return _frame(_binary_header(_SEND, ext), b"body", kind=BINARY)


_GOOD: Final = _frame(_json_header(_INFO))

INPUTS: Final[dict[str, bytes]] = {
    # Nothing wrong: the comparison itself must work.
    "good request": _GOOD,
    "good send": _send(_FIELDS),
    "good send, binary": _binary_send(_FIELDS),
    # Frames.
    "unknown code": _frame(_json_header(9_999)),
    "unknown code, binary": _frame(_binary_header(9_999), kind=BINARY),
    "unknown code, one-way": _frame(_json_header(9_999, flag=FLAG_ONEWAY)),
    "known code, one-way": _frame(_json_header(_INFO, flag=FLAG_ONEWAY)),
    "answer to nothing": _frame(_json_header(0, flag=FLAG_RESPONSE)),
    "header longer than frame": struct.pack(">ii", 14, 100) + b"{}" + bytes(8),
    "frame length 0": struct.pack(">i", 0) + _GOOD,
    "frame length 3": struct.pack(">i", 3) + bytes(3) + _GOOD,
    "frame length -1": struct.pack(">i", -1) + bytes(8),
    "frame length 2^31-1": struct.pack(">i", 2**31 - 1) + bytes(8),
    "frame one byte too large": struct.pack(">i", FRAME_BYTES_MAX - 3) + bytes(8),
    "frame of the largest size, unfinished": struct.pack(">ii", FRAME_BYTES_MAX - 4, 10),
    "truncated frame": _GOOD[:-5],
    "four bytes of a good length": _GOOD[:4],
    "HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "unknown serialization 2": _frame(_json_header(_INFO), kind=2),
    "unknown serialization 127": _frame(_json_header(_INFO), kind=127),
    "no header at all": _frame(b""),
    # JSON headers.
    "broken JSON": _frame(b'{"code":28,"opaque":77'),
    "JSON then more": _frame(_json_header(_INFO) + b"}}"),
    "JSON null": _frame(b"null"),
    "JSON array": _frame(b"[28]"),
    "JSON number": _frame(b"28"),
    "broken UTF-8 in remark": _frame(_json_header(_INFO)[:-1] + b',"remark":"\xff\xfe"}'),
    "code as text": _frame(_json_header("28")),
    "code not a number": _frame(_json_header("info")),
    "code null": _frame(_json_header(None)),
    "code beyond 32 bits": _frame(_json_header(2**40)),
    "no code": _frame(b'{"opaque":77,"flag":0}'),
    "flag as text": _frame(_json_header(_INFO, flag="0")),
    "version null": _frame(_json_header(_INFO, version=None)),
    "unknown language": _frame(_json_header(_INFO, language="COBOL")),
    "language as number": _frame(_json_header(_INFO, language=3)),
    "language an object": _frame(_json_header(_INFO, language={})),
    "remark a number": _frame(_json_header(_INFO, remark=5)),
    "extFields null": _frame(_json_header(_INFO, extFields=None)),
    "extFields a list": _frame(_json_header(_INFO, extFields=["a"])),
    "extFields with numbers": _frame(
        _json_header(_MAX_OFFSET, extFields={"topic": "TBW102", "queueId": 0})
    ),
    "extFields nested": _frame(
        _json_header(_MAX_OFFSET, extFields={"topic": "TBW102", "queueId": "0", "x": {"y": 1}})
    ),
    "unknown members": _frame(_json_header(_INFO, more={"deep": [1, 2]})),
    "single quotes": _frame(b"{'code':28,'opaque':77}"),
    "bare names": _frame(b"{code:28,opaque:77}"),
    "member twice": _frame(b'{"code":9999,"opaque":77,"code":28}'),
    # Typed headers.
    "send without fields": _send(None),
    "send without topic": _send(_without("b")),
    "send without group": _send(_without("a")),
    "send without default topic": _send(_without("c")),
    "send without default queues": _send(_without("d")),
    "send without queue": _send(_without("e")),
    "send without sysFlag": _send(_without("f")),
    "send without born time": _send(_without("g")),
    "send without flag": _send(_without("h")),
    "send without optional fields": _send(_without("i", "j", "k", "m")),
    "send without body": _send(_FIELDS, b""),
    "send, queue not a number": _send({**_FIELDS, "e": "first"}),
    "send, queue beyond 32 bits": _send({**_FIELDS, "e": "4294967296"}),
    "send, queue with sign": _send({**_FIELDS, "e": "+0"}),
    "send, odd boolean": _send({**_FIELDS, "k": "perhaps"}),
    "send without topic, binary": _binary_send(_without("b")),
    "offset query without queue": _frame(_json_header(_MAX_OFFSET, extFields={"topic": "T"})),
    "offset query, queue not a number": _frame(
        _json_header(_MAX_OFFSET, extFields={"topic": "T", "queueId": "first"})
    ),
    # Binary headers.
    "binary header cut short": _frame(_binary_header(_INFO)[:12], kind=BINARY),
    "binary remark longer than header": _frame(
        _binary_header(_INFO, remark_length=1_000), kind=BINARY
    ),
    "binary remark of negative length": _frame(
        _binary_header(_INFO, remark_length=-1), kind=BINARY
    ),
    "binary fields longer than header": _frame(
        _binary_header(_INFO)[:-4] + struct.pack(">i", 1_000), kind=BINARY
    ),
    "binary field longer than fields": _frame(
        _binary_header(_INFO, struct.pack(">h", 500) + b"ab"), kind=BINARY
    ),
    "binary header with a rest": _frame(_binary_header(_INFO) + b"rest", kind=BINARY),
    "binary field twice": _frame(
        _binary_header(
            _MAX_OFFSET,
            _entry(b"topic", b"TBW102") + _entry(b"queueId", b"x") + _entry(b"queueId", b"0"),
        ),
        kind=BINARY,
    ),
}
