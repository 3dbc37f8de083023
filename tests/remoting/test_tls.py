"""TLS: who may speak what on which port, who must prove who they are, and certificates that change
under a running server.

Real handshakes over real sockets. Certificates are made for the run; nothing is asked of the
machine's own trust store.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
import trio
import trio.testing
import trustme
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from rmq.errors import ClientError, ConfigError, ConnectFailedError, ConnectionLostError
from rmq.log_limits import LINES_PER_SOURCE
from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import (
    ClientAuth,
    TlsClientConfig,
    TlsMode,
    TlsServerConfig,
    client_context,
    server_context,
)
from tests.remoting.client_kit import (
    ECHO,
    Collector,
    Names,
    RawServer,
    address_of,
    cancelled_at_every_step,
    complaints,
    echo_table,
    open_files,
    request_frame,
    reset,
    serving,
    start_call,
    wait_until,
    within,
)

if TYPE_CHECKING:
    import socket
    from collections.abc import AsyncIterator, Callable

    from rmq.remoting.header import EmptyHeader
    from rmq.remoting.request import Request
    from rmq.remoting.transport import StreamTransport

MIB: Final = 1024 * 1024
TRUST_ALL: Final = client_context(TlsClientConfig())
"""A client that encrypts and checks nothing, which is what 4.9.8 does by default."""


# ---- certificates ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Identity:
    """A certificate and its key, as PEM."""

    cert_pem: bytes
    key_pem: bytes
    serial: int

    @classmethod
    def issued_by(
        cls, authority: trustme.CA, name: str = "127.0.0.1", *, password: str | None = None
    ) -> Identity:
        leaf = authority.issue_cert(name)
        key = leaf.private_key_pem.bytes()
        if password is not None:
            key = load_pem_private_key(key, None).private_bytes(
                Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(password.encode())
            )
        cert = b"".join(blob.bytes() for blob in leaf.cert_chain_pems)
        return cls(cert, key, x509.load_pem_x509_certificate(cert).serial_number)


@dataclass(frozen=True)
class Files:
    """Where a server or client has its certificate, its key and those it trusts."""

    cert: Path
    key: Path
    trust: Path

    @classmethod
    def under(cls, directory: Path) -> Files:
        directory.mkdir(exist_ok=True)
        return cls(directory / "cert.pem", directory / "key.pem", directory / "trust.pem")

    def put(self, identity: Identity) -> None:
        _put(self.cert, identity.cert_pem)
        _put(self.key, identity.key_pem)

    def put_trust(self, authority: trustme.CA) -> None:
        _put(self.trust, authority.cert_pem.bytes())


def _put(path: Path, data: bytes) -> None:
    """Replace a file as tools do that renew certificates: write beside it, then rename."""
    fresh = path.with_suffix(".new")
    fresh.write_bytes(data)
    fresh.replace(path)


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    """The authority that is trusted."""
    return trustme.CA()


@pytest.fixture(scope="module")
def foreign() -> trustme.CA:
    """An authority that nobody knows."""
    return trustme.CA()


@pytest.fixture(scope="module")
def identity(authority: trustme.CA) -> Identity:
    return Identity.issued_by(authority)


@pytest.fixture
def server_files(tmp_path: Path, identity: Identity, authority: trustme.CA) -> Files:
    files = Files.under(tmp_path / "server")
    files.put(identity)
    files.put_trust(authority)
    return files


@pytest.fixture
def client_files(tmp_path: Path, authority: trustme.CA) -> Files:
    files = Files.under(tmp_path / "client")
    files.put(Identity.issued_by(authority, "client@example.org"))
    files.put_trust(authority)
    return files


def server_config(files: Files, mode: TlsMode = TlsMode.ENFORCING) -> TlsServerConfig:
    return TlsServerConfig(mode=mode, cert_path=files.cert, key_path=files.key)


@contextlib.asynccontextmanager
async def tls_serving(
    config: TlsServerConfig, server: ServerConfig | None = None, table: HandlerTable | None = None
) -> AsyncIterator[RemotingServer]:
    async with serving(table or echo_table(), server, tls=TlsServer(config)) as running:
        yield running


async def serial_of(server: RemotingServer) -> int:
    """Connect and return the serial number of the server's certificate."""
    tcp = await trio.open_tcp_stream("127.0.0.1", server.port)
    async with trio.SSLStream(tcp, TRUST_ALL, https_compatible=True) as stream:
        await stream.do_handshake()
        der = stream.getpeercert(binary_form=True)
        assert isinstance(der, bytes)
        return x509.load_der_x509_certificate(der).serial_number


