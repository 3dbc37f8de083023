"""Sound frames to begin with: the captured ones, and one for every header and body class.

The same frames in the same order on every run, so that a seed and a number name one mutation.
"""

from __future__ import annotations

import random
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import msgspec
from msgspec import inspect

from rmq.remoting.bodies import (
    BatchMessage,
    Body,
    RegisterBrokerBody,
    encode_batch,
)
from rmq.remoting.codes import FLAG_RESPONSE, RequestCode, Serialization
from rmq.remoting.command import encode_frame
from rmq.remoting.headers import RegisterBrokerRequest
from rmq.remoting.protocol import REQUESTS, Requests
from tests.remoting.frames import all_captured

if TYPE_CHECKING:
    from rmq.remoting.header import Header

TEXTS: Final = (
    "",
    "T",
    "GoldenTopic",
    "%RETRY%group",
    "a\x01b\x02",
    "é消息",
    "x" * 100,
    "0",
    "null",
)


class Seed(NamedTuple):
    """A frame, and the request that it answers if it is an answer."""

    frame: bytes
    answers: RequestCode | None = None


@cache
def all_seeds() -> list[Seed]:
    chance = random.Random(409)
    captured = [
        Seed(frame.frame, RequestCode[frame.answers] if frame.answers else None)
        for frame in all_captured()
    ]
    return captured + _built(chance)


def _built(chance: random.Random) -> list[Seed]:
    seeds: list[Seed] = []
    for code, declared in REQUESTS.items():
        for serialization in Serialization:
            body = _body(declared.body, chance)
            header = _header(declared.header, chance)
            seeds.append(_request(code, header, body, serialization))
            body = _body(declared.response_body, chance)
            prefix = encode_frame(
                code=0,
                flag=FLAG_RESPONSE,
                opaque=chance.randrange(-(2**31), 2**31),
                header=_header(declared.response_header, chance),
                remark=chance.choice((None, "not set any response code")),
                body_length=len(body),
                serialization=serialization,
            )
            seeds.append(Seed(prefix + body, code))
    for serialization in Serialization:
        batch = encode_batch([BatchMessage(1, b"hello", b"KEYS\x01K1"), BatchMessage(2, b"", b"")])
        header = _header(Requests.SEND_BATCH_MESSAGE.header, chance)
        seeds.append(_request(RequestCode.SEND_BATCH_MESSAGE, header, batch, serialization))
        registration = RegisterBrokerRequest(
            broker_name="broker-a",
            broker_addr="10.0.0.1:10911",
            cluster_name="DefaultCluster",
            ha_server_addr="10.0.0.1:10912",
            broker_id=0,
            compressed=True,
        )
        compressed = RegisterBrokerBody().encode_compressed()
        seeds.append(_request(RequestCode.REGISTER_BROKER, registration, compressed, serialization))
    return seeds


def _request(
    code: RequestCode, header: Header | None, body: bytes, serialization: Serialization
) -> Seed:
    prefix = encode_frame(
        code=code, header=header, body_length=len(body), serialization=serialization
    )
    return Seed(prefix + body)


def _header(header_class: type[Header] | None, chance: random.Random) -> Header | None:
    return None if header_class is None else _value(header_class, chance)


def _body(body_class: type[Body] | None, chance: random.Random) -> bytes:
    return b"" if body_class is None else cast("bytes", _value(body_class, chance).encode())


def _value(kind: type[Any], chance: random.Random) -> Any:  # noqa: ANN401 - whatever is asked for
    """Return a value of a struct class with most of its members set."""
    fields = cast("inspect.StructType", inspect.type_info(kind)).fields
    return kind(
        **{
            field.name: _member(field.type, chance)
            for field in fields
            if field.required or chance.random() < 0.8
        }
    )


def _member(info: inspect.Type, chance: random.Random) -> Any:  # noqa: ANN401 - see above
    match info:
        case inspect.StrType():
            return chance.choice(TEXTS)
        case inspect.BoolType():
            return chance.random() < 0.5
        case inspect.IntType(ge=int(low), le=int(high)):
            return chance.choice((low, -1, 0, 1, 1700000000000 % (high + 1), high))
        case inspect.FloatType():
            return chance.choice((0.0, -1.5, 1e300))
        case inspect.EnumType():
            return chance.choice(list(info.cls))
        case inspect.UnionType(types=types):
            return _member(types[0], chance)
        case inspect.StructType():
            return _value(info.cls, chance)
        case inspect.DictType():
            return {
                _member(info.key_type, chance): _member(info.value_type, chance)
                for _ in range(chance.randrange(3))
            }
        case inspect.VarTupleType() | inspect.FrozenSetType():
            items = [_member(info.item_type, chance) for _ in range(chance.randrange(3))]
            return tuple(items) if isinstance(info, inspect.VarTupleType) else frozenset(items)
    raise msgspec.ValidationError(f"no value for {info!r}")
