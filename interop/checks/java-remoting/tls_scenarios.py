"""What RocketMQ's own `TlsTest` tries, with the stock client against our server.

The class is part of no published jar, so its scenarios are told again here, under the names of its
methods. Server and client get the keys of 4.9.8; ours reads them as `broker.conf` does. Where the
client is to be turned away it must see the exception that the class demands.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from interop.support.certificates import Authority

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ANSWERED: Final = "answered"
REFUSED: Final = "send-refused"


@dataclass(frozen=True)
class Scenario:
    """One method of the class."""

    name: str
    suite: str
    server: Mapping[str, str] = field(default_factory=dict)
    """What differs from `server_settings`; an empty value is a key that is not set."""
    client: Mapping[str, str] = field(default_factory=dict)
    """What differs from `client_settings`."""
    from_file: bool = False
    """Whether the client reads its settings from `tls.config.file`."""


_NO_CERTIFICATE: Final = {"tls.client.keyPath": "", "tls.client.certPath": ""}


@dataclass(frozen=True)
class Settings:
    """Certificates, and the settings that all scenarios begin with."""

    server: Mapping[str, str]
    client: Mapping[str, str]
    scenarios: tuple[Scenario, ...]


def make_settings(folder: Path) -> Settings:
    ours, strangers = Authority(folder, "tls-ours"), Authority(folder, "tls-strangers")
    server, client = ours.issue("server"), ours.issue("client")
    bad_server, bad_client = strangers.issue("server"), strangers.issue("client")
    foreign_client = {
        "tls.client.keyPath": str(bad_client.key),
        "tls.client.certPath": str(bad_client.cert),
    }
    foreign_server = {
        "tls.server.keyPath": str(bad_server.key),
        "tls.server.certPath": str(bad_server.cert),
    }
    return Settings(
        server={
            "tls.server.mode": "enforcing",
            "tls.test.mode.enable": "false",
            "tls.server.need.client.auth": "require",
            "tls.server.keyPath": str(server.key),
            "tls.server.certPath": str(server.cert),
            "tls.server.authClient": "true",
            "tls.server.trustCertPath": str(ours.trust),
        },
        client={
            "tls.enable": "true",
            "tls.test.mode.enable": "false",
            "tls.client.keyPath": str(client.key),
            "tls.client.certPath": str(client.cert),
            "tls.client.authServer": "true",
            "tls.client.trustCertPath": str(ours.trust),
        },
        scenarios=(
            Scenario("basicClientServerIntegrationTest", ANSWERED),
            Scenario(
                "serverNotNeedClientAuth",
                ANSWERED,
                {"tls.server.need.client.auth": "none"},
                _NO_CERTIFICATE,
            ),
            Scenario("serverWantClientAuth", ANSWERED, {"tls.server.need.client.auth": "optional"}),
            Scenario(
                "serverWantClientAuth_ButClientNoCert",
                ANSWERED,
                {"tls.server.need.client.auth": "optional"},
                _NO_CERTIFICATE,
            ),
            Scenario(
                "serverAcceptsUnAuthClient",
                ANSWERED,
                {"tls.server.mode": "permissive"},
                {"tls.enable": "false"},
            ),
            Scenario("serverRejectsSSLClient", REFUSED, {"tls.server.mode": "disabled"}),
            Scenario("serverRejectsUntrustedClientCert", REFUSED, {}, foreign_client),
            Scenario(
                "serverAcceptsUntrustedClientCert",
                ANSWERED,
                {"tls.server.authClient": "false"},
                foreign_client,
            ),
            Scenario("noClientAuthFailure", REFUSED, {}, _NO_CERTIFICATE),
            Scenario("clientRejectsUntrustedServerCert", REFUSED, foreign_server),
            Scenario(
                "clientAcceptsUntrustedServerCert",
                ANSWERED,
                foreign_server,
                {"tls.client.authServer": "false"},
            ),
            Scenario("testTlsConfigThroughFile", ANSWERED, from_file=True),
            # Not in the class, but what all its settings are by default.
            Scenario(
                "test mode on both sides",
                ANSWERED,
                {
                    "tls.server.mode": "permissive",
                    "tls.test.mode.enable": "",
                    "tls.server.need.client.auth": "",
                    "tls.server.keyPath": "",
                    "tls.server.certPath": "",
                    "tls.server.authClient": "",
                    "tls.server.trustCertPath": "",
                },
                {"tls.test.mode.enable": "true", **_NO_CERTIFICATE},
            ),
        ),
    )


def merged(settings: Mapping[str, str], changes: Mapping[str, str]) -> dict[str, str]:
    """Return settings with changes; those that are empty then are not set."""
    return {key: value for key, value in {**settings, **changes}.items() if value}