# ---- the three modes ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "secure"),
    [
        pytest.param(TlsMode.DISABLED, False, id="disabled-plain"),
        pytest.param(TlsMode.PERMISSIVE, False, id="permissive-plain"),
        pytest.param(TlsMode.PERMISSIVE, True, id="permissive-tls"),
        pytest.param(TlsMode.ENFORCING, True, id="enforcing-tls"),
    ],
)
@within(10)
async def test_a_mode_serves_what_it_allows(
    mode: TlsMode, secure: bool, server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        tls_serving(server_config(server_files, mode)) as server,
        open_client(tls_context=TRUST_ALL if secure else None) as client,
    ):
        answer = await client.request(address_of(server), ECHO, body=b"hello")
        assert answer.body == b"hello"
        (channel,) = server.channels
        assert channel.secure is secure
        ours = client.open_channel_to(address_of(server))
        assert ours is not None
        assert ours.secure is secure
        assert (ours.local, ours.peer) == (channel.peer, channel.local)
    assert complaints(caplog) == []


@within(10)
async def test_a_permissive_port_serves_plain_and_encrypted_connections_side_by_side(
    server_files: Files,
) -> None:
    async with (
        tls_serving(server_config(server_files, TlsMode.PERMISSIVE)) as server,
        open_client() as plain,
        open_client(tls_context=TRUST_ALL) as secure,
    ):
        for client in (plain, secure, plain, secure):
            assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"
        assert sorted(channel.secure for channel in server.channels) == [False, True]


@pytest.mark.parametrize("served", ["disabled", "no-tls-at-all"])
@within(10)
async def test_tls_bytes_on_a_plain_port_are_closed_with_one_line(
    served: str, server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    tls = TlsServer(server_config(server_files, TlsMode.DISABLED)) if served == "disabled" else None
    async with (
        serving(echo_table(), tls=tls) as server,
        open_client() as plain,
        open_client(tls_context=TRUST_ALL) as secure,
    ):
        await plain.request(address_of(server), ECHO)
        with pytest.raises(ConnectFailedError, match="TLS handshake failed"):
            await secure.request(address_of(server), ECHO)
        await plain.request(address_of(server), ECHO)
        assert server.statistics().accepted == 2
    (line,) = complaints(caplog)
    assert "TLS bytes on a plain connection" in line


@within(10)
async def test_plain_bytes_where_tls_is_enforced_are_closed_with_one_line(
    server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client() as plain,
        open_client(tls_context=TRUST_ALL) as secure,
    ):
        await secure.request(address_of(server), ECHO)
        with pytest.raises(ConnectionLostError):
            await plain.request(address_of(server), ECHO, timeout_s=9)
        await secure.request(address_of(server), ECHO)
        statistics = server.statistics()
        assert (statistics.accepted, statistics.failed_handshakes) == (2, 1)
    (line,) = complaints(caplog)
    assert "plain bytes where TLS is enforced" in line


@within(10)
async def test_a_permissive_port_that_may_make_no_certificate_serves_plain_and_names_what_tls_lacks(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with (
        tls_serving(TlsServerConfig(test_mode=False)) as server,
        open_client() as plain,
        open_client(tls_context=TRUST_ALL) as secure,
    ):
        await plain.request(address_of(server), ECHO)
        with pytest.raises(ConnectFailedError, match="TLS handshake failed"):
            await secure.request(address_of(server), ECHO)
    (line,) = complaints(caplog)
    assert "tls.server.certPath" in line


@within(10)
async def test_a_connection_closed_before_its_first_byte_is_nothing_to_complain_about(
    server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    async with tls_serving(server_config(server_files)) as server:
        files = open_files()
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        await wait_until(lambda: server.statistics().accepted == 1)
        await stream.aclose()
        await wait_until(lambda: open_files() <= files)
    assert complaints(caplog) == []


# ---- who proves what to whom -------------------------------------------------------------------


@within(10)
async def test_a_client_that_checks_takes_a_server_of_its_authority(
    server_files: Files, client_files: Files
) -> None:
    context = client_context(TlsClientConfig(auth_server=True, trust_cert_path=client_files.trust))
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=context) as client,
    ):
        assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"


@within(10)
async def test_a_client_that_checks_refuses_a_server_of_a_foreign_authority(
    server_files: Files,
    client_files: Files,
    foreign: trustme.CA,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server_files.put(Identity.issued_by(foreign))
    context = client_context(TlsClientConfig(auth_server=True, trust_cert_path=client_files.trust))
    async with tls_serving(server_config(server_files)) as server:
        files = open_files()
        async with open_client(tls_context=context) as client:
            with pytest.raises(ConnectFailedError, match="certificate verify failed") as caught:
                await client.request(address_of(server), ECHO)
            assert caught.value.peer == address_of(server)
        await wait_until(lambda: open_files() <= files)
        assert server.statistics().failed_handshakes == 1
    assert len(complaints(caplog)) == 1


@pytest.mark.parametrize("named", [True, False], ids=["same-name", "other-name"])
@within(10)
async def test_a_client_that_checks_names_takes_only_the_host_it_dialled(
    named: bool, server_files: Files, client_files: Files, authority: trustme.CA
) -> None:
    trio.socket.set_custom_hostname_resolver(Names(**{"broker.example": "127.0.0.1"}))
    name = "broker.example" if named else "other.example"
    server_files.put(Identity.issued_by(authority, name))
    context = client_context(
        TlsClientConfig(auth_server=True, check_hostname=True, trust_cert_path=client_files.trust)
    )
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=context) as client,
    ):
        call = client.request(f"broker.example:{server.port}", ECHO, body=b"x")
        if named:
            assert (await call).body == b"x"
        else:
            with pytest.raises(ConnectFailedError, match=r"broker\.example"):
                await call


