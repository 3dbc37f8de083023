"""A client with credentials signs every request that leaves it, and no answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pytest
import trio

from rmq.remoting.client import ClientConfig, open_client
from rmq.remoting.codes import RequestCode, Serialization
from rmq.remoting.headers import GetMaxOffsetRequest
from rmq.remoting.signing import ACCESS_KEY, SIGNATURE, Credentials, signature_of
from tests.remoting.client_kit import (
    ECHO,
    PEER,
    Collector,
    MemoryNetwork,
    MemoryPeer,
    in_virtual_time,
    start_call,
)

if TYPE_CHECKING:
    from rmq.remoting.command import Command

CREDENTIALS: Final = Credentials(access_key="broker", secret_key="12345678")
HEADER: Final = GetMaxOffsetRequest(topic="T", queue_id=0)


def assert_signed(command: Command, by: Credentials = CREDENTIALS) -> None:
    fields = dict(command.ext_fields)
    assert fields[ACCESS_KEY] == by.access_key
    assert fields.pop(SIGNATURE) == signature_of(fields, command.body, by.secret_key)


@pytest.mark.parametrize("serialization", list(Serialization))
@in_virtual_time()
async def test_every_way_out_of_a_client_signs(serialization: Serialization) -> None:
    network = MemoryNetwork()
    config = ClientConfig(serialization=serialization)
    async with (
        open_client(config, connector=network, credentials=CREDENTIALS) as client,
        trio.open_nursery() as nursery,
    ):
        await client.oneway(PEER, ECHO, HEADER, body=b"1", extra={"x": "y"})
        channel = await client.channel(PEER)
        channel.oneway(ECHO, HEADER, body=b"2", serialization=serialization)
        channel.submit(ECHO, HEADER, on_outcome=Collector(), serialization=serialization)
        start_call(nursery, client, body=b"4")
        nursery.start_soon(channel.request, ECHO)
        peer = await network.accept()
        for command in await peer.next_commands(5):
            assert_signed(command)
        nursery.cancel_scope.cancel()


@in_virtual_time()
async def test_other_credentials_count_from_the_next_request_on() -> None:
    network = MemoryNetwork()
    async with open_client(connector=network) as client:
        await client.oneway(PEER, ECHO, HEADER)
        client.credentials = CREDENTIALS
        await client.oneway(PEER, ECHO, HEADER)
        client.credentials = other = Credentials(access_key="other", secret_key="87654321")
        await client.oneway(PEER, ECHO, HEADER)
        peer = await network.accept()
        plain, first, second = await peer.next_commands(3)
    assert ACCESS_KEY not in plain.ext_fields
    assert_signed(first)
    assert_signed(second, other)


@in_virtual_time()
async def test_answers_to_requests_of_the_peer_are_not_signed() -> None:
    network = MemoryNetwork()
    async with open_client(connector=network, credentials=CREDENTIALS) as client:
        await client.channel(PEER)
        peer: MemoryPeer = await network.accept()
        await peer.ask(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, 7)
        answer = await peer.next_command()
        assert ACCESS_KEY not in answer.ext_fields
