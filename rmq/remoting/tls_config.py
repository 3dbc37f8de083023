"""TLS settings, and the contexts that follow from them. No connection is made here.

Settings have the names and meaning of 4.9.8 (`tls.server.mode`, `tls.server.keyPath` ...), files
are PEM. A client trusts only configured certificates unless `authServer` is false. A server without
a certificate gets one that is made here, as a stock server in test mode does.
"""

from __future__ import annotations

import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
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

_OLDEST: Final = ssl.TLSVersion.TLSv1_2
"""Stated here, because the configuration of the machine may allow older ones."""

_SELF_SIGNED_NAME: Final = "rmq self-signed"
_SELF_SIGNED_BEFORE: Final = timedelta(days=1)
"""For clients whose clock is behind."""
_SELF_SIGNED_FOR: Final = timedelta(days=3650)
_KEY_PASSWORD_BYTES: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsServerConfig:
    """The `tls.server.*` settings."""

    mode: TlsMode = TlsMode.PERMISSIVE
    cert_path: Path | None = None
    key_path: Path | None = None
    key_password: str | None = field(default=None, repr=False)
    client_auth: ClientAuth = ClientAuth.NONE
    trust_cert_path: Path | None = None
    """Certificates of the authorities that sign clients' certificates."""
    test_mode: bool = True
    """Whether a server without a certificate makes one for itself."""

    def __post_init__(self) -> None:
        if (self.cert_path is None) != (self.key_path is None):
            raise ConfigError(
                "tls.server.certPath", "certificate and key go together: set both or neither"
            )
        if self.mode is TlsMode.ENFORCING and self.cert_path is None and not self.test_mode:
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
        checks_clients = _flag(properties, "tls.server.authClient")
        return cls(
            mode=TlsMode(mode) if mode in set(TlsMode) else TlsMode.PERMISSIVE,
            cert_path=_path(properties, "tls.server.certPath"),
            key_path=_path(properties, "tls.server.keyPath"),
            key_password=properties.get("tls.server.keyPassword") or None,
            # Where 4.9.8 checks nothing it takes any certificate, also one that its owner signed:
            # that proves as little as none, so none is asked for.
            client_auth=ClientAuth(auth) if checks_clients else ClientAuth.NONE,
            trust_cert_path=_path(properties, "tls.server.trustCertPath")
            if checks_clients
            else None,
            test_mode=_flag(properties, "tls.test.mode.enable", default=True),
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
    key_password: str | None = field(default=None, repr=False)

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
            raise ConfigError(
                "tls.client.checkHost",
                "host names are checked in certificates that are checked",
                hint="set tls.client.authServer=true and tls.client.trustCertPath",
            )

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> TlsClientConfig:
        """Read the keys of 4.9.8."""
        return cls(
            auth_server=_flag(properties, "tls.client.authServer"),
            check_hostname=_flag(properties, "tls.client.checkHost"),
            trust_cert_path=_path(properties, "tls.client.trustCertPath"),
            cert_path=_path(properties, "tls.client.certPath"),
            key_path=_path(properties, "tls.client.keyPath"),
            key_password=properties.get("tls.client.keyPassword") or None,
        )


def server_context(config: TlsServerConfig) -> ssl.SSLContext:
    """Return what a server needs to answer TLS.

    Without a configured certificate one is made, which blocks for some milliseconds.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _OLDEST
    if config.cert_path is None:
        _load_self_signed(context)
    else:
        _load_chain(context, "tls.server", config.cert_path, config.key_path, config.key_password)
    if config.trust_cert_path is not None:
        _load_trust(context, "tls.server", config.trust_cert_path)
    context.verify_mode = _VERIFY_MODES[config.client_auth]
    return context


def _load_self_signed(context: ssl.SSLContext) -> None:
    """Make a key and a certificate for it, and load both.

    It encrypts and proves nothing: every client that checks certificates refuses it. It is made for
    one process and is gone with it.
    """
    password = secrets.token_urlsafe(_KEY_PASSWORD_BYTES)
    # Python's ssl reads files only. This one has mode 0600 and is removed at once, and the password
    # of the key in it is in memory only.
    with tempfile.NamedTemporaryFile(prefix="rmq-tls-", suffix=".pem") as file:
        file.write(_make_pem(password))
        file.flush()
        context.load_cert_chain(file.name, password=password)


def _make_pem(password: str) -> bytes:
    """Return an encrypted key, and a certificate that it signed."""
    # Imported here: most processes never need it.
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.serialization import (
            BestAvailableEncryption,
            Encoding,
            PrivateFormat,
        )
        from cryptography.x509.oid import NameOID
    except ImportError as exc:
        raise ConfigError(
            "tls.server.certPath",
            f"is not set, and a certificate cannot be made: {exc}",
            hint="set tls.server.certPath and tls.server.keyPath, or install `cryptography`",
        ) from exc
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _SELF_SIGNED_NAME)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _SELF_SIGNED_BEFORE)
        .not_valid_after(now + _SELF_SIGNED_FOR)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encryption = BestAvailableEncryption(password.encode())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption) + (
        certificate.public_bytes(Encoding.PEM)
    )


def client_context(config: TlsClientConfig) -> ssl.SSLContext:
    """Return what a client needs to dial TLS."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _OLDEST
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


def _flag(properties: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    value = properties.get(key, "").strip().lower()
    return value == "true" if value else default


def _path(properties: Mapping[str, str], key: str) -> Path | None:
    value = properties.get(key, "").strip()
    return Path(value) if value else None