@pytest.mark.parametrize(
    ("auth", "shown", "welcome"),
    [
        pytest.param(ClientAuth.NONE, None, True, id="none-without"),
        pytest.param(ClientAuth.NONE, "trusted", True, id="none-trusted"),
        pytest.param(ClientAuth.NONE, "foreign", True, id="none-foreign"),
        pytest.param(ClientAuth.OPTIONAL, None, True, id="optional-without"),
        pytest.param(ClientAuth.OPTIONAL, "trusted", True, id="optional-trusted"),
        pytest.param(ClientAuth.OPTIONAL, "foreign", False, id="optional-foreign"),
        pytest.param(ClientAuth.REQUIRE, None, False, id="require-without"),
        pytest.param(ClientAuth.REQUIRE, "trusted", True, id="require-trusted"),
        pytest.param(ClientAuth.REQUIRE, "foreign", False, id="require-foreign"),
    ],
)
@within(10)
async def test_a_server_asks_its_clients_for_what_it_is_told_to(
    auth: ClientAuth,
    shown: str | None,
    welcome: bool,
    server_files: Files,
    client_files: Files,
    foreign: trustme.CA,
    caplog: pytest.LogCaptureFixture,
) -> None:
    if shown == "foreign":
        client_files.put(Identity.issued_by(foreign, "client@example.org"))
    context = client_context(
        TlsClientConfig(
            cert_path=client_files.cert if shown else None,
            key_path=client_files.key if shown else None,
        )
    )
    config = replace(
        server_config(server_files), client_auth=auth, trust_cert_path=server_files.trust
    )
    async with tls_serving(config) as server:
        files = open_files()
        async with open_client(tls_context=context) as client:
            if welcome:
                assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"
            else:
                # With TLS 1.3 a client is through with its handshake before it is judged, so the
                # refusal may come as the end of the connection.
                with pytest.raises((ConnectFailedError, ConnectionLostError)):
                    await client.request(address_of(server), ECHO, timeout_s=9)
        await wait_until(lambda: open_files() <= files)
        assert server.statistics().failed_handshakes == (0 if welcome else 1)
    lines = complaints(caplog)
    assert len(lines) == (0 if welcome else 1)
    for line in lines:
        assert "TLS handshake failed" in line
        assert "certificate" in line


@within(10)
async def test_a_client_that_is_refused_is_told_why(server_files: Files) -> None:
    """With TLS 1.3 it is through with its handshake by then: stock clients would wait for their
    answer until the timeout.
    """
    config = replace(
        server_config(server_files),
        client_auth=ClientAuth.REQUIRE,
        trust_cert_path=server_files.trust,
    )
    async with tls_serving(config) as server:
        tcp = await trio.open_tcp_stream("127.0.0.1", server.port)
        async with trio.SSLStream(tcp, TRUST_ALL, https_compatible=True) as stream:
            await stream.do_handshake()
            with pytest.raises(trio.BrokenResourceError) as caught:
                await stream.receive_some()
    assert "certificate required" in str(caught.value.__cause__)


@within(10)
async def test_a_server_is_told_why_a_client_refuses_it(
    server_files: Files,
    client_files: Files,
    foreign: trustme.CA,
    caplog: pytest.LogCaptureFixture,
) -> None:
    server_files.put(Identity.issued_by(foreign))
    context = client_context(TlsClientConfig(auth_server=True, trust_cert_path=client_files.trust))
    async with tls_serving(server_config(server_files)) as server:
        async with open_client(tls_context=context) as client:
            with pytest.raises(ConnectFailedError):
                await client.request(address_of(server), ECHO)
        await wait_until(lambda: server.statistics().failed_handshakes == 1)
    (line,) = complaints(caplog)
    assert "unknown ca" in line


