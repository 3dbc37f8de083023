"""The `tls.server.*` settings that brokers and nameservers have in common.

A Java server takes them as system properties or from a file of their own; here they stand with the
others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rmq.remoting.tls_config import ClientAuth, TlsMode, TlsServerConfig
from rmq.settings.schema import Effect, Setting, format_value

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rmq.settings.schema import Value, Values


def tls_server_settings(whose: str) -> tuple[Setting, ...]:
    """Return the settings of a server: `whose` is what it is called in their help."""
    return (
        tls_setting(
            "tls.server.mode",
            "permissive",
            "Whether clients speak TLS: never (disabled), if they like (permissive), always "
            "(enforcing).",
            choices=tuple(mode.value for mode in TlsMode),
        ),
        tls_setting(
            "tls.test.mode.enable",
            True,
            "Without tls.server.certPath a certificate is made that encrypts and proves nothing.",
        ),
        tls_setting("tls.server.certPath", None, f"The {whose}'s certificate, a PEM file."),
        tls_setting(
            "tls.server.keyPath",
            None,
            f"The key of the {whose}'s certificate.",
            names_secret=True,
        ),
        tls_setting(
            "tls.server.keyPassword", None, f"The password of the {whose}'s key.", secret=True
        ),
        tls_setting(
            "tls.server.need.client.auth",
            "none",
            "Whether clients are asked for a certificate.",
            choices=tuple(auth.value for auth in ClientAuth),
        ),
        tls_setting(
            "tls.server.authClient",
            False,
            "Clients' certificates are checked; otherwise none is asked for.",
        ),
        tls_setting("tls.server.trustCertPath", None, "Who may sign the certificates of clients."),
    )


def tls_setting(
    key: str,
    default: Value,
    help: str,
    *,
    choices: tuple[str, ...] = (),
    section: str = "tls",
    secret: bool = False,
    names_secret: bool = False,
) -> Setting:
    """Return a setting that counts after a restart."""
    return Setting(
        key=key,
        default=default,
        help=help,
        effect=Effect.RESTART,
        section=section,
        choices=choices,
        secret=secret,
        guarded=True,
        names_secret=names_secret,
    )


def tls_server_config(values: Values) -> TlsServerConfig:
    """How clients are served; raise `ConfigError`."""
    return TlsServerConfig.from_properties(texts(values, tls_server_settings("")))


def tls_server_warnings(values: Values) -> list[str]:
    """What an operator probably did not mean, in sentences for the log."""
    found: list[str] = []
    if values["tls.server.mode"] == TlsMode.ENFORCING and not values["tls.server.certPath"]:
        found.append(
            "tls.server.mode=enforcing without tls.server.certPath: connections are encrypted with"
            " a certificate that proves nothing: a host in between can read them"
        )
    asked = values["tls.server.need.client.auth"]
    if asked != ClientAuth.NONE and not values.flag("tls.server.authClient"):
        found.append(
            f"tls.server.need.client.auth={asked} without tls.server.authClient=true checks no"
            " certificate of a client: every client that can connect is served"
        )
    return found


def texts(values: Values, settings: Iterable[Setting]) -> dict[str, str]:
    """Return the settings that have a value as text."""
    return {
        setting.key: format_value(values[setting.key])
        for setting in settings
        if values[setting.key] is not None
    }
