"""Replication over TLS, as the slave sees it: whom it trusts, and that the bytes stay the same."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from rmq.broker.config import load_broker_config
from rmq.errors import ConfigError
from rmq.ha.slave_status import SlaveState
from rmq.ha.tls_channel import client_context_of
from tests.ha.following import Hands, Slave, following, node
from tests.ha.scripted_masters import CoreMaster, StockMaster
from tests.store.running import bodies_of

if TYPE_CHECKING:
    from pathlib import Path

    from trio.testing import MockClock

    from rmq.broker.config import BrokerConfig


class Authority:
    """One who signs certificates, and contexts for both ends."""

    def __init__(self) -> None:
        self._authority = trustme.CA()

    def server(
        self, *, asks_for_certificate: bool = False, name: str = "127.0.0.1"
    ) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._authority.issue_cert(name).configure_cert(context)
        if asks_for_certificate:
            self._authority.configure_trust(context)
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def write_trust(self, path: Path) -> None:
        self._authority.cert_pem.write_to_path(str(path))

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


# --- who may be a master --------------------------------------------------------------------------


def slave_config(folder: Path, authority: Authority, more: str = "") -> BrokerConfig:
    """Return the settings of a slave that checks certificates."""
    authority.write_trust(folder / "trust.pem")
    conf = folder / "slave.conf"
    conf.write_text(
        f"tls.client.authServer=true\ntls.client.trustCertPath={folder / 'trust.pem'}\n"
        "haTlsMode=enforcing\ntls.server.certPath=own.pem\ntls.server.keyPath=own.key\n" + more
    )
    return load_broker_config(conf, {}, {"HOME": str(folder)}).config


@pytest.mark.parametrize(
    ("name", "more", "is_followed"),
    [
        pytest.param("127.0.0.1", "", True, id="of the address"),
        pytest.param("client-7", "", False, id="of a client of the same authority"),
        pytest.param("10.9.9.9", "", False, id="of another host"),
        pytest.param(
            "masters.example", "haTlsMasterName=masters.example\n", True, id="of the name"
        ),
        pytest.param("127.0.0.1", "haTlsMasterName=masters.example\n", False, id="not of the name"),
    ],
)
async def test_a_certificate_makes_a_master_only_of_the_host_it_was_issued_for(
    mock_clock: MockClock, tmp_path: Path, name: str, more: str, is_followed: bool
) -> None:
    authority = Authority()
    config = slave_config(tmp_path, authority, more)
    context = client_context_of(config.ha_tls_mode, config.tls_replication)
    async with node() as source, node() as copy:
        hands = Hands(mock_clock, [source.limiter, copy.limiter])
        source.put(5)
        master = CoreMaster(source)
        master.tls_context = authority.server(name=name)
        async with following(
            copy, master, tls_context=context, tls_master_name=config.ha_tls_master_name
        ) as slave:
            if is_followed:
                await hands.until(lambda: copy.bytes == source.bytes)
            else:
                await hands.pass_time(12)
                assert copy.log.end == 0
                assert slave.state() is SlaveState.CONNECTING
                error = slave.runner.status.last_error or ""
                assert "certificate is not valid for" in error
                assert "haTlsMasterName" in error


def test_a_slave_that_follows_any_certificate_is_warned_about(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    needed = "tls.server.certPath=own.pem\ntls.server.keyPath=own.key\n"

    def warnings(text: str) -> list[str]:
        conf.write_text(needed + text)
        loaded = load_broker_config(conf, {}, {"HOME": str(tmp_path)})
        return [line for line in loaded.warnings if "haTlsMode" in line]

    warned = warnings("haTlsMode=enforcing\n")
    assert ["tls.client.authServer=true" in line for line in warned] == [True, False]
    assert ["useTLS=true" in line for line in warned] == [False, True]
    assert warnings("haTlsMode=disabled\n") == []
    conf.write_text(needed + "tls.server.mode=enforcing\n")
    (plain,) = load_broker_config(conf, {}, {"HOME": str(tmp_path)}).warnings
    assert "useTLS=true" in plain
    checked = "tls.client.authServer=true\ntls.client.trustCertPath=trust.pem\nuseTLS=true\n"
    assert warnings("haTlsMode=enforcing\n" + checked) == []
