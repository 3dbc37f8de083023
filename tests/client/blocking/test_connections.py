"""Connections without a loop: answers in any order, bad peers, deadlines, and peers that ask."""

from __future__ import annotations

import socket
import ssl
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import trustme

from rmq.client.blocking.connection import CALLS_MAX, Connection
from rmq.client.blocking.connections import Connections
from rmq.client.blocking.frames import Settings
from rmq.client.core.broker_requests import Reply
from rmq.errors import (
    ClientClosedError,
    ClientError,
    ConnectFailedError,
    ConnectionLostError,
    LocalProtocolError,
    RequestTimeoutError,
    TooManyRequestsError,
)
from rmq.remoting.codes import RequestCode, ResponseCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import (
    GetMaxOffsetRequest,
    GetMaxOffsetResponse,
    NotifyConsumerIdsChangedRequest,
)
from rmq.remoting.tls_config import TlsClientConfig, client_context
from tests.client.blocking.scripted_peer import Link, answer_frame, scripted_peer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rmq.remoting.command import Command

ASK = RequestCode.GET_MAX_OFFSET
TIMEOUT_S = 10.0
SHORT_S = 0.05


def header(number: int) -> GetMaxOffsetRequest:
    return GetMaxOffsetRequest(topic="T", queue_id=number)


def ignore(address: str, command: Command) -> Reply | None:
    return None


@contextmanager
def open_connections(
    settings: Settings | None = None, on_request: object = ignore
) -> Iterator[Connections]:
    connections = Connections(settings or Settings(), on_request=on_request)  # type: ignore[arg-type]
    try:
        yield connections
    finally:
        connections.close(linger_s=0)


def echo(link: Link, request: Command) -> None:
    number = request.header(GetMaxOffsetRequest).queue_id
    link.answer(request, header=GetMaxOffsetResponse(offset=number))


def silent(link: Link, request: Command) -> None:
    pass


# --- answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize("serialization", list(Serialization))
def test_a_request_is_answered(serialization: Serialization) -> None:
    with (
        scripted_peer(echo) as peer,
        open_connections(Settings(serialization=serialization)) as connections,
    ):
        for number in range(3):
            answer = connections.request(peer.address, ASK, header(number), timeout_s=TIMEOUT_S)
            assert answer.header(GetMaxOffsetResponse).offset == number
        assert peer.accepted == 1
        assert {request.serialization for request in peer.requests} == {serialization}


def test_the_fast_frames_are_the_bytes_that_the_slow_way_gives() -> None:
    frames = Settings().frames
    plain = header(3)
    assert frames.request(ASK, 5, plain, None, 9) == encode_frame(
        code=ASK, opaque=5, header=plain, body_length=9
    )
    odd = GetMaxOffsetRequest(topic="half \ud800 and ü", queue_id=1)
    assert frames.request(ASK, -5, odd, None, 0) == encode_frame(code=ASK, opaque=-5, header=odd)
    assert frames.request(ASK, 1, plain, {"x": "y"}, 0) == encode_frame(
        code=ASK, opaque=1, header=plain, extra={"x": "y"}
    )
    assert frames.request(ASK, 1, None, None, 0) == encode_frame(code=ASK, opaque=1)


def test_several_requests_are_under_way_and_answered_in_any_order() -> None:
    held: list[Command] = []

    def backwards(link: Link, request: Command) -> None:
        held.append(request)
        if len(held) == 100:
            for each in reversed(held):
                echo(link, each)

    with scripted_peer(backwards) as peer, open_connections() as connections:
        calls = [
            connections.submit(peer.address, ASK, header(number), timeout_s=TIMEOUT_S)
            for number in range(100)
        ]
        for number, call in enumerate(calls):
            connections.wait(call)
            assert not isinstance(call.outcome, ClientError)
            assert call.outcome is not None
            assert call.outcome.header(GetMaxOffsetResponse).offset == number


def test_an_answer_may_come_byte_by_byte_and_an_answer_to_nothing_is_ignored() -> None:
    def dribble(link: Link, request: Command) -> None:
        expected = request.opaque
        request.opaque = expected + 1000
        link.answer(request)
        request.opaque = expected
        for byte in answer_frame(request, header=GetMaxOffsetResponse(offset=8)):
            link.send(bytes((byte,)))

    with scripted_peer(dribble) as peer, open_connections() as connections:
        answer = connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert answer.header(GetMaxOffsetResponse).offset == 8


