"""Just enough HTTP/1.1 to be scraped: heads of requests in, whole answers out. Sans-IO.

A head is the request line and the headers, up to the empty line; bodies of requests are not read.
What is not a request is answered with a status, never with an error of ours. A connection carries
one request: at one scrape every few seconds there is nothing to gain from keeping it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HEAD_BYTES_MAX: Final = 8 * 1024

TEXT: Final = "text/plain; charset=utf-8"

# RFC 9110, 5.6.2: what methods and names of headers consist of.
_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(%b) ([!-~]+) HTTP/1\.[0-9]" % _TOKEN)
_HEADER: Final = re.compile(rb"(%b):[ \t]*([\t -~\x80-\xff]*?)[ \t]*" % _TOKEN)
_FIRST_BYTE: Final = re.compile(rb"\r|\n|%b" % _TOKEN)
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_AUTHORITY: Final = re.compile(r"https?://[^/?]*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Request:
    """The head of a request."""

    method: str
    path: str
    """Without the query."""
    headers: Mapping[str, str]
    """By their names in lower case; several of a name joined with commas."""


def take_head(received: bytes | bytearray) -> bytes | HTTPStatus | None:
    """Return the head of a request if all of it was received, None if not, else what is wrong."""
    # Empty lines before a request are to be overlooked (RFC 9112, 2.2).
    begun = bytes(received).lstrip(b"\r\n")
    end = _HEAD_END.search(begun)
    if end is not None and end.start() <= HEAD_BYTES_MAX:
        return begun[: end.start()]
    if len(received) > HEAD_BYTES_MAX:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    if begun and not _FIRST_BYTE.match(begun):
        # TLS, for example: it would wait for a response until the timeout.
        return HTTPStatus.BAD_REQUEST
    return None


def parse_head(head: bytes) -> Request | HTTPStatus:
    """Return the request that a head asks for, or what is wrong with it."""
    first, *rest = re.split(rb"\r?\n", head)
    request_line = _REQUEST_LINE.fullmatch(first)
    if request_line is None:
        return HTTPStatus.BAD_REQUEST
    headers: dict[str, str] = {}
    for line in rest:
        header = _HEADER.fullmatch(line)
        if header is None:
            return HTTPStatus.BAD_REQUEST
        name, value = header[1].decode("ascii").lower(), header[2].decode("latin-1")
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    target = request_line[2].decode("ascii")
    # Proxies send the whole address.
    path = _AUTHORITY.sub("", target, count=1).partition("?")[0]
    return Request(request_line[1].decode("ascii"), path or "/", headers)


def answer(
    status: HTTPStatus,
    body: bytes | None = None,
    content_type: str = TEXT,
    *,
    is_head: bool = False,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """Return a whole answer, after which the connection closes; without a body it says why."""
    if body is None:
        body = f"{status.value} {status.phrase}\n".encode()
    lines = {
        "Content-Type": content_type,
        "Content-Length": str(len(body)),
        "Date": formatdate(usegmt=True),
        "Connection": "close",
        **(headers or {}),
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    start = f"HTTP/1.1 {status.value} {status.phrase}\r\n{head}\r\n".encode("latin-1")
    return start if is_head else start + body
