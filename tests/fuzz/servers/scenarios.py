"""What is done to servers under fuzz, one thing at a time.

A scenario opens connections, does something to the servers and waits for everything it is owed.
Connections are closed by who runs it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from rmq.remoting.bodies import format_properties, parse_properties
from rmq.remoting.codes import FLAG_ONEWAY, RequestCode, ResponseCode
from tests.fuzz.servers.clients import (
    ask,
    create_topic,
    ends,
    heartbeat,
    lock,
    pull,
    send,
    strange_answers,
)
from tests.fuzz.servers.heavy import HEAVY, KEYED, ask_heavily, prepare
from tests.fuzz.servers.pools import CLIENTS, GROUPS, QUEUES, TOPICS
from tests.fuzz.servers.requests import UNKNOWN_CODES
from tests.fuzz.servers.watch import FUZZ_TASK

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from tests.fuzz.servers.requests import Maker
    from tests.fuzz.servers.rig import Rig

    Scenario = Callable[[Rig], Awaitable[None]]

_SETTINGS: Final = (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG)
_CALLS: Final = (
    *(RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY),
    *(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET),
    *(RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2),
)
_OTHER_PROTOCOLS: Final = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
    bytes(100),
    b"\xff" * 100,
    b"\0\0\0\x04",
    b"\0\0\0\0",
    b"\x7f\xff\xff\xff",
    b"\x00\xff\xff\xf0" + b"\0" * 50,
)


def _any_server(rig: Rig) -> str:
    return rig.chance.choice(("broker", "broker", "broker", "vip", "nameserver", "nameserver"))


def _request(maker: Maker, *, damage: float = 0.0) -> bytes:
    """Return any request but a change of settings, which would outlast its scenario."""
    while (code := maker.code()) in _SETTINGS:
        pass
    return maker.stream(code, damage=damage)


async def burst(rig: Rig) -> None:
    """Many requests over one connection, in one piece or in many."""
    peer = await rig.dial(_any_server(rig))
    chance = rig.chance
    requests = [_request(peer.server.maker) for _ in range(chance.choice((1, 10, 50, 300)))]
    match chance.randrange(3):
        case 0:
            await peer.send(b"".join(requests))
        case 1:
            for request in requests:
                await peer.send(request)
        case _:
            stream = b"".join(requests)
            size = max(1, len(stream) // chance.choice((3, 10, 40)))
            for start in range(0, len(stream), size):
                await peer.send(stream[start : start + size])
                await trio.lowlevel.checkpoint()
    await rig.settle()


async def one_by_one(rig: Rig) -> None:
    """Single requests, each after the answer to the one before."""
    peer = await rig.dial(_any_server(rig))
    for _ in range(10):
        await peer.send(_request(peer.server.maker))
        await rig.settle(lets_time_pass=False)
    await rig.settle()


async def noise(rig: Rig) -> None:
    """Damaged frames, mixed with sound ones."""
    peer = await rig.dial(_any_server(rig))
    for _ in range(rig.chance.choice((1, 5, 20))):
        await peer.send(_request(peer.server.maker, damage=0.7))
        if not peer.is_sound:
            break
    await rig.settle()


async def strangers(rig: Rig) -> None:
    """Peers that speak another protocol, or none."""
    peer = await rig.dial(_any_server(rig))
    await peer.send(rig.chance.choice(_OTHER_PROTOCOLS))
    await peer.send(_request(peer.server.maker))
    await rig.settle()


async def torn(rig: Rig) -> None:
    """A connection that ends in the middle of a frame."""
    for _ in range(3):
        peer = await rig.dial(_any_server(rig))
        stream = b"".join(_request(peer.server.maker) for _ in range(4))
        await peer.send(stream[: rig.chance.randrange(len(stream) + 1)])
        if rig.chance.random() < 0.5:
            await rig.settle()
        await rig.close(peer)


async def strays(rig: Rig) -> None:
    """Answers that nobody waits for, and requests of the same number at the same time."""
    peer = await rig.dial(_any_server(rig))
    maker = peer.server.maker
    for _ in range(10):
        await peer.send(maker.response())
    # The same request: which of the answers belongs to which cannot be told.
    await peer.send(_request(maker) * 5)
    for code in UNKNOWN_CODES:
        await peer.send(maker.frame(code, {}, flag=rig.chance.choice((0, FLAG_ONEWAY))))
    await rig.settle()


async def held(rig: Rig) -> None:
    """Pulls that wait, and what may happen to them meanwhile."""
    chance = rig.chance
    peers = [await rig.dial("broker") for _ in range(chance.choice((1, 3)))]
    maker = peers[0].server.maker
    topic = chance.choice(TOPICS[:3])
    await create_topic(rig, peers[0], topic)
    known_ends = ends(rig, topic)
    for peer in peers:
        await peer.send(heartbeat(maker, chance.choice(CLIENTS), topic))
        for _ in range(chance.choice((1, 5, 30))):
            queue_id = chance.randrange(QUEUES)
            await peer.send(pull(rig, topic, queue_id, known_ends.get(queue_id, 0)))
    await trio.sleep(0.002)
    match chance.randrange(6):
        case 0:
            for queue_id in range(QUEUES):
                await peers[0].send(send(rig, topic, queue_id))
        case 1:
            code = RequestCode.DELETE_TOPIC_IN_BROKER
            await peers[0].send(maker.frame(code, maker.fields(code, topic=topic)))
        case 2:
            await rig.pass_time(chance.choice((6, 16)))
        case 3:
            await peers[-1].send(pull(rig, topic, 0, 0)[:20])
        case 4:
            code = RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE
            await peers[0].send(maker.frame(code, {}))
        case _:
            pass
    await rig.settle()


async def crowd(rig: Rig) -> None:
    """Many connections at once, in the same groups, that go in any order."""
    chance = rig.chance
    count = chance.choice((10, 40, 120))
    peers = [await rig.dial("broker") for _ in range(count)]
    maker = peers[0].server.maker
    for number, peer in enumerate(peers):
        await peer.send(heartbeat(maker, f"client-{number % (count - 3)}", "FuzzA"))
        await peer.send(lock(maker, f"client-{number}"))
        await peer.send(pull(rig, "FuzzA", number % QUEUES, chance.choice((0, 10**6))))
        if chance.random() < 0.3:
            await peer.send(send(rig, "FuzzA", number % QUEUES))
    await rig.settle()
    chance.shuffle(peers)
    for peer in peers[: count // 2]:
        await rig.close(peer)
    for peer in peers[count // 2 :]:
        await peer.send(_request(maker))
    await rig.settle()


async def deaf(rig: Rig) -> None:
    """A client that asks for much and reads nothing for a while, or ever."""
    peer = await rig.dial("broker")
    peer.be_deaf()
    maker = peer.server.maker
    codes = (
        *(RequestCode.GET_BROKER_CONFIG, RequestCode.GET_ALL_TOPIC_CONFIG),
        *(RequestCode.GET_BROKER_RUNTIME_INFO, RequestCode.PULL_MESSAGE),
    )
    requests: list[bytes] = []
    for _ in range(rig.chance.choice((20, 300))):
        code = rig.chance.choice(codes)
        requests.append(maker.frame(code, maker.fields(code), flag=0))
    # Not awaited: at some point the server takes no more.
    rig.nursery.start_soon(peer.send, b"".join(requests), name=f"{FUZZ_TASK} deaf peer")
    await trio.sleep(0.1)
    if rig.chance.random() < 0.5:
        peer.listen()
        await rig.settle()


async def calls(rig: Rig) -> None:
    """Clients that the broker asks something, and that answer any way they like."""
    chance = rig.chance
    client = await rig.dial("broker")
    client.answer_call = strange_answers(rig)
    maker = client.server.maker
    await client.send(heartbeat(maker, CLIENTS[0], "FuzzA", "FuzzB"))
    await rig.settle()
    asker = await rig.dial("broker")
    await create_topic(rig, asker, "FuzzA")
    commit = RequestCode.UPDATE_CONSUMER_OFFSET
    for queue_id in range(QUEUES):
        where = {"topic": "FuzzA", "consumer_group": GROUPS[0], "queue_id": queue_id}
        await asker.send(maker.frame(commit, maker.fields(commit, **where)))
    for _ in range(chance.choice((1, 4, 10))):
        code = chance.choice(_CALLS)
        fixed: dict[str, object] = {}
        if chance.random() < 0.8:
            fixed = {
                **{"consumer_group": GROUPS[0], "group": GROUPS[0], "topic": "FuzzA"},
                **{"client_id": CLIENTS[0], "queue_id": 0, "expression_type": "TAG"},
                "properties": f"REPLY_TO_CLIENT\x01{CLIENTS[0]}\x02CLUSTER\x01DefaultCluster",
            }
        body = maker.values.body(code)
        await asker.send(maker.frame(code, maker.fields(code, **fixed), body))
    if chance.random() < 0.2:
        await rig.close(client)
    await rig.settle()


async def transactions(rig: Rig) -> None:
    """Half messages, decisions on them, and time for the broker to ask about them."""
    chance = rig.chance
    peer = await rig.dial("broker")
    peer.answer_call = strange_answers(rig)
    maker = peer.server.maker
    await peer.send(heartbeat(maker, CLIENTS[0], "FuzzA"))
    code = RequestCode.SEND_MESSAGE_V2
    for _ in range(4):
        more = maker.values.properties()
        fixed = {
            "properties": f"TRAN_MSG\x01true\x02PGROUP\x01{GROUPS[2]}\x02{more}",
            **{"topic": "FuzzA", "producer_group": GROUPS[2], "queue_id": 0, "batch": False},
        }
        await peer.send(maker.frame(code, maker.fields(code, **fixed), maker.values.payload()))
    await rig.settle()
    code = RequestCode.END_TRANSACTION
    for _ in range(4):
        await peer.send(maker.frame(code, maker.fields(code)))
    await rig.settle()
    if chance.random() < 0.3:
        await rig.pass_time(70)
        await rig.settle()


async def delays(rig: Rig) -> None:
    """Delayed messages and messages that come back, and time for them to be delivered."""
    peer = await rig.dial("broker")
    maker = peer.server.maker
    send, back = RequestCode.SEND_MESSAGE_V2, RequestCode.CONSUMER_SEND_MSG_BACK
    for _ in range(4):
        properties = f"DELAY\x01{rig.chance.randrange(-1, 7)}\x02{maker.values.properties()}"
        fields = maker.fields(send, properties=properties, topic="FuzzB", queue_id=0, batch=False)
        await peer.send(maker.frame(send, fields, maker.values.payload()))
        await peer.send(maker.frame(back, maker.fields(back, group=GROUPS[0])))
    await rig.settle()
    if rig.chance.random() < 0.5:
        code = RequestCode.DELETE_TOPIC_IN_BROKER
        await peer.send(maker.frame(code, maker.fields(code, topic="FuzzB")))
    await rig.pass_time(4)
    await rig.settle()


async def settings_changed(rig: Rig) -> None:
    """Changes of settings; what was changed is changed back."""
    name = rig.chance.choice(("broker", "broker", "nameserver"))
    update, show = (
        (RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG)
        if name == "broker"
        else (RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.GET_NAMESRV_CONFIG)
    )
    peer = await rig.dial(name)
    maker = peer.server.maker
    before = await ask(rig, peer, show, {})
    for _ in range(5):
        body = maker.values.body(update)
        if rig.chance.random() < 0.2:
            body = maker.values.broken_body(body)
        await peer.send(maker.frame(update, {}, body, flag=0))
        await rig.settle()
        await peer.send(b"".join(_request(maker) for _ in range(20)))
        await rig.settle()
        after = await ask(rig, peer, show, {})
        if before is None or after is None:
            return
        old, new = parse_properties(before.body), parse_properties(after.body)
        changed = {key: old.get(key, "") for key in new if new[key] != old.get(key)}
        if changed:
            answer = await ask(rig, peer, update, {}, format_properties(changed))
            if answer is None or answer.code != ResponseCode.SUCCESS:
                rows = [f"{key} from {new[key]!r} to {old.get(key)!r}" for key in changed]
                rig.note(
                    f"{name}: settings cannot be changed back: {sorted(changed)}",
                    f"{answer and answer.remark}: {', '.join(rows)}",
                )
                return


async def heavy(rig: Rig) -> None:
    """Requests that ask for much, though not for as much as can be."""
    if KEYED not in rig.broker.topics:
        prepare(rig, queues=2000, groups=100, topics=100, messages=1000)
    for name in rig.chance.sample(list(HEAVY), 5):
        await ask_heavily(rig, name, scale=0.03)


async def last_words(rig: Rig) -> None:
    """Much that is not waited for: sends, pulls that wait, calls that are never answered.

    The servers are stopped in the midst of it.
    """
    for _ in range(4):
        peer = await rig.dial("broker")
        maker = peer.server.maker
        await peer.send(heartbeat(maker, CLIENTS[0], "FuzzA"))
        await peer.send(b"".join(send(rig, TOPICS[n % 5], n % QUEUES) for n in range(50)))
        await peer.send(pull(rig, "FuzzA", 0, 10**9))
        fields = {"consumer_group": GROUPS[0], "client_id": CLIENTS[0]}
        code = RequestCode.GET_CONSUMER_RUNNING_INFO
        await peer.send(maker.frame(code, maker.fields(code, **fields)))
        await peer.send(b"".join(send(rig, TOPICS[n % 5], n % QUEUES) for n in range(50)))


SCENARIOS: Final[dict[Scenario, int]] = {
    burst: 40,
    one_by_one: 20,
    noise: 15,
    strangers: 2,
    torn: 5,
    strays: 5,
    held: 8,
    crowd: 1,
    deaf: 1,
    calls: 3,
    transactions: 3,
    delays: 3,
    settings_changed: 5,
    heavy: 1,
}
"""How often each is done."""