def test_a_large_answer_and_a_large_request_go_through() -> None:
    body = bytes(range(256)) * (8 * 1024 * 4)

    def mirror(link: Link, request: Command) -> None:
        link.answer(request, body=request.body or b"")

    with scripted_peer(mirror) as peer, open_connections() as connections:
        answer = connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S, body=body)
        assert answer.body == body


def test_a_one_way_request_has_left_when_it_was_told() -> None:
    with scripted_peer(silent) as peer, open_connections() as connections:
        connections.tell(peer.address, ASK, header(4), body=b"xy", remark="note")
        connections.wait_written(peer.address, what="x", timeout_s=TIMEOUT_S)
        (seen,) = peer.wait_requests(1)
        assert seen.is_oneway
        assert (seen.body, seen.remark) == (b"xy", "note")


def test_what_was_queued_leaves_when_the_connections_are_closed() -> None:
    with scripted_peer(silent) as peer:
        connections = Connections(Settings(), on_request=ignore)
        connections.tell(peer.address, ASK, header(4))
        connections.close(linger_s=TIMEOUT_S)
        assert len(peer.wait_requests(1)) == 1
        with pytest.raises(ClientClosedError):
            connections.tell(peer.address, ASK, header(4))


# --- bad peers -------------------------------------------------------------------------------


def lost_reason(connections: Connections, address: str) -> str:
    with pytest.raises(ConnectionLostError) as caught:
        connections.request(address, ASK, header(1), timeout_s=TIMEOUT_S)
    assert caught.value.peer == address
    assert not connections.is_open(address)
    return caught.value.reason


@pytest.mark.parametrize(
    ("garbage", "reason"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "HTTP bytes", id="http"),
        pytest.param(b"\x7f\xff\xff\xff\x00\x00\x00\x00", "over the limit", id="too large"),
        pytest.param(b"\x00\x00\x00\x02\x00\x00\x00\x00", "below the least", id="too small"),
        pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\xff....", "header length", id="header"),
        pytest.param(b"\x00\x00\x00\x08\x00\x00\x00\x04oops", "malformed", id="no JSON"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS bytes", id="TLS"),
    ],
)
def test_garbage_ends_the_connection_and_the_next_call_dials_again(
    garbage: bytes, reason: str
) -> None:
    def play(link: Link, request: Command) -> None:
        if peer.accepted == 1:
            link.send(garbage)
        else:
            echo(link, request)

    with scripted_peer(play) as peer, open_connections() as connections:
        assert reason in lost_reason(connections, peer.address)
        answer = connections.request(peer.address, ASK, header(6), timeout_s=TIMEOUT_S)
        assert answer.header(GetMaxOffsetResponse).offset == 6
        assert peer.accepted == 2


