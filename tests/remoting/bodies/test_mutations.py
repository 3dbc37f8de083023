"""Damaged bodies: whatever arrives is read or refused with an error of the protocol."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final

import pytest

from rmq.errors import ProtocolError
from rmq.remoting.bodies import RegisterBrokerBody, decode_batch, parse_properties
from rmq.remoting.bodies.registration_steps import read_registration
from rmq.remoting.codes import RequestCode
from tests.remoting.bodies.captures import captured_bodies, captured_json_bodies
from tests.stepping import finish

if TYPE_CHECKING:
    from collections.abc import Callable

MUTATIONS_PER_BODY: Final = 300
BODY_BYTES_MAX: Final = 2000  # larger ones are more of the same

TOKENS: Final = rb"""
    { } [ ] , : " ' \ null true - 0 1e999 \u12 \uD800 /* // {1:2} {"$ref":"$"} {"$ref":".."}
    {"$ref":"$.x"}
""".split()
INSERTS: Final = (*TOKENS, b"\xff", b"\0", b"9" * 30, b"9" * 5000, b"[" * 100, b"{" * 2000)


def mutated(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        start = chance.randrange(len(changed) + 1)
        end = min(len(changed), start + chance.choice((0, 1, 1, 4, 30)))
        match chance.randrange(4):
            case 0:
                del changed[start:end]
            case 1:
                changed[start:start] = chance.choice(INSERTS)
            case 2:
                changed[start:end] = chance.randbytes(end - start)
            case 3:
                changed[start:start] = changed[end : end + chance.randrange(60)]
    return bytes(changed)


def survives(decode: Callable[[bytes], object], data: bytes) -> bool:
    """Tell whether `data` is read; anything else than an error of the protocol fails the test."""
    try:
        decode(data)
    except ProtocolError as error:
        reason = str(error)
    else:
        return True
    assert len(reason) < 1000, "an error repeats what it should only name"
    return False


def test_damaged_json_bodies_are_read_or_refused() -> None:
    chance = random.Random(4098)
    seen = set()
    read = refused = 0
    for captured, body_class in captured_json_bodies():
        if captured.data in seen or len(captured.data) > BODY_BYTES_MAX:
            continue
        seen.add(captured.data)
        for _ in range(MUTATIONS_PER_BODY):
            if survives(body_class.decode, mutated(captured.data, chance)):
                read += 1
            else:
                refused += 1

    assert read > 1000, "too little is left of the damaged bodies to reach the readers of types"
    assert refused > 10_000


def test_a_body_read_as_another_one_is_read_or_refused() -> None:
    bodies = {captured.data: body_class for captured, body_class in captured_json_bodies()}
    for data in bodies:
        for body_class in set(bodies.values()):
            survives(body_class.decode, data)


@pytest.mark.parametrize(
    ("decode", "code"),
    [
        pytest.param(decode_batch, RequestCode.SEND_BATCH_MESSAGE, id="batch"),
        pytest.param(parse_properties, RequestCode.UPDATE_BROKER_CONFIG, id="settings"),
    ],
)
def test_other_damaged_bodies_are_read_or_refused(
    decode: Callable[[bytes], object], code: RequestCode
) -> None:
    chance = random.Random(4098)
    data = next(captured.data for captured in captured_bodies() if captured.code is code)
    outcomes = {survives(decode, mutated(data, chance)) for _ in range(2000)}

    assert outcomes == {True, False}


def test_damaged_compressed_registrations_are_read_or_refused() -> None:
    chance = random.Random(4098)
    plain = next(
        captured.data
        for captured in captured_bodies()
        if captured.code is RequestCode.REGISTER_BROKER
    )
    data = RegisterBrokerBody.decode(plain).encode_compressed()
    for _ in range(500):
        survives(
            lambda damaged: finish(read_registration(damaged, compressed=True)),
            mutated(data, chance),
        )
