"""Asking a stock server and reading all of its answer with our classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar, final

from interop.support.cases import expect, expect_true
from rmq.remoting.codes import LanguageCode, RequestCode, ResponseCode, Serialization
from rmq.remoting.header import ext_fields_of
from rmq.remoting.protocol import REQUESTS

if TYPE_CHECKING:
    from rmq.remoting.bodies import Body
    from rmq.remoting.client import RemotingClient
    from rmq.remoting.command import Command
    from rmq.remoting.header import Header

    H = TypeVar("H", bound=Header)
    B = TypeVar("B", bound=Body)

STOCK_VERSION: Final = 407
"""MQVersion ordinal of V4_9_7."""
TIMEOUT_S: Final = 10.0


@final
class Asker:
    """Sends requests to one server with one header serialization and checks every answer."""

    def __init__(self, client: RemotingClient, address: str) -> None:
        self.client = client
        self.address = address

    async def ask(
        self,
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
        answered: ResponseCode = ResponseCode.SUCCESS,
        handed_on: bool = False,
    ) -> Command:
        """Return the answer, which must have the code `answered`.

        A successful one is also read with the classes that belong to the request: they must know
        every field of it and write it again as it came. One that is `handed_on` was written by a
        client, not by the server.
        """
        answer = await self.client.request(
            self.address, code, header, body=body, timeout_s=TIMEOUT_S
        )
        expect(f"{code.name} ({answer.remark})", answer.code, int(answered))
        if not handed_on:
            expect("version", answer.version, STOCK_VERSION)
            expect("language", answer.language, LanguageCode.JAVA)
        if answered is ResponseCode.SUCCESS:
            self._read_header(code, answer)
            self._read_body(code, answer)
        return answer

    async def header(
        self, header_class: type[H], code: RequestCode, header: Header | None = None
    ) -> H:
        """Return the answer's header."""
        return (await self.ask(code, header)).header(header_class)

    async def body(
        self,
        body_class: type[B],
        code: RequestCode,
        header: Header | None = None,
        *,
        body: bytes | None = None,
    ) -> B:
        """Return the answer's body."""
        return body_class.decode((await self.ask(code, header, body=body)).body)

    def _read_header(self, code: RequestCode, answer: Command) -> None:
        header_class = REQUESTS[code].response_header
        if header_class is None:
            expect("extFields", answer.ext_fields, {})
            return
        written = ext_fields_of(answer.header(header_class))
        expect("extFields written again", written, answer.ext_fields)

    def _read_body(self, code: RequestCode, answer: Command) -> None:
        body_class = REQUESTS[code].response_body
        if body_class is None or answer.body is None:
            return
        body = body_class.decode(answer.body)
        # Stock nameservers write routes as standard JSON for a client of our version.
        standard = code is RequestCode.GET_ROUTEINFO_BY_TOPIC
        written = body.encode(standard=standard)
        expect(f"{body_class.__name__} read again", body_class.decode(written), body)
        # The order of a Java set also depends on its history, so bytes may have other places.
        expect(f"{body_class.__name__} written again", sorted(written), sorted(answer.body))


def expect_serialization(answer: Command, serialization: Serialization) -> None:
    expect("serialization of the answer", answer.serialization, serialization)


def records_in(body: bytes | None) -> int:
    """Return how many stored messages a pull or a query brought; each begins with its size."""
    expect_true("a body", body)
    assert body is not None
    count = position = 0
    while position < len(body):
        size = int.from_bytes(body[position : position + 4], "big")
        expect_true(f"a record of {size} bytes at {position}", 91 <= size <= len(body) - position)
        position += size
        count += 1
    return count
