"""Makes docs/client-settings.md of the settings as they are declared.

python -m tests.client.settings_page > docs/client-settings.md
"""

from __future__ import annotations

import ast
import inspect
import sys
from dataclasses import MISSING, fields
from enum import Enum
from typing import Any, Final

from rmq.client.core.config import ClientConfig
from rmq.client.core.consuming.config import (
    BlockingConsumerConfig,
    LitePullConfig,
    PushConsumerConfig,
)
from rmq.client.core.producing.config import ProducerConfig
from rmq.remoting.signing import Credentials
from rmq.remoting.tls_config import TlsClientConfig

INTRODUCTION: Final = """\
# Settings of the Python clients

What can be said to `ClientConfig`, which all clients have, and to producers and consumers: as
arguments of the `open_...` functions, of `BlockingProducer` and `BlockingConsumer`, or in a
config of the class that is named. Defaults are those of RocketMQ 4.9.8 where it has the setting.
Sizes are in bytes, times in seconds (`_s`) or milliseconds since 1970 (`_ms`). A value that makes
no sense raises `ConfigError` before anything is connected. [The Python client](client.md) shows
them at work. A test compares this page with the code.
"""

CLASSES: Final[dict[str, type]] = {
    "Client": ClientConfig,
    "Producer": ProducerConfig,
    "Push consumer": PushConsumerConfig,
    "Lite pull consumer": LitePullConfig,
    "Blocking consumer": BlockingConsumerConfig,
    "TLS (`tls` of a client)": TlsClientConfig,
    "Account (`credentials` of a client)": Credentials,
}
SAID: Final = {
    "unit_name": "A part of the client id, for clients of several clusters.",
    "credentials": "The account that requests are signed with; None: they are not signed.",
    "request_timeout_s": "How long a request that has no time of its own is waited for.",
    "connect_timeout_s": "How long a connection may take.",
    "route_refresh_s": "How often routes are asked for again.",
    "heartbeat_s": "How often brokers are told of producers and consumers.",
    "serialization": "How headers are written: as JSON, or in the binary form of RocketMQ.",
    "message_model": "CLUSTERING: members share the messages. BROADCASTING: each gets all.",
    "group": "The group that it is a member of.",
    "trust_cert_path": "The certificates that servers are trusted by.",
    "cert_path": "The certificate that is shown to servers which ask for one.",
    "key_path": "The key of that certificate.",
    "key_password": "The password of that key.",
    "access_key": "The name of the account.",
    "secret_key": "The secret that requests are signed with.",
    "security_token": "A token that is sent beside, for accounts that have one.",
}
"""What is plain in the code and has no words there."""


def page() -> str:
    """Return the page as it has to be."""
    parts = [INTRODUCTION]
    for title, kind in CLASSES.items():
        parts.append(f"\n## {title}\n\n`{kind.__name__}`\n\n")
        parts.append("| setting | default | meaning |\n| --- | --- | --- |\n")
        words = _words(kind)
        for field in fields(kind):
            said = words.get(field.name) or SAID[field.name]
            parts.append(
                f"| `{field.name}` | {_default(field)} | {said.replace('|', chr(92) + '|')} |\n"
            )
    return "".join(parts)


def _words(kind: type) -> dict[str, str]:
    """Return what stands below each field in the source."""
    (declared,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(declared, ast.ClassDef)
    words = {}
    for statement, following in zip(declared.body, declared.body[1:], strict=False):
        if (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            words[statement.target.id] = " ".join(str(following.value.value).split())
    return words


def _default(field: Any) -> str:  # noqa: ANN401 - a field of any class
    if field.default_factory is not MISSING:
        return f"`{field.default_factory().name}`"
    if field.default is MISSING:
        return "required"
    value = field.default
    if isinstance(value, Enum):
        return f"`{value.name}`"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
