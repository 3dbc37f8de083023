"""Signatures of requests, for servers with access control (`aclEnable`). Pure.

The signature is Base64 of HMAC-SHA1 over the values of all header fields, in the order of their
names, and the body. Stock brokers leave `_UNIQUE_KEY_QUERY` out when they check it, so it is left
out here: the stock 4.9.8 client signs it, and its queries by unique key are refused.
"""

from __future__ import annotations

import hashlib
from binascii import b2a_base64
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, final

from rmq.errors import ConfigError
from rmq.remoting.header import ext_fields_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from rmq.remoting.header import Header

ACCESS_KEY: Final = "AccessKey"
SECURITY_TOKEN: Final = "SecurityToken"
SIGNATURE: Final = "Signature"
UNSIGNED: Final = "_UNIQUE_KEY_QUERY"
"""The field that stock brokers do not sign."""
_BLOCK_BYTES: Final = 64
"""Of SHA-1."""
_JOINED_BYTES_MAX: Final = 2048
"""To copy a longer body takes longer than to hash it by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Who a client is to brokers with access control."""

    access_key: str
    secret_key: str = field(repr=False)
    security_token: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        for name in ("access_key", "secret_key"):
            if not getattr(self, name):
                raise ConfigError(name, "is empty")


def signed(
    credentials: Credentials,
    header: Header | None,
    extra: Mapping[str, str] | None,
    body: bytes | None,
) -> dict[str, str]:
    """Return `extra` with the access key and the signature of the request."""
    fields = dict(extra or {})
    fields[ACCESS_KEY] = credentials.access_key
    if credentials.security_token is not None:
        fields[SECURITY_TOKEN] = credentials.security_token
    everything = fields if header is None else ext_fields_of(header, fields)
    everything = {name: value for name, value in everything.items() if name != UNSIGNED}
    fields[SIGNATURE] = signature_of(everything, body, credentials.secret_key)
    return fields


def signature_of(fields: Mapping[str, str], body: bytes | None, secret_key: str) -> str:
    """Return the signature over the values of `fields`, all of them, and the body."""
    content = "".join([fields[name] for name in signed_order(fields)])
    return _key_of(secret_key).signature(content.encode(), body).decode()


def signed_order(names: Iterable[str]) -> list[str]:
    """Return the names of fields in the order in which their values are signed."""
    return sorted(names, key=_units)


@final
class SigningKey:
    """A secret key made ready for many signatures.

    HMAC begins and ends with a block made of the key: hashing those once takes half of the time
    that `hmac.digest` needs for a send.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode("utf-8", "replace")
        if len(key) > _BLOCK_BYTES:
            key = hashlib.sha1(key).digest()
        block = key.ljust(_BLOCK_BYTES, b"\0")
        self._inner = hashlib.sha1(bytes(byte ^ 0x36 for byte in block))
        self._outer = hashlib.sha1(bytes(byte ^ 0x5C for byte in block))

    def signature(self, text: bytes, body: bytes | None = None) -> bytes:
        """Return the signature over the texts of all fields and the body."""
        inner = self._inner.copy()
        if body is None:
            inner.update(text)
        elif len(body) < _JOINED_BYTES_MAX:
            inner.update(text + body)
        else:
            inner.update(text)
            inner.update(body)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False)


@lru_cache(maxsize=64)
def _key_of(secret_key: str) -> SigningKey:
    return SigningKey(secret_key)


def _units(name: str) -> bytes:
    # Java compares UTF-16 units.
    return name.encode("utf-16-be", "surrogatepass")