def test_an_answer_before_garbage_is_still_taken() -> None:
    def play(link: Link, request: Command) -> None:
        if len(peer.requests) == 2:
            link.send(answer_frame(peer.requests[0]) + b"\xff" * 16)

    with scripted_peer(play) as peer, open_connections() as connections:
        first = connections.submit(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        second = connections.submit(peer.address, ASK, header(2), timeout_s=TIMEOUT_S)
        connections.wait(second)
        assert not isinstance(first.outcome, ClientError)
        assert isinstance(second.outcome, ConnectionLostError)


def test_a_peer_that_goes_away_mid_call_and_mid_frame_is_lost() -> None:
    def play(link: Link, request: Command) -> None:
        if peer.accepted == 1:
            link.send(answer_frame(request)[:10])
        link.close()

    with scripted_peer(play) as peer, open_connections() as connections:
        assert lost_reason(connections, peer.address) == "closed by the peer, 10 bytes into a frame"
        assert lost_reason(connections, peer.address) == "closed by the peer"


def test_a_connection_that_ended_while_nobody_looked_is_dialled_again() -> None:
    with scripted_peer(echo) as peer, open_connections() as connections:
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        peer.cut()
        # As if it had been idle for a while. The end may take a moment to arrive.
        deadline = time.monotonic() + TIMEOUT_S
        while peer.accepted == 1:
            assert time.monotonic() < deadline
            connections._by_address[peer.address].used_at -= 10
            answer = connections.request(peer.address, ASK, header(6), timeout_s=TIMEOUT_S)
            assert answer.header(GetMaxOffsetResponse).offset == 6


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with open_connections() as connections, pytest.raises(ConnectFailedError) as caught:
        connections.request(address, ASK, timeout_s=TIMEOUT_S)
    assert caught.value.peer == address
    assert "refused" in caught.value.reason


@pytest.mark.parametrize("address", ["nonsense", "host.invalid:1", "[::1", "a" * 70 + ".x:1"])
def test_what_is_no_address_or_no_host_cannot_be_connected(address: str) -> None:
    with open_connections() as connections, pytest.raises(ConnectFailedError):
        connections.request(address, ASK, timeout_s=TIMEOUT_S)


def fill(server: socket.socket) -> list[socket.socket]:
    """Fill the backlog of a server: the kernel answers no further attempts to connect."""
    fillers = [socket.socket() for _ in range(4)]
    for filler in fillers:
        filler.setblocking(False)
        filler.connect_ex(server.getsockname())
    return fillers


def test_a_peer_that_accepts_nothing_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        fillers = fill(server)
        try:
            with open_connections(Settings(connect_timeout_s=0.2)) as connections:
                with pytest.raises(ConnectFailedError, match=r"no connection within 0\.2 s"):
                    connections.request(address, ASK, timeout_s=TIMEOUT_S)
                # A call may have less time than connecting may take.
                with pytest.raises(RequestTimeoutError, match=r"within 0\.05 s"):
                    connections.request(address, ASK, timeout_s=SHORT_S)
        finally:
            for filler in fillers:
                filler.close()


def test_the_next_address_of_a_host_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with scripted_peer(echo) as peer, open_connections() as connections:
        port = int(peer.address.rpartition(":")[2])
        with socket.create_server(("127.0.0.1", 0)) as server:
            closed = server.getsockname()[1]
        real = socket.getaddrinfo

        def two(host: str, wanted: int, **options: int) -> object:
            found = real("127.0.0.1", closed, **options) + real("127.0.0.1", port, **options)
            return found if host == "somewhere" else real(host, wanted, **options)

        monkeypatch.setattr(socket, "getaddrinfo", two)
        connections.request("somewhere:1", ASK, header(1), timeout_s=TIMEOUT_S)


def test_an_address_that_takes_too_long_makes_way_for_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real = socket.getaddrinfo
    with (
        scripted_peer(echo) as peer,
        socket.create_server(("127.0.0.1", 0), backlog=0) as full,
        open_connections(Settings(connect_timeout_s=0.4)) as connections,
    ):
        fillers = fill(full)
        port = int(peer.address.rpartition(":")[2])

        def two(host: str, wanted: int, **options: int) -> object:
            first = real("127.0.0.1", full.getsockname()[1], **options)
            return first + real("127.0.0.1", port, **options)

        monkeypatch.setattr(socket, "getaddrinfo", two)
        try:
            connections.request("somewhere:1", ASK, header(1), timeout_s=TIMEOUT_S)
        finally:
            for filler in fillers:
                filler.close()


# --- deadlines -------------------------------------------------------------------------------


def test_a_silent_peer_is_timed_out_and_not_trusted_any_longer() -> None:
    with scripted_peer(silent) as peer, open_connections() as connections:
        with pytest.raises(RequestTimeoutError) as caught:
            connections.request(peer.address, ASK, header(1), timeout_s=SHORT_S)
        assert caught.value.what == ASK.name
        assert caught.value.timeout_s == SHORT_S
        assert not connections.is_open(peer.address)


def test_a_peer_that_answers_others_keeps_its_connection() -> None:
    def picky(link: Link, request: Command) -> None:
        if request.header(GetMaxOffsetRequest).queue_id:
            echo(link, request)

    with scripted_peer(picky) as peer, open_connections() as connections:
        late = connections.submit(peer.address, ASK, header(0), timeout_s=0.3)
        while late.outcome is None:
            connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert isinstance(late.outcome, RequestTimeoutError)
        assert connections.is_open(peer.address)


def test_a_frame_that_never_ends_is_no_connection() -> None:
    def drip(link: Link, request: Command) -> None:
        link.send(answer_frame(request, body=b"x" * 100)[:50])

    with scripted_peer(drip) as peer, open_connections() as connections:
        for _ in range(3):
            with pytest.raises(RequestTimeoutError):
                connections.request(peer.address, ASK, header(1), timeout_s=SHORT_S)
        assert peer.accepted > 1


def test_time_that_is_not_spent_waiting_does_not_count() -> None:
    with scripted_peer(echo) as peer, open_connections() as connections:
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        call = connections.submit(peer.address, ASK, header(2), timeout_s=SHORT_S)
        connections.flush()
        peer.wait_requests(2)
        # The caller is away for longer than the answer may take; it is there when he is back.
        away = time.monotonic() + 4 * SHORT_S
        peer.wait_until(lambda: time.monotonic() > away)
        connections.wait(call)
        assert not isinstance(call.outcome, ClientError)


def test_a_wait_ends_when_the_caller_has_no_more_time() -> None:
    with scripted_peer(silent) as peer, open_connections() as connections:
        connections.submit(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        started = time.monotonic()
        connections.sleep(SHORT_S)
        assert SHORT_S <= time.monotonic() - started < TIMEOUT_S


def test_a_peer_that_does_not_read_a_one_way_request_is_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with open_connections() as connections:
            # More than the kernel keeps for a peer that does not even accept.
            for _ in range(4):
                connections.tell(address, ASK, header(1), body=b"x" * (15 * 1024**2))
            with pytest.raises(RequestTimeoutError):
                connections.wait_written(address, what="x", timeout_s=0.2)
            assert not connections.is_open(address)


# --- limits ----------------------------------------------------------------------------------


def test_what_is_too_large_to_be_sent_is_refused_and_harms_nobody() -> None:
    with scripted_peer(echo) as peer, open_connections() as connections:
        with pytest.raises(LocalProtocolError):
            connections.request(
                peer.address, ASK, header(1), timeout_s=TIMEOUT_S, body=b"x" * (16 * 1024**2)
            )
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert peer.accepted == 1


def test_requests_under_way_are_bounded() -> None:
    with scripted_peer(silent) as peer, open_connections() as connections:
        for _ in range(CALLS_MAX):
            connections.submit(peer.address, ASK, timeout_s=TIMEOUT_S)
        with pytest.raises(TooManyRequestsError):
            connections.submit(peer.address, ASK, timeout_s=TIMEOUT_S)


def test_unwritten_bytes_are_bounded() -> None:
    with scripted_peer(silent) as peer, open_connections() as connections:
        body = b"x" * (15 * 1024**2)
        for _ in range(5):
            connections.submit(peer.address, ASK, timeout_s=TIMEOUT_S, body=body)
        with pytest.raises(TooManyRequestsError, match="bytes wait"):
            connections.submit(peer.address, ASK, timeout_s=TIMEOUT_S, body=body)
        with pytest.raises(TooManyRequestsError, match="bytes wait"):
            connections.tell(peer.address, ASK, body=body)


def test_a_callback_that_raises_harms_no_other_call() -> None:
    def bad(outcome: Command | ClientError) -> None:
        raise RuntimeError("a fault")

    with scripted_peer(echo) as peer, open_connections() as connections:
        connections.submit(peer.address, ASK, header(1), timeout_s=TIMEOUT_S, on_outcome=bad)
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert connections.is_open(peer.address)


# --- requests of the peer --------------------------------------------------------------------


def test_requests_of_the_peer_are_answered_between_answers() -> None:
    def play(link: Link, request: Command) -> None:
        if request.is_response:
            return
        changed = NotifyConsumerIdsChangedRequest(consumer_group="g")
        link.ask(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, changed, is_oneway=True)
        link.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, opaque=5)
        link.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, opaque=6)
        echo(link, request)

    seen: list[int] = []

    def serve(address: str, command: Command) -> Reply | None:
        assert address == peer.address
        seen.append(command.code)
        if command.opaque == 6:
            raise RuntimeError("a fault")
        return Reply(ResponseCode.SUCCESS, "fine", b"body")

    with (
        scripted_peer(play) as peer,
        open_connections(on_request=serve) as connections,
    ):
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        connections.flush()
        _, told, failed = peer.wait_requests(3)
        assert seen == [40, 307, 309]
        assert (told.opaque, told.code, told.remark, told.body) == (5, 0, "fine", b"body")
        assert (failed.opaque, failed.code) == (6, ResponseCode.SYSTEM_ERROR)


