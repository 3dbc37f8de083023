"""One request over HTTP/1.1 and its answer, by h11. Sans-IO.

Bodies of requests are not read. What is not a request is answered with a status, never with an
error of ours. A connection carries one request: at one scrape every few seconds there is nothing to
gain from keeping it.
"""

from __future__ import annotations

from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, final
from urllib.parse import parse_qsl, urlsplit

import h11

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HEAD_BYTES_MAX: Final = 8 * 1024
_FIELDS_MAX: Final = 16
"""How many fields a query may have."""

TEXT: Final = "text/plain; charset=utf-8"
HTML: Final = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: str
    path: str
    """Without the query."""
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """By their names in lower case; several of a name joined with commas."""


@final
class Exchange:
    """A connection, from its first byte to the end of its answer."""

    def __init__(self) -> None:
        self._peer = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_head = False

    def receive(self, data: bytes) -> Request | HTTPStatus | None:
        """Take what the peer sent; empty at its end. Return the request once all of its head is
        there, what is wrong with it, or None.
        """
        try:
            self._peer.receive_data(data)
            event = self._peer.next_event()
        except h11.RemoteProtocolError as exc:
            return HTTPStatus(exc.error_status_hint)
        if not isinstance(event, h11.Request):
            return None
        self._is_head = event.method == b"HEAD"
        return _request(event)

    def answer(
        self,
        status: HTTPStatus,
        body: bytes | None = None,
        content_type: str = TEXT,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Return a whole answer, after which the connection closes; without a body it says why.

        An answer to HEAD is the same, but for the body.
        """
        if body is None:
            body = f"{status.value} {status.phrase}\n".encode()
        return b"".join(self.answer_pieces(status, [body], content_type, headers))

    def answer_pieces(
        self,
        status: HTTPStatus,
        body: Sequence[bytes],
        content_type: str = TEXT,
        headers: Mapping[str, str] | None = None,
    ) -> list[bytes]:
        """Return the same in pieces, which together are the answer; the body is not copied."""
        lines = {
            "Content-Type": content_type,
            "Content-Length": str(sum(map(len, body))),
            "Date": formatdate(usegmt=True),
            "Cache-Control": "no-store",
            "Connection": "close",
            **(headers or {}),
        }
        response = h11.Response(
            status_code=status.value, reason=status.phrase, headers=list(lines.items())
        )
        pieces = [self._peer.send(response)]
        if not self._is_head:
            pieces += [self._peer.send(h11.Data(data=each)) for each in body]
        pieces.append(self._peer.send(h11.EndOfMessage()))
        return [piece for piece in pieces if piece]


def _request(event: h11.Request) -> Request | HTTPStatus:
    headers: dict[str, str] = {}
    for raw_name, raw_value in event.headers:
        name, value = raw_name.decode("ascii"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    try:
        # Proxies send the whole address.
        target = urlsplit(event.target.decode("ascii"))
        query = dict(parse_qsl(target.query, keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError:
        return HTTPStatus.BAD_REQUEST
    return Request(event.method.decode("ascii"), target.path or "/", query, headers)