@pytest.mark.parametrize("side", ["server", "client"])
@within(10)
async def test_an_encrypted_key_is_opened_with_its_password(
    side: str, server_files: Files, client_files: Files, authority: trustme.CA
) -> None:
    password = "sésame, open"
    encrypted = Identity.issued_by(authority, password=password)
    (server_files if side == "server" else client_files).put(encrypted)
    config = replace(
        server_config(server_files),
        client_auth=ClientAuth.REQUIRE,
        trust_cert_path=server_files.trust,
        key_password=password if side == "server" else None,
    )
    context = client_context(
        TlsClientConfig(
            cert_path=client_files.cert,
            key_path=client_files.key,
            key_password=password if side == "client" else None,
        )
    )
    async with tls_serving(config) as server, open_client(tls_context=context) as client:
        assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"


def test_versions_of_tls_that_are_broken_are_spoken_by_neither_side(server_files: Files) -> None:
    for context in (server_context(server_config(server_files)), TRUST_ALL):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


# ---- settings that cannot work -----------------------------------------------------------------


def _load(side: str, files: Files, password: str | None = None) -> None:
    """Load everything there is to load, as one side or the other."""
    if side == "server":
        TlsServer(
            TlsServerConfig(
                client_auth=ClientAuth.REQUIRE,
                trust_cert_path=files.trust,
                cert_path=files.cert,
                key_path=files.key,
                key_password=password,
            )
        )
    else:
        client_context(
            TlsClientConfig(
                auth_server=True,
                trust_cert_path=files.trust,
                cert_path=files.cert,
                key_path=files.key,
                key_password=password,
            )
        )


@pytest.mark.parametrize("side", ["server", "client"])
def test_sound_files_are_loaded(side: str, server_files: Files) -> None:
    _load(side, server_files)


@pytest.mark.parametrize("password", [None, "wrong"], ids=["none-given", "wrong-one"])
@pytest.mark.parametrize("side", ["server", "client"])
def test_an_encrypted_key_without_its_password_is_refused_and_nobody_is_asked(
    side: str,
    password: str | None,
    server_files: Files,
    authority: trustme.CA,
    capfd: pytest.CaptureFixture[str],
) -> None:
    server_files.put(Identity.issued_by(authority, password="right"))
    with pytest.raises(ConfigError) as caught:
        _load(side, server_files, password)
    assert caught.value.key == f"tls.{side}.keyPassword"
    assert str(server_files.key) in str(caught.value)
    assert capfd.readouterr() == ("", ""), "somebody was asked for a password"


@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "directory"])
@pytest.mark.parametrize("which", ["cert", "key", "trust"])
@pytest.mark.parametrize("side", ["server", "client"])
def test_a_file_that_cannot_be_used_is_named_with_its_setting(
    side: str, which: str, damage: str, server_files: Files
) -> None:
    path: Path = getattr(server_files, which)
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage != "missing":
        path.write_bytes(b"" if damage == "empty" else b"-----BEGIN nothing at all")
    with pytest.raises(ConfigError) as caught:
        _load(side, server_files)
    setting = {"cert": "certPath", "key": "keyPath", "trust": "trustCertPath"}[which]
    assert caught.value.key == f"tls.{side}.{setting}"
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("side", ["server", "client"])
def test_a_key_of_another_certificate_is_refused(
    side: str, server_files: Files, authority: trustme.CA
) -> None:
    _put(server_files.key, Identity.issued_by(authority).key_pem)
    with pytest.raises(ConfigError, match=rf"tls\.{side}\.") as caught:
        _load(side, server_files)
    assert str(server_files.key) in str(caught.value)


SOME_FILE: Final = Path("some.pem")


