"""Requests of several connections that one round of reading brought are served together."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode
from rmq.remoting.command import encode_frame
from rmq.remoting.dispatch import HandlerTable
from rmq.remoting.headers import GetMaxOffsetRequest, GetMaxOffsetResponse
from rmq.remoting.protocol import RequestType
from rmq.remoting.server import RemotingServer, ServerConfig

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rmq.remoting.header import Header
    from rmq.remoting.request import Request

Ask = GetMaxOffsetRequest
Answer = GetMaxOffsetResponse
BATCHED = RequestCode.GET_MAX_OFFSET
PLAIN = RequestCode.GET_MIN_OFFSET
CLIENTS = 8


class Log:
    """What handlers were given, in order."""

    def __init__(self) -> None:
        self.batches: list[list[tuple[str, int]]] = []
        self.rounds = 0

    def table(self) -> HandlerTable:
        table = HandlerTable()
        table.add_batch(RequestType(Ask, code=BATCHED), self.batch)
        table.add(RequestType(Ask, code=PLAIN), self.plain)
        return table

    def batch(self, requests: Sequence[Request[Ask]]) -> list[Header | None]:
        if any(request.header.topic == "bad" for request in requests):
            raise ValueError("a bad one")
        self.batches.append([(r.channel.peer, r.header.queue_id) for r in requests])
        return [Answer(offset=request.header.queue_id) for request in requests]

    def plain(self, request: Request[Ask]) -> None:
        self.batches.append([(request.channel.peer, -request.header.queue_id)])
        request.reply(Answer(offset=-request.header.queue_id))

    def round_over(self) -> None:
        self.rounds += 1


async def ask_from_many(
    server: RemotingServer, codes: Sequence[RequestCode], topic: str = "t"
) -> list[list[int]]:
    """Have many clients send the same requests before the server reads any; return answers."""
    answers: list[list[int]] = [[] for _ in range(CLIENTS)]
    connected = 0
    all_connected = trio.Event()

    async def run(number: int) -> None:
        nonlocal connected
        async with open_client() as client:
            channel = await client.channel(f"127.0.0.1:{server.port}")
            connected += 1
            if connected == CLIENTS:
                all_connected.set()
            await all_connected.wait()
            got: dict[int, int] = {}
            with trio.fail_after(5):
                async with trio.open_nursery() as nursery:

                    async def ask(at: int, code: RequestCode) -> None:
                        header = Ask(topic=topic, queue_id=number * 100 + at + 1)
                        answer = await channel.request(code, header)
                        got[at] = answer.header(Answer).offset if answer.code == 0 else -1

                    for at, code in enumerate(codes):
                        nursery.start_soon(ask, at, code)
            answers[number] = [got[at] for at in range(len(codes))]

    async with trio.open_nursery() as nursery:
        for number in range(CLIENTS):
            nursery.start_soon(run, number)
    return answers


@pytest.fixture
def log() -> Log:
    return Log()


async def serve(log: Log, nursery: trio.Nursery) -> RemotingServer:
    server = RemotingServer(log.table(), ServerConfig(host="127.0.0.1"), on_round=log.round_over)
    await nursery.start(server.run)
    return server


async def test_everyone_gets_the_answers_to_its_own_requests(
    log: Log, nursery: trio.Nursery
) -> None:
    server = await serve(log, nursery)
    answers = await ask_from_many(server, [BATCHED] * 5)
    assert answers == [[number * 100 + at + 1 for at in range(5)] for number in range(CLIENTS)]
    assert sum(map(len, log.batches)) == 5 * CLIENTS
    assert log.rounds > 0
    server.stop()


async def test_the_order_of_a_connection_is_kept_across_codes(
    log: Log, nursery: trio.Nursery
) -> None:
    server = await serve(log, nursery)
    await ask_from_many(server, [BATCHED, PLAIN, BATCHED, BATCHED, PLAIN])
    by_peer: dict[str, list[int]] = {}
    for batch in log.batches:
        for peer, value in batch:
            by_peer.setdefault(peer, []).append(abs(value) % 100)
    assert len(by_peer) == CLIENTS
    assert all(sorted(values) == [1, 2, 3, 4, 5] for values in by_peer.values())
    server.stop()


async def test_a_handler_that_fails_leaves_nobody_without_an_answer(
    log: Log, nursery: trio.Nursery
) -> None:
    server = await serve(log, nursery)
    answers = await ask_from_many(server, [BATCHED] * 3, topic="bad")
    assert answers == [[-1] * 3] * CLIENTS
    server.stop()


def raw_request(number: int) -> bytes:
    return encode_frame(code=BATCHED, opaque=number, header=Ask(topic="t", queue_id=number))


async def test_requests_wait_for_the_others_of_their_round(log: Log, nursery: trio.Nursery) -> None:
    server = await serve(log, nursery)
    address = ("127.0.0.1", server.port)
    peers = [socket.create_connection(address) for _ in range(4)]
    try:
        while len(server.channels) < len(peers):
            await trio.testing.wait_all_tasks_blocked(0.001)
        # All of it is there before the server runs again: nothing here awaits.
        for number, peer in enumerate(peers):
            peer.sendall(raw_request(number * 2 + 1) + raw_request(number * 2 + 2))
        with trio.fail_after(5):
            while sum(map(len, log.batches)) < 2 * len(peers):
                await trio.testing.wait_all_tasks_blocked(0.001)
        (batch,) = log.batches
        assert sorted(number for _, number in batch) == list(range(1, 9))
        runs = [peer for at, (peer, _) in enumerate(batch) if not at or batch[at - 1][0] != peer]
        assert len(runs) == len(peers)
    finally:
        for peer in peers:
            peer.close()
    server.stop()


async def test_answers_given_together_are_written_in_the_same_step(nursery: trio.Nursery) -> None:
    kept: list[Request[Ask]] = []
    rounds = 0

    def keep(request: Request[Ask]) -> None:
        request.defer()
        kept.append(request)

    def round_over() -> None:
        nonlocal rounds
        rounds += 1

    table = HandlerTable()
    table.add(RequestType(Ask, code=PLAIN), keep)
    server = RemotingServer(table, ServerConfig(host="127.0.0.1"), on_round=round_over)
    await nursery.start(server.run)
    with socket.create_connection(("127.0.0.1", server.port)) as sock:
        sock.setblocking(False)
        sock.send(
            b"".join(
                encode_frame(code=PLAIN, header=Ask(topic="t", queue_id=n), opaque=n)
                for n in range(3)
            )
        )
        await trio.testing.wait_all_tasks_blocked(0.05)
        assert len(kept) == 3
        rounds = 0

        def answer() -> None:
            assert server.in_round
            server.in_one_round(kept[0].reply)
            for request in kept[1:]:
                request.reply(Answer(offset=7))

        server.in_one_round(answer)
        # Nobody else had a turn since.
        assert not server.in_round
        assert sock.recv(1 << 16).count(b'"offset":"7"') == 2
        assert rounds == 1
    server.stop()