def test_a_peer_that_asks_and_does_not_read_is_cut_off() -> None:
    def serve(address: str, command: Command) -> Reply | None:
        return Reply(ResponseCode.SUCCESS, body=b"x" * 600_000)

    def flood(link: Link, request: Command) -> None:
        if not request.is_response:
            for _ in range(50):
                link.ask(RequestCode.GET_CONSUMER_RUNNING_INFO)

    with (
        scripted_peer(flood) as peer,
        open_connections(on_request=serve) as connections,
    ):
        assert "does not read" in lost_reason(connections, peer.address)


# --- an interrupt ----------------------------------------------------------------------------


def test_an_interrupt_while_bytes_are_moved_ends_that_connection_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with (
        scripted_peer(echo) as peer,
        scripted_peer(echo) as other,
        open_connections() as connections,
    ):
        connections.request(other.address, ASK, header(1), timeout_s=TIMEOUT_S)

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Connection, "_deliver", interrupted)
            with pytest.raises(KeyboardInterrupt):
                connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert not connections.is_open(peer.address)
        assert connections.is_open(other.address)
        connections.request(peer.address, ASK, header(1), timeout_s=TIMEOUT_S)
        assert peer.accepted == 2


# --- TLS -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_context(authority: trustme.CA) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1", "localhost").configure_cert(context)
    return context