@pytest.mark.parametrize(
    ("make", "keys"),
    [
        pytest.param(
            lambda: TlsServerConfig(cert_path=SOME_FILE),
            {"tls.server.certPath", "tls.server.keyPath"},
            id="server-certificate-without-key",
        ),
        pytest.param(
            lambda: TlsServerConfig(key_path=SOME_FILE),
            {"tls.server.certPath", "tls.server.keyPath"},
            id="server-key-without-certificate",
        ),
        pytest.param(
            lambda: TlsServerConfig(mode=TlsMode.ENFORCING, test_mode=False),
            {"tls.server.mode"},
            id="enforcing-without-certificate",
        ),
        pytest.param(
            lambda: TlsServerConfig(client_auth=ClientAuth.REQUIRE),
            {"tls.server.need.client.auth"},
            id="require-without-trust",
        ),
        pytest.param(
            lambda: TlsServerConfig(client_auth=ClientAuth.OPTIONAL),
            {"tls.server.need.client.auth"},
            id="optional-without-trust",
        ),
        pytest.param(
            lambda: TlsClientConfig(auth_server=True),
            {"tls.client.authServer"},
            id="client-checks-without-trust",
        ),
        pytest.param(
            lambda: TlsClientConfig(cert_path=SOME_FILE),
            {"tls.client.certPath", "tls.client.keyPath"},
            id="client-certificate-without-key",
        ),
        pytest.param(
            lambda: TlsClientConfig(key_path=SOME_FILE),
            {"tls.client.certPath", "tls.client.keyPath"},
            id="client-key-without-certificate",
        ),
        pytest.param(
            lambda: TlsClientConfig(check_hostname=True),
            {"tls.client.checkHost"},
            id="names-checked-without-certificates",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(
    make: Callable[[], object], keys: set[str]
) -> None:
    with pytest.raises(ConfigError) as caught:
        make()
    assert caught.value.key in keys
    assert caught.value.key in str(caught.value)


# ---- properties of 4.9.8 -----------------------------------------------------------------------


def test_server_settings_are_read_from_the_keys_of_the_original() -> None:
    assert TlsServerConfig.from_properties(
        {
            "tls.server.mode": "enforcing",
            "tls.server.certPath": "/etc/rocketmq/server.pem",
            "tls.server.keyPath": " /etc/rocketmq/server.key ",
            "tls.server.keyPassword": "secret",
            "tls.server.need.client.auth": "require",
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": "/etc/rocketmq/ca.pem",
            "tls.test.mode.enable": "false",
            "tls.client.certPath": "not ours",
        }
    ) == TlsServerConfig(
        mode=TlsMode.ENFORCING,
        cert_path=Path("/etc/rocketmq/server.pem"),
        key_path=Path("/etc/rocketmq/server.key"),
        key_password="secret",
        client_auth=ClientAuth.REQUIRE,
        trust_cert_path=Path("/etc/rocketmq/ca.pem"),
        test_mode=False,
    )


def test_client_settings_are_read_from_the_keys_of_the_original() -> None:
    assert TlsClientConfig.from_properties(
        {
            "tls.client.authServer": "TRUE",
            "tls.client.checkHost": "true",
            "tls.client.certPath": "client.pem",
            "tls.client.keyPath": "client.key",
            "tls.client.keyPassword": "secret",
            "tls.client.trustCertPath": "ca.pem",
            "tls.server.certPath": "not ours",
        }
    ) == TlsClientConfig(
        auth_server=True,
        check_hostname=True,
        cert_path=Path("client.pem"),
        key_path=Path("client.key"),
        key_password="secret",
        trust_cert_path=Path("ca.pem"),
    )


def test_without_properties_a_server_is_permissive_and_a_client_checks_nothing() -> None:
    assert TlsServerConfig.from_properties({}) == TlsServerConfig(mode=TlsMode.PERMISSIVE)
    assert TlsClientConfig.from_properties({}) == TlsClientConfig(auth_server=False)


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        pytest.param("disabled", TlsMode.DISABLED, id="disabled"),
        pytest.param("permissive", TlsMode.PERMISSIVE, id="permissive"),
        pytest.param("enforcing", TlsMode.ENFORCING, id="enforcing"),
        pytest.param("strict", TlsMode.PERMISSIVE, id="unknown"),
        pytest.param("", TlsMode.PERMISSIVE, id="empty"),
    ],
)
def test_the_mode_is_read_as_the_original_reads_it(text: str, mode: TlsMode) -> None:
    properties = {
        "tls.server.mode": text,
        "tls.server.certPath": "c",
        "tls.server.keyPath": "k",
    }
    assert TlsServerConfig.from_properties(properties).mode is mode


@pytest.mark.parametrize(
    ("text", "auth"),
    [
        pytest.param("none", ClientAuth.NONE, id="none"),
        pytest.param("OPTIONAL", ClientAuth.OPTIONAL, id="optional"),
        pytest.param("require", ClientAuth.REQUIRE, id="require"),
        pytest.param("", ClientAuth.NONE, id="empty"),
    ],
)
def test_what_is_asked_of_clients_is_read_in_any_case(text: str, auth: ClientAuth) -> None:
    properties = {
        "tls.server.need.client.auth": text,
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": "ca.pem",
    }
    assert TlsServerConfig.from_properties(properties).client_auth is auth


def test_a_server_that_checks_no_certificates_asks_for_none() -> None:
    config = TlsServerConfig.from_properties(
        {"tls.server.need.client.auth": "require", "tls.server.trustCertPath": "ca.pem"}
    )
    assert config.client_auth is ClientAuth.NONE
    assert config.trust_cert_path is None


def test_an_unknown_demand_on_clients_is_refused_rather_than_dropped() -> None:
    with pytest.raises(ConfigError) as caught:
        TlsServerConfig.from_properties({"tls.server.need.client.auth": "always"})
    assert caught.value.key == "tls.server.need.client.auth"
    assert "'always'" in str(caught.value)


# ---- certificates that change ------------------------------------------------------------------


@within(10)
async def test_replaced_certificates_are_used_for_new_connections_and_old_ones_live_on(
    server_files: Files, identity: Identity, authority: trustme.CA, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=TRUST_ALL) as client,
    ):
        await client.request(address_of(server), ECHO)
        established = client.open_channel_to(address_of(server))
        assert await serial_of(server) == identity.serial
        for _ in range(2):
            renewed = Identity.issued_by(authority)
            server_files.put(renewed)
            assert await serial_of(server) == renewed.serial
            await client.request(address_of(server), ECHO)
        assert client.open_channel_to(address_of(server)) is established
    assert complaints(caplog) == []


