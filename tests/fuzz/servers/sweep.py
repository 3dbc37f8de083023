"""Every request that servers serve, once with every value at the edge in every field.

Unlike the scenarios nothing here is left to chance but the other fields: what is sent for a code
is the same list in every run.
"""

from __future__ import annotations

import json
import re
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

from msgspec import inspect

from rmq.model.flags import TRANSACTION_PREPARED
from rmq.model.pull_flags import FLAG_SUBSCRIPTION
from rmq.remoting.codes import (
    FLAG_ONEWAY,
    FLAG_RESPONSE,
    RequestCode,
    ResponseCode,
    Serialization,
)
from rmq.remoting.header import SLOW_BYTES_MAX
from tests.fuzz.servers.clients import create_topic, heartbeat
from tests.fuzz.servers.pools import CLIENTS, GROUPS, QUEUES
from tests.fuzz.servers.values import fields_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fuzz.servers.requests import Maker
    from tests.fuzz.servers.rig import Rig

_TEXTS: Final = (
    *("", " ", "../../x", "/", "a@b", "%s", "\0", "\n\x01", "消息", "\ud800", "TBW102"),
    *("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "%RETRY%", "x" * 10_000),
)
_NUMBERS: Final = (
    *("0", "-1", "65536", "2147483647", "-2147483648", "2147483648", "9223372036854775807"),
    *("-9223372036854775808", "9223372036854775808", "", "abc", "1.5"),
)
_BODIES: Final = (
    *(b"", b"{", b"null", b"[]", b"{}", b"0", b"\xff", b"\0" * 50, b"not JSON", b'"text"', b"a=b"),
    *(b"[" * 3000, b'{"a":' * 3000, b'{"clientID":9e999}', b"9" * 5000, b"[1,2,3]", b"{1:2}"),
)
_OTHER_VALUES: Final[tuple[Any, ...]] = (
    *(None, -1, 2**63, 10**40, "", "x" * 10_000, [], {}, [[]], [{}], True),
)
_HALF_PAIR: Final = re.compile("[\ud800-\udfff]")
_SETTINGS: Final = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)


_DESTRUCTIVE: Final = (
    *(RequestCode.UPDATE_AND_CREATE_TOPIC, RequestCode.DELETE_TOPIC_IN_BROKER),
    *(RequestCode.DELETE_SUBSCRIPTIONGROUP, RequestCode.UNREGISTER_CLIENT),
)
"""What others could not be answered well after."""
_SOUND: Final = {
    **{"consumer_group": GROUPS[0], "group": GROUPS[0], "producer_group": GROUPS[2]},
    **{"client_id": CLIENTS[0], "client_addr": CLIENTS[0], "topic": "FuzzA", "queue_id": 0},
    **{"queue_offset": 0, "timestamp": 0, "commit_or_rollback": 8, "subscription": "*"},
    **{"expression_type": "TAG", "sys_flag": FLAG_SUBSCRIPTION, "max_reconsume_times": 16},
    **{"src_group": GROUPS[0], "batch": None, "delay_level": 1, "index": 0, "stats_key": "FuzzA"},
    **{"properties": f"KEYS\x01sound\x02REPLY_TO_CLIENT\x01{CLIENTS[0]}", "key": "sound"},
    **{"begin_timestamp": 0, "end_timestamp": 2**62, "max_num": 10, "unique_key_query": False},
    **{"stats_name": "TOPIC_PUT_NUMS"},
}
"""Fields of requests that can be answered well, once `_settle_in` has been done."""


async def sweep(rig: Rig) -> None:
    """Send all of it, to each server, and wait for the answers."""
    await _settle_in(rig)
    # The second port of a broker leads to the same handlers.
    peers = [await rig.dial(name) for name in ("broker", "nameserver")]
    fixed = {**_SOUND, "msg_id": rig.values.message_ids[-1]}
    for peer in peers:
        maker = peer.server.maker
        for code in maker.served:
            if code not in _SETTINGS and code not in _DESTRUCTIVE:
                fields = maker.fields(code, **fixed)
                await peer.send(maker.frame(code, fields, maker.values.body(code), flag=0))
        await rig.settle()
    for peer in peers:
        for code in peer.server.maker.served:
            for request in requests_of(peer.server.maker, code):
                await peer.send(request)
            await rig.settle()


