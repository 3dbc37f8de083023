"""Servers without a configured certificate: they make one when the first client speaks TLS.

Real handshakes and real keys; only how often a certificate is made, and how, is watched.
"""

from __future__ import annotations

import os
import ssl
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import trio
import trustme
from cryptography import x509

from rmq.errors import ClientError, ConnectFailedError
from rmq.remoting.client import open_client
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import (
    ClientAuth,
    TlsClientConfig,
    TlsMode,
    TlsServerConfig,
    client_context,
)
from tests.remoting.client_kit import (
    ECHO,
    address_of,
    complaints,
    echo_table,
    serving,
    within,
)

if TYPE_CHECKING:
    from pathlib import Path

TRUST_ALL = client_context(TlsClientConfig())


async def certificate_at(port: int) -> x509.Certificate:
    tcp = await trio.open_tcp_stream("127.0.0.1", port)
    async with trio.SSLStream(tcp, TRUST_ALL, https_compatible=True) as stream:
        await stream.do_handshake()
        der = stream.getpeercert(binary_form=True)
        assert isinstance(der, bytes)
        return x509.load_der_x509_certificate(der)


@pytest.mark.parametrize("mode", [TlsMode.PERMISSIVE, TlsMode.ENFORCING])
@within(10)
async def test_a_client_that_checks_nothing_is_served_over_tls(
    mode: TlsMode, caplog: pytest.LogCaptureFixture
) -> None:
    tls = TlsServer(TlsServerConfig(mode=mode))
    async with (
        serving(echo_table(), tls=tls) as server,
        open_client(tls_context=TRUST_ALL) as client,
    ):
        assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"
        (channel,) = server.channels
        assert channel.secure
    (line,) = complaints(caplog)
    assert "tls.server.certPath" in line


@within(10)
async def test_a_client_that_checks_certificates_refuses_it(tmp_path: Path) -> None:
    trust = tmp_path / "trust.pem"
    trustme.CA().cert_pem.write_to_path(str(trust))
    context = client_context(TlsClientConfig(auth_server=True, trust_cert_path=trust))
    async with (
        serving(echo_table(), tls=TlsServer(TlsServerConfig())) as server,
        open_client(tls_context=context) as client,
    ):
        with pytest.raises(ConnectFailedError, match="certificate verify failed"):
            await client.request(address_of(server), ECHO)


@within(10)
async def test_it_is_made_once_for_clients_that_come_at_the_same_time_and_only_for_tls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[ssl.SSLContext] = []
    load = ssl.SSLContext.load_cert_chain

    def load_noted(self: ssl.SSLContext, certfile: str, password: str) -> None:
        made.append(self)
        load(self, certfile, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_noted)
    tls = TlsServer(TlsServerConfig())
    async with serving(echo_table(), tls=tls) as server, open_client() as plain:
        await plain.request(address_of(server), ECHO)
        assert made == []
        serials: set[int] = set()

        async def connect() -> None:
            serials.add((await certificate_at(server.port)).serial_number)

        async with trio.open_nursery() as nursery:
            for _ in range(8):
                nursery.start_soon(connect)
        assert len(made) == len(serials) == 1
    other = TlsServer(TlsServerConfig())
    async with serving(echo_table(), tls=other) as server:
        assert (await certificate_at(server.port)).serial_number not in serials


@within(10)
async def test_the_key_touches_the_disk_encrypted_in_a_private_file_that_is_gone_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    seen: list[tuple[int, bytes]] = []
    load = ssl.SSLContext.load_cert_chain

    def load_noted(self: ssl.SSLContext, certfile: str, password: str) -> None:
        (file,) = tmp_path.iterdir()
        seen.append((stat.S_IMODE(file.stat().st_mode), file.read_bytes()))
        load(self, certfile, password=password)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load_noted)
    async with serving(echo_table(), tls=TlsServer(TlsServerConfig())) as server:
        await certificate_at(server.port)
    ((mode, pem),) = seen
    assert mode == 0o600
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in pem
    assert b"BEGIN PRIVATE KEY" not in pem
    assert os.listdir(tmp_path) == []  # noqa: PTH208 - a path's own call is not for coroutines


@within(10)
async def test_clients_are_asked_for_certificates_nevertheless(tmp_path: Path) -> None:
    authority = trustme.CA()
    trust, cert, key = (tmp_path / name for name in ("trust.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(trust))
    issued = authority.issue_cert("client")
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    config = TlsServerConfig(client_auth=ClientAuth.REQUIRE, trust_cert_path=trust)
    shown = client_context(TlsClientConfig(cert_path=cert, key_path=key))
    async with (
        serving(echo_table(), tls=TlsServer(config)) as server,
        open_client(tls_context=shown) as known,
        open_client(tls_context=TRUST_ALL) as unknown,
    ):
        assert (await known.request(address_of(server), ECHO, body=b"x")).body == b"x"
        with pytest.raises(ClientError):
            await unknown.request(address_of(server), ECHO, timeout_s=9)


@within(10)
async def test_what_cannot_be_made_closes_the_connection_with_a_line_that_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    async with (
        serving(echo_table(), tls=TlsServer(TlsServerConfig())) as server,
        open_client(tls_context=TRUST_ALL) as client,
    ):
        with pytest.raises(ConnectFailedError):
            await client.request(address_of(server), ECHO)
    (line,) = complaints(caplog)
    assert "no certificate can be made" in line


def test_a_server_loads_the_library_for_it_only_when_it_needs_it() -> None:
    code = (
        "import sys, rmq.nameserver.server\n"
        "from rmq.remoting.tls import TlsServer\n"
        "from rmq.remoting.tls_config import TlsServerConfig\n"
        "TlsServer(TlsServerConfig())\n"
        "assert 'cryptography' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