@within(10)
async def test_a_certificate_written_over_in_place_is_noticed_too(
    server_files: Files, identity: Identity, authority: trustme.CA
) -> None:
    async with tls_serving(server_config(server_files)) as server:
        assert await serial_of(server) == identity.serial
        renewed = Identity.issued_by(authority)
        server_files.cert.write_bytes(renewed.cert_pem)
        server_files.key.write_bytes(renewed.key_pem)
        for path in (server_files.cert, server_files.key):
            # Two writes may fall into one tick of the file system's clock; a second apart they
            # would not.
            os.utime(path, ns=(0, path.stat().st_mtime_ns + 10**9))
        assert await serial_of(server) == renewed.serial


@pytest.mark.parametrize("damage", ["garbage", "missing", "half-done"])
@within(10)
async def test_new_files_that_cannot_be_used_leave_the_old_ones_in_force_with_one_line(
    damage: str,
    server_files: Files,
    identity: Identity,
    authority: trustme.CA,
    caplog: pytest.LogCaptureFixture,
) -> None:
    renewed = Identity.issued_by(authority)
    async with tls_serving(server_config(server_files)) as server:
        if damage == "garbage":
            _put(server_files.cert, b"not a certificate")
        elif damage == "missing":
            server_files.key.unlink()
        else:
            # The new certificate is there, its key is not yet.
            _put(server_files.cert, renewed.cert_pem)
        for _ in range(3):
            assert await serial_of(server) == identity.serial
        (line,) = complaints(caplog)
        assert "not reloaded" in line
        assert str(server_files.cert) in line or str(server_files.key) in line
        caplog.clear()
        server_files.put(renewed)
        assert await serial_of(server) == renewed.serial
    assert complaints(caplog) == []


@within(10)
async def test_a_replaced_list_of_trusted_authorities_decides_about_new_connections(
    server_files: Files, client_files: Files, foreign: trustme.CA
) -> None:
    client_files.put(Identity.issued_by(foreign, "client@example.org"))
    context = client_context(
        TlsClientConfig(cert_path=client_files.cert, key_path=client_files.key)
    )
    config = replace(
        server_config(server_files),
        client_auth=ClientAuth.REQUIRE,
        trust_cert_path=server_files.trust,
    )
    async with tls_serving(config) as server, open_client(tls_context=context) as client:
        with pytest.raises(ClientError):
            await client.request(address_of(server), ECHO, timeout_s=9)
        server_files.put_trust(foreign)
        assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"


# ---- handshakes that go wrong ------------------------------------------------------------------


HELLO_BEGINS: Final = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
"""The first bytes of a ClientHello of 512 bytes."""


