"""TLS settings, and the contexts that follow from them. No connection is made here.

Settings have the names and meaning of 4.9.8 (`tls.server.mode`, `tls.server.keyPath` ...), files
are PEM. A client trusts only configured certificates unless `authServer` is false.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rmq.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping


class TlsMode(StrEnum):
    """What a server does with the first byte of a connection."""

    DISABLED = "disabled"
    """Plain only."""
    PERMISSIVE = "permissive"
    """Either: the first byte tells."""
    ENFORCING = "enforcing"
    """TLS only."""


class ClientAuth(StrEnum):
    """Whether a server asks its clients for a certificate."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.OPTIONAL: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRE: ssl.CERT_REQUIRED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """The `tls.server.*` settings."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = None
    client_auth: ClientAuth = ClientAuth.NONE
    trust_cert_path: Path | None = None
    """Certificates of the authorities that sign clients' certificates."""

    def __post_init__(self) -> None:
        if (self.cert_path is None) != (self.key_path is None):
            raise ConfigError(
                "tls.server.certPath", "certificate and key go together: set both or neither"
            )
        if self.mode is TlsMode.ENFORCING and self.cert_path is None:
            raise ConfigError(
                "tls.server.mode",
                "enforcing needs a certificate",
                hint="set tls.server.certPath and tls.server.keyPath",
            )
        if self.client_auth is not ClientAuth.NONE and self.trust_cert_path is None:
            raise ConfigError(
                "tls.server.need.client.auth",
                f"{self.client_auth.value} needs to know whom to trust",
                hint="set tls.server.trustCertPath",
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TlsServerConfig:
        """Read the keys of 4.9.8; an unknown mode means permissive, as there."""
        mode = properties.get("tls.server.mode", "").strip().lower()
        auth = properties.get("tls.server.need.client.auth", "").strip().lower() or "none"
        if auth not in set(ClientAuth):
            raise ConfigError(
                "tls.server.need.client.auth", f"{auth!r} is not none, optional or require"
            )
        trust = _path(properties, "tls.server.trustCertPath")
        if properties.get("tls.server.authClient", "").strip().lower() != "true":
            trust = None if auth == "none" else trust
        return cls(
            mode=TlsMode(mode) if mode in set(TlsMode) else TlsMode.PERMISSIVE,
            cert_path=_path(properties, "tls.server.certPath"),
            key_path=_path(properties, "tls.server.keyPath"),
            key_password=properties.get("tls.server.keyPassword") or None,
            client_auth=ClientAuth(auth),
            trust_cert_path=trust,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsClientConfig:
    """The `tls.client.*` settings."""

    auth_server: bool = False
    """Whether the server's certificate is checked."""
    check_hostname: bool = False
    """Whether it must also name the host that was dialled; 4.9.8 never asks for that."""
    trust_cert_path: Path | None = None
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = None

    def __post_init__(self) -> None:
        if self.auth_server and self.trust_cert_path is None:
            raise ConfigError(
                "tls.client.authServer",
                "needs to know whom to trust",
                hint="set tls.client.trustCertPath",
            )
        if (self.cert_path is None) != (self.key_path is None):
            raise ConfigError(
                "tls.client.certPath", "certificate and key go together: set both or neither"
            )
        if self.check_hostname and not self.auth_server:
            raise ConfigError("tls.client.authServer", "must be true for host names to be checked")

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TlsClientConfig:
        """Read the keys of 4.9.8."""
        return cls(
            auth_server=properties.get("tls.client.authServer", "").strip().lower() == "true",
            trust_cert_path=_path(properties, "tls.client.trustCertPath"),
            cert_path=_path(properties, "tls.client.certPath"),
            key_path=_path(properties, "tls.client.keyPath"),
            key_password=properties.get("tls.client.keyPassword") or None,
        )


def server_context(config: TlsServerConfig) -> ssl.SSLContext:
    """Return what a server with a certificate needs to answer TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    assert config.cert_path is not None, "loading needs a certificate"
    _load_chain(context, "tls.server", config.cert_path, config.key_path, config.key_password)
    if config.trust_cert_path is not None:
        _load_trust(context, "tls.server", config.trust_cert_path)
    context.verify_mode = _VERIFY_MODES[config.client_auth]
    return context


def client_context(config: TlsClientConfig) -> ssl.SSLContext:
    """Return what a client needs to dial TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = config.check_hostname
    context.verify_mode = ssl.CERT_REQUIRED if config.auth_server else ssl.CERT_NONE
    if config.trust_cert_path is not None:
        _load_trust(context, "tls.client", config.trust_cert_path)
    if config.cert_path is not None:
        _load_chain(context, "tls.client", config.cert_path, config.key_path, config.key_password)
    return context


def _load_chain(
    context: ssl.SSLContext, prefix: str, cert: Path, key: Path | None, password: str | None
) -> None:
    # Without an explicit answer OpenSSL would ask for a password on the terminal.
    try:
        context.load_cert_chain(cert, key, password=password or "")
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(
            f"{prefix}.{_blamed_setting(cert, key)}",
            f"cannot use {cert} with {key}: {exc.strerror or exc}",
        ) from exc


def _blamed_setting(cert: Path, key: Path | None) -> str:
    """Find out which setting made a certificate and key unusable: OpenSSL does not tell."""
    if key is not None and "CERTIFICATE" in _pem(cert):
        text = _pem(key)
        if "ENCRYPTED" in text:
            return "keyPassword"
        if "PRIVATE KEY" not in text:
            return "keyPath"
    return "certPath"


def _pem(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def _load_trust(context: ssl.SSLContext, prefix: str, path: Path) -> None:
    try:
        context.load_verify_locations(cafile=path)
    except (OSError, ssl.SSLError) as exc:
        raise ConfigError(
            f"{prefix}.trustCertPath", f"cannot use {path}: {exc.strerror or exc}"
        ) from exc


def _path(properties: Mapping[str, str], key: str) -> Path | None:
    value = properties.get(key, "").strip()
    return Path(value) if value else None
