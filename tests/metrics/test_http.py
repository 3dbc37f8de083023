"""Heads of HTTP requests, and answers to them."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.metrics.http import HEAD_BYTES_MAX, Exchange, Request

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
    return Exchange().receive(received)


def test_the_request_of_a_prometheus_is_understood() -> None:
    request = read(SCRAPE)
    assert isinstance(request, Request)
    assert (request.method, request.path) == ("GET", "/metrics")
    assert request.headers["accept"] == "application/openmetrics-text;version=1.0.0,*/*;q=0.1"
    assert request.headers["host"] == "192.0.2.1:5557"


def test_a_request_is_understood_once_its_last_byte_is_there() -> None:
    exchange = Exchange()
    for byte in SCRAPE[:-1]:
        assert exchange.receive(bytes((byte,))) is None
    assert exchange.receive(SCRAPE[-1:]) == read(SCRAPE)
    assert read(SCRAPE) == read(SCRAPE + b"what follows does not matter")


HOST = b"Host: h\r\n"


@pytest.mark.parametrize(
    ("received", "method", "path", "query"),
    [
        pytest.param(b"GET / HTTP/1.0\n\n", "GET", "/", {}, id="bare line ends"),
        pytest.param(
            b"GET /metrics?queues=a%26b,c&x= HTTP/1.1\r\n" + HOST,
            "GET",
            "/metrics",
            {"queues": "a&b,c", "x": ""},
            id="query",
        ),
        pytest.param(
            b"GET http://h:1/metrics HTTP/1.1\r\n" + HOST, "GET", "/metrics", {}, id="proxy"
        ),
        pytest.param(b"GET http://h HTTP/1.1\r\n" + HOST, "GET", "/", {}, id="proxy, no path"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\n" + HOST, "OPTIONS", "*", {}, id="asterisk"),
        pytest.param(b"get /m HTTP/1.1\r\n" + HOST, "get", "/m", {}, id="methods have a case"),
    ],
)
def test_forms_of_requests(received: bytes, method: str, path: str, query: dict[str, str]) -> None:
    request = read(received + b"\r\n")
    assert isinstance(request, Request)
    assert (request.method, request.path, request.query) == (method, path, query)


def test_headers_of_one_name_are_joined() -> None:
    request = read(b"GET / HTTP/1.0\r\nAccept: a/b\r\nACCEPT:\tc/d \r\nx:\r\n\r\n")
    assert request == Request("GET", "/", {}, {"accept": "a/b,c/d", "x": ""})


@pytest.mark.parametrize(
    "received",
    [
        pytest.param(b"\x16\x03\x01\x02\x00\x01", id="TLS"),
        pytest.param(b"\x00\x00\x01\x00", id="remoting"),
        pytest.param(b"GET /metrics\r\n\r\n", id="HTTP/0.9"),
        pytest.param(b"GET /metrics HTTP/1.1\r\n\r\n", id="no host"),
        pytest.param(b"GET  /metrics HTTP/1.0\r\n\r\n", id="two blanks"),
        pytest.param(b"GET /a b HTTP/1.0\r\n\r\n", id="blank in the path"),
        pytest.param(b"GET /\xc3\xa4 HTTP/1.0\r\n\r\n", id="not ASCII"),
        pytest.param(b"GET http://[ HTTP/1.0\r\n\r\n", id="half an address"),
        pytest.param(b"GET /?" + b"a=b&" * 50 + b" HTTP/1.0\r\n\r\n", id="endless query"),
        pytest.param(b"GET / HTTP/1.0\r\nno colon\r\n\r\n", id="header without colon"),
        pytest.param(b"GET / HTTP/1.0\r\na b: c\r\n\r\n", id="blank in a name"),
        pytest.param(b"GET / HTTP/1.0\r\n folded: x\r\n\r\n", id="folded line"),
        pytest.param(b"GET / HTTP/1.0\r\na: \x00\r\n\r\n", id="control character"),
        pytest.param(b"GET / HTTP/1.0\r\nContent-Length: -1\r\n\r\n", id="negative length"),
        pytest.param(b"G\x00T / HTTP/1.0\r\n\r\n", id="method"),
    ],
)
def test_what_is_no_request_is_a_bad_one(received: bytes) -> None:
    exchange = Exchange()
    status = exchange.receive(received)
    assert status is HTTPStatus.BAD_REQUEST
    assert exchange.answer(status).startswith(b"HTTP/1.1 400 Bad Request\r\n")


def test_a_head_that_does_not_end_is_too_large() -> None:
    exchange = Exchange()
    assert exchange.receive(b"GET / HTTP/1.1\r\na: ") is None
    status = exchange.receive(b"x" * HEAD_BYTES_MAX)
    assert status is HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    assert exchange.answer(status).startswith(b"HTTP/1.1 431 ")


@given(st.binary(max_size=200) | st.binary(max_size=100).map(lambda x: b"GET / HTTP/1.1\r\n" + x))
def test_whatever_comes_is_judged_and_never_raises(received: bytes) -> None:
    for each in (received, received + b"\r\n\r\n", received + b"\r\nHost: h\r\n\r\n"):
        exchange = Exchange()
        request = exchange.receive(each)
        if isinstance(request, Request):
            texts = [request.method, request.path, *request.headers, *request.headers.values()]
            assert not any(c in text for text in texts for c in "\r\n\0")
        if request is not None:
            assert exchange.answer(HTTPStatus.OK, b"x").startswith(b"HTTP/1.1 200 OK\r\n")


def answered(method: str) -> bytes:
    exchange = Exchange()
    assert isinstance(exchange.receive(f"{method} / HTTP/1.0\r\n\r\n".encode()), Request)
    return exchange.answer(HTTPStatus.OK, b"body", "text/x", headers={"Allow": "GET"})


def test_an_answer_has_its_length_and_ends_the_connection() -> None:
    head, _, body = answered("GET").partition(b"\r\n\r\n")
    assert body == b"body"
    lines = head.lower().split(b"\r\n")
    assert lines[0] == b"http/1.1 200 ok"
    expected = {b"content-type: text/x", b"content-length: 4", b"connection: close", b"allow: get"}
    assert expected <= set(lines)


def test_an_answer_to_head_is_the_same_without_its_body() -> None:
    whole = answered("HEAD")
    assert b"content-length: 4\r\n" in whole.lower()
    assert whole.endswith(b"\r\n\r\n")