@within(10)
async def test_a_handshake_that_never_finishes_is_cut_with_one_line(
    server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    config = ServerConfig(host="127.0.0.1", handshake_timeout_s=0.05)
    async with tls_serving(server_config(server_files), config) as server:
        stream = await trio.open_tcp_stream("127.0.0.1", server.port)
        await stream.send_all(HELLO_BEGINS)
        with contextlib.suppress(trio.BrokenResourceError):
            assert await stream.receive_some() == b""
        await stream.aclose()
        assert server.statistics().failed_handshakes == 1
    (line,) = complaints(caplog)
    assert "TLS handshake unfinished after 0.05 s" in line


@within(10)
async def test_handshakes_that_never_finish_do_not_hold_up_others(server_files: Files) -> None:
    async with contextlib.AsyncExitStack() as stack:
        server = await stack.enter_async_context(tls_serving(server_config(server_files)))
        for number in range(50):
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            await stack.enter_async_context(stream)
            await stream.send_all(HELLO_BEGINS[: 1 + number % len(HELLO_BEGINS)])
        client = await stack.enter_async_context(open_client(tls_context=TRUST_ALL))
        assert (await client.request(address_of(server), ECHO, body=b"x")).body == b"x"
        assert server.statistics().failed_handshakes == 0, "they were still waited for"


@within(10)
async def test_a_server_that_never_finishes_a_handshake_is_given_up() -> None:
    with RawServer() as raw:
        files = open_files()
        config = ClientConfig(connect_timeout_s=0.05)
        async with open_client(config, tls_context=TRUST_ALL) as client:
            with pytest.raises(ConnectFailedError, match=r"no connection within 0\.05 s"):
                await client.request(raw.address, ECHO)
        assert open_files() <= files


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", id="http"),
        pytest.param(request_frame(ECHO, 1), id="plain-frame"),
    ],
)
@within(10)
async def test_a_server_that_does_not_speak_tls_is_named_as_such(said: bytes) -> None:
    with RawServer() as raw:
        async with (
            open_client(tls_context=TRUST_ALL) as client,
            trio.open_nursery() as nursery,
        ):
            call = start_call(nursery, client, address=raw.address, timeout_s=9)
            stream = await raw.accept()
            await stream.receive_some()
            if said:
                await stream.send_all(said)
            await stream.aclose()
            error = (await call.wait()).error
            assert isinstance(error, ConnectFailedError)
            assert error.peer == raw.address
            assert "TLS handshake failed: " in error.reason
            assert not error.reason.endswith(": ")


@within(10)
async def test_broken_records_after_the_handshake_wake_the_waiters_with_the_cause(
    server_files: Files,
) -> None:
    with RawServer() as raw:
        context = TlsServer(server_config(server_files)).current()
        assert context is not None
        async with (
            open_client(tls_context=TRUST_ALL) as client,
            trio.open_nursery() as nursery,
        ):
            calls = [
                start_call(nursery, client, address=raw.address, timeout_s=9) for _ in range(5)
            ]
            async with await raw.accept() as tcp:
                stream = trio.SSLStream(tcp, context, server_side=True)
                await stream.receive_some()
                await tcp.send_all(b"this is no TLS record at all")
                for call in calls:
                    error = (await call.wait()).error
                    assert isinstance(error, ConnectionLostError)
                    assert "SSL" in error.reason, "the reason is OpenSSL's to tell"


async def _garbage(stream: trio.SocketStream) -> None:
    """A record that is no ClientHello."""
    await stream.send_all(b"\x16\x03\x01\x00\x20" + b"\xa5" * 32)


async def _cut_short(stream: trio.SocketStream) -> None:
    """Half a ClientHello, then the end."""
    await stream.send_all(HELLO_BEGINS)
    await stream.send_eof()


async def _reset(stream: trio.SocketStream) -> None:
    """Half a ClientHello, then a reset."""
    await stream.send_all(HELLO_BEGINS)
    reset(stream)


@within(15)
async def test_a_flood_of_broken_handshakes_does_not_disturb_a_working_connection(
    server_files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    kinds = (_garbage, _cut_short, _reset)
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=TRUST_ALL) as client,
    ):
        await client.request(address_of(server), ECHO)
        established = client.open_channel_to(address_of(server))
        files = open_files()

        async def break_a_handshake(number: int) -> None:
            stream = await trio.open_tcp_stream("127.0.0.1", server.port)
            async with stream:
                await kinds[number % len(kinds)](stream)
                with contextlib.suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                    # Whatever the server says before it closes.
                    while await stream.receive_some():
                        pass

        async def work() -> None:
            for number in range(100):
                body = b"%d" % number
                answer = await client.request(address_of(server), ECHO, body=body, timeout_s=9)
                assert answer.body == body

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work)
            for number in range(200):
                nursery.start_soon(break_a_handshake, number)
        await wait_until(lambda: open_files() <= files)
        statistics = server.statistics()
        assert (statistics.accepted, statistics.failed_handshakes) == (201, 200)
        assert client.open_channel_to(address_of(server)) is established
        assert len(server.channels) == 1
    lines = complaints(caplog)
    assert len(lines) == LINES_PER_SOURCE
    assert not [line for line in lines if "127.0.0.1:" not in line], "it must say whose"


# ---- work on encrypted connections -------------------------------------------------------------


@within(15)
async def test_many_large_bodies_go_both_ways_at_once(server_files: Files) -> None:
    bodies = [bytes([number]) * (4 * MIB) for number in range(6)]
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=TRUST_ALL) as client,
        trio.open_nursery() as nursery,
    ):
        calls = [
            start_call(nursery, client, body=body, timeout_s=14, address=address_of(server))
            for body in bodies
        ]
        for body, call in zip(bodies, calls, strict=True):
            await call.wait()
            assert call.answer is not None, call.error
            assert call.answer.body == body
        assert server.statistics().accepted == 1


