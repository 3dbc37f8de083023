"""Proof that both ends of a replication link know the same secret.

Each proof covers the other side's nonce and everything the body says, so that neither an old
handshake nor parts of one are worth anything on another connection.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from rmq.ha.protocol.wire import MAC_BYTES, Hello, HelloBody, Welcome, WelcomeBody, pack_body

if TYPE_CHECKING:
    import construct

_NO_MAC: Final = bytes(MAC_BYTES)

B = TypeVar("B", HelloBody, WelcomeBody)


def sign_hello(hello: HelloBody, secret: bytes, nonce: bytes) -> HelloBody:
    """Return a slave's introduction with the proof for the master's `nonce`."""
    return _signed(Hello, hello, secret, b"slave" + nonce)


def sign_welcome(welcome: WelcomeBody, secret: bytes, nonce: bytes) -> WelcomeBody:
    """Return a master's answer with the proof for the slave's `nonce`."""
    return _signed(Welcome, welcome, secret, b"master" + nonce)


def is_hello_genuine(hello: HelloBody, secret: bytes, nonce: bytes) -> bool:
    return hmac.compare_digest(hello.mac, sign_hello(hello, secret, nonce).mac)


def is_welcome_genuine(welcome: WelcomeBody, secret: bytes, nonce: bytes) -> bool:
    return hmac.compare_digest(welcome.mac, sign_welcome(welcome, secret, nonce).mac)


def _signed(declaration: construct.Struct, body: B, secret: bytes, context: bytes) -> B:
    if not secret:
        return msgspec.structs.replace(body, mac=_NO_MAC)
    unsigned = pack_body(declaration, msgspec.structs.replace(body, mac=_NO_MAC))
    mac = hmac.new(secret, context + unsigned, hashlib.sha256).digest()
    return msgspec.structs.replace(body, mac=mac)
