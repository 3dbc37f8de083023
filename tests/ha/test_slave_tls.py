"""Replication over TLS, as the slave sees it: whom it trusts, and that the bytes stay the same."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from rmq.errors import ConfigError
from rmq.ha.slave_status import SlaveState
from tests.ha.following import Hands, Slave, following, node
from tests.ha.scripted_masters import CoreMaster, StockMaster
from tests.store.running import bodies_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock


class Authority:
    """One who signs certificates, and contexts for both ends."""

    def __init__(self) -> None:
        self._authority = trustme.CA()

    def server(self, *, asks_for_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert("127.0.0.1").configure_cert(context)
        if asks_for_certificate:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def client(self, *, has_certificate: bool = False) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._authority.configure_trust(context)
        if has_certificate:
            self._authority.issue_cert("slave").configure_cert(context)
        return context


@pytest.mark.parametrize("is_mutual", [False, True], ids=["of the master", "mutual"])
async def test_a_slave_follows_over_tls(
    mock_clock: MockClock, tmp_path: Path, is_mutual: bool
) -> None:
    authority = Authority()
    async with node() as source, node(tmp_path) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(2000, size=200)
        master = CoreMaster(source)
        master.tls_context = authority.server(asks_for_certificate=is_mutual)
        client = authority.client(has_certificate=is_mutual)
        async with following(copy, master, tls_context=client) as slave:
            await hands.until(lambda: master.appended == source.log.end)
            for _ in range(50):
                master.put(1)
                await hands.settle()
            assert copy.bytes == source.bytes
            assert master.appended == source.log.end
            assert slave.runner.status.is_native
            assert bodies_of(copy.core) == bodies_of(source.core)
            await hands.pass_time(60, 1)
            assert master.accepted == 1


async def test_large_frames_over_tls_go_into_the_log_as_they_are(
    mock_clock: MockClock, tmp_path: Path
) -> None:
    authority = Authority()
    settings: dict[str, Any] = {"segment_bytes": 4 * 1024 * 1024}
    async with node(**settings) as source, node(tmp_path, **settings) as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(3000, size=1000)
        master = CoreMaster(source, frame_bytes=512 * 1024)
        master.tls_context = authority.server()
        async with following(copy, master, tls_context=authority.client()):
            await hands.until(lambda: master.appended == source.log.end)
            assert copy.bytes == source.bytes


@pytest.mark.parametrize("cut", [1, 500, 1500, 2500, 4000, 9000])
async def test_a_connection_with_tls_that_is_cut_is_taken_up_again(
    mock_clock: MockClock, cut: int
) -> None:
    authority = Authority()
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(100)
        master = CoreMaster(source)
        master.tls_context = authority.server()
        master.cut_after = cut
        async with following(copy, master, tls_context=authority.client()):
            await hands.settle()
            assert copy.log.end < source.log.end
            master.cut_after = None
            await hands.until(lambda: copy.bytes == source.bytes)


@pytest.mark.parametrize(
    ("server", "client"),
    [
        pytest.param(Authority().server(), Authority().client(), id="not trusted"),
        pytest.param(
            Authority().server(asks_for_certificate=True), Authority().client(), id="both strangers"
        ),
        pytest.param(None, Authority().client(), id="a master without TLS"),
    ],
)
async def test_a_master_that_cannot_be_trusted_gets_and_gives_nothing(
    mock_clock: MockClock, server: ssl.SSLContext | None, client: ssl.SSLContext
) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        master = CoreMaster(source)
        master.tls_context = server
        async with following(copy, master, tls_context=client) as slave:
            await hands.pass_time(12)
            assert slave.state() is SlaveState.CONNECTING
            assert "TLS handshake failed" in (slave.runner.status.last_error or "")
            assert copy.log.end == 0
            assert len(master.master.slaves) == 0
            assert master.accepted >= 3


async def test_a_master_that_turns_the_slaves_certificate_down_is_dialled_again(
    mock_clock: MockClock,
) -> None:
    authority = Authority()
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        master = CoreMaster(source)
        master.tls_context = authority.server(asks_for_certificate=True)
        async with following(copy, master, tls_context=authority.client()) as slave:
            await hands.pass_time(3)
            assert slave.state() is SlaveState.CONNECTING
            assert slave.runner.status.last_error is not None
            assert copy.log.end == 0


async def test_a_slave_with_tls_does_not_fall_back_to_a_stock_master(
    mock_clock: MockClock,
) -> None:
    authority = Authority()
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        # A stock master behind something that adds TLS is still one.
        master = StockMaster(source)
        master.tls_context = authority.server()
        async with following(copy, master, tls_context=authority.client()) as slave:
            await hands.pass_time(3)
            assert slave.state() is SlaveState.REFUSED
            assert copy.log.end == 0
        with pytest.raises(ConfigError, match="haDialect"):
            Slave(copy, dialect="stock", tls_context=authority.client())


async def test_a_master_that_never_ends_its_handshake_is_given_up(mock_clock: MockClock) -> None:
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        master = CoreMaster(source)
        master.is_mute = True
        async with following(copy, master, tls_context=Authority().client()) as slave:
            await hands.pass_time(5.5)
            assert "no connection within 5 s" in (slave.runner.status.last_error or "")
            master.stop()