@within(10)
async def test_pipelined_requests_are_all_answered(server_files: Files) -> None:
    async with (
        tls_serving(server_config(server_files)) as server,
        open_client(tls_context=TRUST_ALL) as client,
    ):
        channel = await client.channel(address_of(server))
        collector = Collector()
        for number in range(2_000):
            channel.submit(ECHO, body=b"%d" % number, timeout_s=9, on_outcome=collector)
        await collector.wait_count(2_000)
    bodies = [
        outcome.body for outcome in collector.outcomes if not isinstance(outcome, ClientError)
    ]
    assert bodies == [b"%d" % number for number in range(2_000)]


@within(10)
async def test_a_server_calls_its_client_on_the_encrypted_connection(server_files: Files) -> None:
    async def ask_back(request: Request[EmptyHeader]) -> None:
        answer = await request.channel.request(
            RequestCode.GET_CONSUMER_RUNNING_INFO, body=request.body, timeout_s=9
        )
        request.reply(body=answer.body)

    def served_by_client(request: Request[EmptyHeader]) -> None:
        assert request.channel.secure
        request.reply(body=(request.body or b"").upper())

    server_table, client_table = HandlerTable(), HandlerTable()
    server_table.add_async(RequestType(code=ECHO), ask_back)
    client_table.add(RequestType(code=RequestCode.GET_CONSUMER_RUNNING_INFO), served_by_client)
    async with (
        tls_serving(server_config(server_files), table=server_table) as server,
        open_client(tls_context=TRUST_ALL, table=client_table) as client,
    ):
        answer = await client.request(address_of(server), ECHO, body=b"quiet", timeout_s=9)
        assert answer.body == b"QUIET"


@within(10)
async def test_one_way_requests_sent_just_before_leaving_still_arrive(
    server_files: Files,
) -> None:
    received: list[bytes | None] = []

    def note(request: Request[EmptyHeader]) -> None:
        received.append(request.body)

    table = HandlerTable()
    table.add(RequestType(code=ECHO), note)
    async with tls_serving(server_config(server_files), table=table) as server:
        async with open_client(tls_context=TRUST_ALL) as client:
            for number in range(200):
                await client.oneway(address_of(server), ECHO, body=b"%d" % number)
        await wait_until(lambda: not server.channels and server.statistics().accepted == 1)
    assert received == [b"%d" % number for number in range(200)]


@within(20)
async def test_a_client_cancelled_at_any_await_of_any_task_leaves_no_socket_open(
    server_files: Files,
) -> None:
    async with tls_serving(server_config(server_files)) as server:
        files = open_files()

        async def live() -> None:
            async with open_client(tls_context=TRUST_ALL) as client:
                await client.request(address_of(server), ECHO)

        async def check() -> None:
            with trio.fail_after(2):
                await wait_until(lambda: open_files() <= files)

        assert await cancelled_at_every_step(live, check, of_all_tasks=True) >= 5


@within(20)
async def test_a_server_cancelled_at_any_await_of_any_task_leaves_no_socket_open(
    server_files: Files,
) -> None:
    files = open_files()

    async def live() -> None:
        async with tls_serving(server_config(server_files)) as server:
            await serial_of(server)

    async def check() -> None:
        with trio.fail_after(2):
            await wait_until(lambda: open_files() <= files)

    assert await cancelled_at_every_step(live, check, of_all_tasks=True) >= 5


@within(10)
async def test_a_handshake_that_ends_while_the_server_closes_leaves_no_socket_open(
    server_files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handshake that completes in the very step in which the server closes can no longer be
    cancelled.
    """
    handshake = TlsServer.handshake
    done, closing = trio.Event(), trio.Event()

    async def complete_whatever_comes(tls: TlsServer, sock: socket.socket) -> StreamTransport:
        with trio.CancelScope(shield=True):
            transport = await handshake(tls, sock)
            done.set()
            await closing.wait()
        return transport

    monkeypatch.setattr(TlsServer, "handshake", complete_whatever_comes)
    server = RemotingServer(
        echo_table(), ServerConfig(host="127.0.0.1"), tls=TlsServer(server_config(server_files))
    )
    files = open_files()
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        await serial_of(server)
        await done.wait()
        nursery.cancel_scope.cancel()
        with trio.CancelScope(shield=True):
            await trio.testing.wait_all_tasks_blocked()
        closing.set()
    assert open_files() <= files
    assert not server.channels