def test_tls_carries_large_frames_both_ways(authority: trustme.CA, tmp_path: Path) -> None:
    trust = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(trust)
    config = TlsClientConfig(auth_server=True, check_hostname=True, trust_cert_path=trust)
    body = bytes(range(256)) * 20_000

    def mirror(link: Link, request: Command) -> None:
        link.answer(request, body=request.body or b"")

    with (
        scripted_peer(mirror, server_context(authority)) as peer,
        open_connections(Settings(context=client_context(config))) as connections,
    ):
        calls = [
            connections.submit(peer.address, ASK, timeout_s=TIMEOUT_S, body=body) for _ in range(4)
        ]
        for call in calls:
            connections.wait(call)
            assert not isinstance(call.outcome, ClientError)
            assert call.outcome is not None
            assert call.outcome.body == body
        assert peer.accepted == 1


def test_a_certificate_that_nobody_vouches_for_is_refused(
    authority: trustme.CA, tmp_path: Path
) -> None:
    trust = tmp_path / "ca.pem"
    trustme.CA().cert_pem.write_to_path(trust)
    config = TlsClientConfig(auth_server=True, trust_cert_path=trust)
    with (
        scripted_peer(silent, server_context(authority)) as peer,
        open_connections(Settings(context=client_context(config))) as connections,
        pytest.raises(ConnectFailedError, match="certificate verify failed"),
    ):
        connections.request(peer.address, ASK, timeout_s=TIMEOUT_S)


def test_a_plain_peer_where_tls_is_wanted_is_no_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        settings = Settings(context=client_context(TlsClientConfig()), connect_timeout_s=0.2)
        # It says nothing: the handshake is given up in time, and costs nothing meanwhile.
        busy_s = time.process_time()
        with (
            open_connections(settings) as connections,
            pytest.raises(ConnectFailedError, match="no connection within"),
        ):
            connections.request(address, ASK, timeout_s=TIMEOUT_S)
        assert time.process_time() - busy_s < 0.1
    with scripted_peer(silent) as peer:
        settings = Settings(context=client_context(TlsClientConfig()))
        with open_connections(settings) as connections, pytest.raises(ConnectFailedError):
            connections.request(peer.address, ASK, timeout_s=TIMEOUT_S)


# --- looking before sleeping -----------------------------------------------------------------


class CountedPoll:
    """A `select.poll` that remembers how long it was to wait."""

    def __init__(self, connections: Connections) -> None:
        self._inner = connections._poll
        self.register = self._inner.register
        self.unregister = self._inner.unregister
        self.waits: list[float] = []

    def poll(self, timeout_ms: float) -> list[tuple[int, int]]:
        self.waits.append(timeout_ms)
        return self._inner.poll(timeout_ms)


def test_an_answer_is_looked_for_before_sleeping() -> None:
    with scripted_peer(echo) as peer, open_connections(Settings(busy_wait_s=5)) as connections:
        connections.request(peer.address, ASK, header(0), timeout_s=TIMEOUT_S)
        counted = CountedPoll(connections)
        connections._poll = counted  # type: ignore[assignment]
        for number in range(10):
            connections.request(peer.address, ASK, header(number), timeout_s=TIMEOUT_S)
        assert set(counted.waits) == {0}


def test_where_answers_are_slow_they_are_slept_for() -> None:
    def slowly(link: Link, request: Command) -> None:
        time.sleep(0.01)
        echo(link, request)

    settings = Settings(busy_wait_s=0.0005)
    with scripted_peer(slowly) as peer, open_connections(settings) as connections:
        counted = CountedPoll(connections)
        connections._poll = counted  # type: ignore[assignment]
        for number in range(5):
            counted.waits.clear()
            connections.request(peer.address, ASK, header(number), timeout_s=TIMEOUT_S)
        # The last ones were not looked for at all.
        assert counted.waits[0] > 0


def test_a_caller_with_less_time_than_that_sleeps_for_no_longer() -> None:
    with scripted_peer(silent) as peer, open_connections(Settings(busy_wait_s=5)) as connections:
        call = connections.submit(peer.address, ASK, header(0), timeout_s=TIMEOUT_S)
        started = time.monotonic()
        connections.step(started + SHORT_S)
        connections.step(started + SHORT_S)
        assert time.monotonic() - started < 4
        assert call.outcome is None
