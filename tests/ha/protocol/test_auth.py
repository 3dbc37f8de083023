"""Proofs that both ends know the secret."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq.ha.protocol import wire
from rmq.ha.protocol.auth import is_hello_genuine, is_welcome_genuine, sign_hello, sign_welcome
from tests.ha.protocol.test_wire import hellos, welcomes

secrets = st.binary(min_size=1, max_size=40)
nonces = st.binary(min_size=16, max_size=16)


@given(hellos, secrets, nonces)
def test_a_signed_hello_is_genuine(hello: wire.HelloBody, secret: bytes, nonce: bytes) -> None:
    signed = sign_hello(hello, secret, nonce)
    assert is_hello_genuine(signed, secret, nonce)
    # Also after it went over the wire, and whatever proof it bore before.
    assert is_hello_genuine(wire.read_hello(wire.pack_body(wire.Hello, signed)), secret, nonce)
    assert sign_hello(signed, secret, nonce) == signed


@given(welcomes, secrets, nonces)
def test_a_signed_welcome_is_genuine(
    welcome: wire.WelcomeBody, secret: bytes, nonce: bytes
) -> None:
    assert is_welcome_genuine(sign_welcome(welcome, secret, nonce), secret, nonce)


@given(hellos, secrets, secrets, nonces, nonces)
def test_another_secret_or_another_challenge_proves_nothing(
    hello: wire.HelloBody, secret: bytes, other: bytes, nonce: bytes, other_nonce: bytes
) -> None:
    signed = sign_hello(hello, secret, nonce)
    # Keys of HMAC are padded with zeros.
    assert is_hello_genuine(signed, other, nonce) == (other.rstrip(b"\0") == secret.rstrip(b"\0"))
    # An old handshake is worth nothing on another connection.
    assert is_hello_genuine(signed, secret, other_nonce) == (other_nonce == nonce)


@pytest.mark.parametrize("field", [f for f in wire.HelloBody.__struct_fields__ if f != "mac"])
def test_every_field_of_a_hello_is_covered(field: str) -> None:
    hello = wire.HelloBody(
        1, 0, "c", "b", 1, "a", b"r" * 16, 0, b"n" * 16, 1, 1024, 0, 9, 9, 0, b"d" * 32
    )
    signed = sign_hello(hello, b"secret", b"x" * 16)
    value = getattr(signed, field)
    if isinstance(value, int):
        changed: object = value + 1
    elif isinstance(value, str):
        changed = value + "x"
    else:
        changed = bytes(len(value))
    forged = msgspec.structs.replace(signed, **{field: changed})
    assert not is_hello_genuine(forged, b"secret", b"x" * 16)


def test_a_slaves_proof_is_not_a_masters() -> None:
    welcome = wire.WelcomeBody(0, "c", "b", "a", b"r" * 16, 1, 0, 0, 0)
    nonce = b"n" * 16
    assert sign_welcome(welcome, b"s", nonce).mac != sign_welcome(welcome, b"s", b"m" * 16).mac
    assert not is_welcome_genuine(welcome, b"s", nonce)


def test_without_a_secret_there_is_no_proof() -> None:
    welcome = wire.WelcomeBody(0, "c", "b", "a", b"r" * 16, 1, 0, 0, 0)
    assert sign_welcome(welcome, b"", b"n" * 16).mac == bytes(32)
