"""Settings of TLS, which a Java broker takes as system properties or from a file of their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rmq.model.settings import Effect, Setting, format_value
from rmq.remoting.tls_config import ClientAuth, TlsClientConfig, TlsMode, TlsServerConfig

if TYPE_CHECKING:
    from rmq.model.settings import Value, Values


def tls_server_config(values: Values) -> TlsServerConfig:
    """How clients are served."""
    return TlsServerConfig.from_properties(_texts(values))


def tls_client_config(values: Values) -> TlsClientConfig | None:
    """How nameservers and other brokers are dialled; None: without TLS."""
    return TlsClientConfig.from_properties(_texts(values)) if values.flag("useTLS") else None


def tls_replication_config(values: Values) -> TlsClientConfig | None:
    """How a slave dials its master, whatever `useTLS` says; None: without TLS."""
    if values["haTlsMode"] == "disabled":
        return None
    return TlsClientConfig.from_properties(_texts(values))


def _texts(values: Values) -> dict[str, str]:
    return {
        setting.key: format_value(values[setting.key])
        for setting in TLS_SETTINGS
        if values[setting.key] is not None
    }


def _row(
    key: str,
    default: Value,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    section: str = "tls",
    secret: bool = False,
) -> Setting:
    return Setting(
        key=key,
        default=default,
        help=help,
        effect=Effect.RESTART,
        section=section,
        choices=choices,
        secret=secret,
    )


TLS_SETTINGS: Final = (
    _row(
        "tls.server.mode",
        "permissive",
        "Whether clients speak TLS: never (disabled), if they like (permissive), always "
        "(enforcing).",
        choices=tuple(mode.value for mode in TlsMode),
    ),
    _row("tls.server.certPath", None, "The broker's certificate, a PEM file."),
    _row("tls.server.keyPath", None, "The key of the broker's certificate."),
    _row("tls.server.keyPassword", None, "The password of the broker's key.", secret=True),
    _row(
        "tls.server.need.client.auth",
        "none",
        "Whether clients are asked for a certificate.",
        choices=tuple(auth.value for auth in ClientAuth),
    ),
    _row("tls.server.authClient", False, "Clients' certificates are checked."),
    _row("tls.server.trustCertPath", None, "Who may sign the certificates of clients."),
    _row(
        "useTLS",
        False,
        "Nameservers and other brokers are dialled with TLS.",
        section="client",
    ),
    _row(
        "tls.client.authServer", False, "Certificates of nameservers and other brokers are checked."
    ),
    _row(
        "tls.client.trustCertPath",
        None,
        "Who may sign the certificates of nameservers and other brokers.",
    ),
    _row("tls.client.certPath", None, "The certificate shown to nameservers and other brokers."),
    _row("tls.client.keyPath", None, "The key of tls.client.certPath."),
    _row("tls.client.keyPassword", None, "The password of tls.client.keyPath.", secret=True),
)
