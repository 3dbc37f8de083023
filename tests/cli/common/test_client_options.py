"""Options of accounts and encryption that all commands share."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from rmq.cli.common.client_options import (
    credentials,
    tls_config,
)
from rmq.cli.common.usage import UsageError
from rmq.cli.ha.client import open_ha_client
from rmq.errors import ConnectFailedError
from rmq.remoting.signing import Credentials
from rmq.remoting.tls import TlsServer
from rmq.remoting.tls_config import TlsClientConfig, TlsMode, TlsServerConfig
from tests.cli.parsing import args_of
from tests.remoting.client_kit import ECHO, address_of, echo_table, serving


def config_of(*arguments: str) -> TlsClientConfig | None:
    return tls_config(args_of("cluster", *arguments))


def test_connections_are_encrypted_and_checked_as_the_options_say() -> None:
    assert config_of() is None
    assert config_of("--tls") == TlsClientConfig()
    trust = Path("ca.pem")
    assert config_of("--tls-trust", "ca.pem") == TlsClientConfig(
        auth_server=True, trust_cert_path=trust
    )
    assert config_of("--tls-trust", "ca.pem", "--tls-check-host") == TlsClientConfig(
        auth_server=True, check_hostname=True, trust_cert_path=trust
    )
    for arguments in (["--tls-check-host"], ["--tls", "--tls-check-host"]):
        with pytest.raises(UsageError, match="--tls-trust"):
            config_of(*arguments)


async def test_hosts_are_checked_where_that_is_asked_for(tmp_path: Path) -> None:
    """By the client of `rmq ha`, against a server with the certificate of another host."""
    authority = trustme.CA()
    issued = authority.issue_cert("broker-2.example")
    trust, cert, key = (tmp_path / name for name in ("ca.pem", "cert.pem", "key.pem"))
    authority.cert_pem.write_to_path(str(trust))
    issued.cert_chain_pems[0].write_to_path(str(cert))
    issued.private_key_pem.write_to_path(str(key))
    tls = TlsServer(TlsServerConfig(mode=TlsMode.ENFORCING, cert_path=cert, key_path=key))
    async with serving(echo_table(), tls=tls) as server:
        address = address_of(server)
        async with open_ha_client(9.0, tls=config_of("--tls-trust", str(trust))) as client:
            assert (await client._call(address, ECHO, body=b"x")).body == b"x"
        checking = config_of("--tls-trust", str(trust), "--tls-check-host")
        async with open_ha_client(9.0, tls=checking) as client:
            with pytest.raises(ConnectFailedError, match=r"not valid for '127\.0\.0\.1'"):
                await client.status(address)


def test_a_secret_on_the_command_line_is_taken_and_warned_about(
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = Credentials(access_key="the-user", secret_key="visible-to-all")
    args = args_of("cluster", "--access-key", "the-user", "--secret-key", "visible-to-all")
    assert credentials(args, {}) == wanted
    assert "--secret-key is deprecated" in caplog.text
    assert "visible-to-all" not in caplog.text
    caplog.clear()
    args = args_of("cluster", "--access-key", "the-user")
    assert credentials(args, {"RMQ_SECRET_KEY": "visible-to-all"}) == wanted
    assert caplog.text == ""
