"""Heads of HTTP requests, and answers to them."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.broker.metrics.http import HEAD_BYTES_MAX, Request, answer, parse_head, take_head

# As Prometheus 2.42 sends it.
SCRAPE = (
    b"GET /metrics HTTP/1.1\r\n"
    b"Host: 192.0.2.1:5557\r\n"
    b"User-Agent: Prometheus/2.42.0\r\n"
    b"Accept: application/openmetrics-text;version=1.0.0,*/*;q=0.1\r\n"
    b"Accept-Encoding: gzip\r\n"
    b"X-Prometheus-Scrape-Timeout-Seconds: 10\r\n\r\n"
)


def read(received: bytes) -> Request | HTTPStatus | None:
    head = take_head(received)
    return parse_head(head) if isinstance(head, bytes) else head


def test_the_request_of_a_prometheus_is_understood() -> None:
    request = read(SCRAPE)
    assert isinstance(request, Request)
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers["accept"] == "application/openmetrics-text;version=1.0.0,*/*;q=0.1"
    assert request.headers["host"] == "192.0.2.1:5557"


def test_a_request_is_understood_once_its_last_byte_is_there() -> None:
    for size in range(len(SCRAPE)):
        assert take_head(SCRAPE[:size]) is None
    assert read(SCRAPE) == read(SCRAPE + b"what follows does not matter")


@pytest.mark.parametrize(
    ("received", "method", "path"),
    [
        pytest.param(b"GET / HTTP/1.0\n\n", "GET", "/", id="bare line ends"),
        pytest.param(b"\r\n\r\nGET /a HTTP/1.1\r\n\r\n", "GET", "/a", id="empty lines before"),
        pytest.param(b"GET /metrics?name[]=x HTTP/1.1\r\n\r\n", "GET", "/metrics", id="query"),
        pytest.param(b"GET http://h:1/metrics HTTP/1.1\r\n\r\n", "GET", "/metrics", id="proxy"),
        pytest.param(b"GET http://h HTTP/1.1\r\n\r\n", "GET", "/", id="proxy, no path"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n\r\n", "OPTIONS", "*", id="asterisk"),
        pytest.param(b"get /metrics HTTP/1.1\r\n\r\n", "get", "/metrics", id="methods have a case"),
    ],
)
def test_forms_of_requests(received: bytes, method: str, path: str) -> None:
    assert read(received) == Request(method, path, {})


def test_headers_of_one_name_are_joined() -> None:
    request = read(b"GET / HTTP/1.1\r\nAccept: a/b\r\nACCEPT:\tc/d \r\nx:\r\n\r\n")
    assert request == Request("GET", "/", {"accept": "a/b,c/d", "x": ""})


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01", id="TLS"),
        pytest.param(b"\x00\x00\x01\x00", id="remoting"),
        pytest.param(b"GET /metrics\r\n\r\n", id="HTTP/0.9"),
        pytest.param(b"GET /metrics HTTP/2.0\r\n\r\n", id="another HTTP"),
        pytest.param(b"GET  /metrics HTTP/1.1\r\n\r\n", id="two blanks"),
        pytest.param(b"GET /a b HTTP/1.1\r\n\r\n", id="blank in the path"),
        pytest.param(b"GET /\xc3\xa4 HTTP/1.1\r\n\r\n", id="not ASCII"),
        pytest.param(b"GET / HTTP/1.1\r\nno colon\r\n\r\n", id="header without colon"),
        pytest.param(b"GET / HTTP/1.1\r\na b: c\r\n\r\n", id="blank in a name"),
        pytest.param(b"GET / HTTP/1.1\r\n folded: x\r\n\r\n", id="folded line"),
        pytest.param(b"GET / HTTP/1.1\r\na: \x00\r\n\r\n", id="control character"),
        pytest.param(b"GET / HTTP/1.1\r\na: x\ry\r\n\r\n", id="lone carriage return"),
        pytest.param(b"G\x00T / HTTP/1.1\r\n\r\n", id="method"),
    ],
)
def test_what_is_no_request_is_a_bad_one(received: bytes) -> None:
    assert read(received) is HTTPStatus.BAD_REQUEST


def test_a_head_is_taken_up_to_its_limit() -> None:
    start = b"GET / HTTP/1.1\r\na: "
    filling = b"x" * (HEAD_BYTES_MAX - len(start))
    assert isinstance(read(start + filling + b"\r\n\r\n"), Request)
    too_large = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert read(start + filling + b"x\r\n\r\n") is too_large
    assert read(start + filling + b"x") is too_large
    assert read(b"\r\n" * HEAD_BYTES_MAX) is too_large


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda x: b"GET / HTTP/1.1\r\n" + x))
def test_whatever_comes_is_judged_and_never_raises(received: bytes) -> None:
    for each in (received, received + b"\r\n\r\n"):
        request = read(each)
        if isinstance(request, Request):
            texts = [request.method, request.path, *request.headers, *request.headers.values()]
            assert not any(c in text for text in texts for c in "\r\n\0")


def test_an_answer_has_its_length_and_ends_the_connection() -> None:
    whole = answer(HTTPStatus.OK, b"body", "text/x", headers={"Allow": "GET"})
    head, _, body = whole.partition(b"\r\n\r\n")
    assert body == b"body"
    lines = head.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 200 OK"
    expected = {b"Content-Type: text/x", b"Content-Length: 4", b"Connection: close", b"Allow: GET"}
    assert expected <= set(lines)


def test_an_answer_to_head_is_the_same_without_its_body() -> None:
    assert b"Content-Length: 4\r\n" in answer(HTTPStatus.OK, b"body", is_head=True)
    assert answer(HTTPStatus.OK, b"body", is_head=True).endswith(b"\r\n\r\n")