async def _settle_in(rig: Rig) -> None:
    """Have a client that is in its groups, with offsets, and messages of all kinds."""
    client = await rig.dial("broker")
    maker = client.server.maker
    client.answer_call = lambda peer, call: maker.frame(
        ResponseCode.SUCCESS, {}, b"{}", flag=FLAG_RESPONSE, opaque=call.opaque
    )
    await create_topic(rig, client, "FuzzA")
    await client.send(heartbeat(maker, CLIENTS[0], "FuzzA"))
    commit, send = RequestCode.UPDATE_CONSUMER_OFFSET, RequestCode.SEND_MESSAGE_V2
    half = {
        **_SOUND,
        "properties": f"TRAN_MSG\x01true\x02PGROUP\x01{GROUPS[2]}",
        "sys_flag": TRANSACTION_PREPARED,
    }
    for queue_id in range(QUEUES):
        fixed = {**_SOUND, "queue_id": queue_id, "commit_offset": 0}
        await client.send(maker.frame(commit, maker.fields(commit, **fixed), flag=0))
        await client.send(maker.frame(send, maker.fields(send, **fixed), b"sound", flag=0))
    await rig.settle()
    # The last message is a half one.
    for _ in range(QUEUES):
        await client.send(maker.frame(send, maker.fields(send, **half), b"half", flag=0))
    await rig.settle()


def requests_of(maker: Maker, code: int) -> Iterator[bytes]:
    """Yield the requests of one code."""
    values = maker.values
    values.edginess = 0.0
    body = b"" if code in _SETTINGS else values.body(code)

    turns = cycle(Serialization)

    def request(fields: dict[str, Any], body: bytes = body, flag: int = 0) -> bytes:
        return maker.frame(code, _readable(fields), body, flag=flag, serialization=next(turns))

    for _ in Serialization:
        yield request(maker.fields(code))
        yield request(maker.fields(code), flag=FLAG_ONEWAY)
        yield request({})
    for field in fields_of(maker.served[code]):
        texts = _TEXTS if _is_text(field.type) else _NUMBERS
        for text in texts:
            yield request({**maker.fields(code), field.encode_name: text})
        fields = maker.fields(code)
        fields.pop(field.encode_name, None)
        yield request(fields)
        yield request({**fields, field.encode_name: [None]})
    # A body where none belongs is not looked at.
    bodies = _BODIES if body or code in _SETTINGS else _BODIES[:3]
    for other in (*bodies, body[: len(body) // 2], body + b"\0"):
        yield request(maker.fields(code), other)
    for damaged in _with_other_values(body):
        yield request(maker.fields(code), damaged)


def _is_text(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.UnionType):
        return any(_is_text(each) for each in kind.types)
    return isinstance(kind, inspect.StrType)


def _readable(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out what ends a connection, which all requests of a server share here.

    That is a list beside a backslash or a dollar sign, and half a surrogate pair in a long header.
    """
    if any(isinstance(value, list) for value in fields.values()):
        return {
            name: value
            for name, value in fields.items()
            if not {"\\", "$"} & set(json.dumps(value))
        }
    if len(json.dumps(fields)) > SLOW_BYTES_MAX - 1000:
        return {name: value for name, value in fields.items() if not _HALF_PAIR.search(str(value))}
    return fields


def _with_other_values(body: bytes) -> Iterator[bytes]:
    """Yield a JSON body with another kind of value in each of its members."""
    try:
        members = json.loads(body)
    except ValueError:
        return
    if isinstance(members, dict):
        for name in members:
            for value in _OTHER_VALUES:
                yield json.dumps({**members, name: value}).encode()
