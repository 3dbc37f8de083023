"""A nameserver over time: silence, lost connections, neighbours, stop and start."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest
import trio
import trio.testing

from rmq.errors import ConfigError, ListenError
from rmq.nameserver.server import Nameserver, serve_nameserver
from rmq.remoting.bodies.topics import DataVersion
from rmq.remoting.client import open_client
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import GetRouteInfoRequest, PutKvConfigRequest, QueryDataVersionRequest
from rmq.remoting.layout import REQUEST_HEADER_BYTES_MAX
from tests.nameserver.kit import (
    MASTER,
    SLAVE,
    Running,
    ask_route,
    config_for,
    frame,
    register,
    register_body,
    register_header,
    running,
    saying,
)
from tests.remoting.frames import raw_frame

if TYPE_CHECKING:
    from pathlib import Path

    from tests.remoting.server_kit import Peer


async def knows(peer: Peer, topic: str = "T") -> bool:
    answer = await ask_route(peer, topic)
    assert answer.code in (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST)
    return answer.code == ResponseCode.SUCCESS


async def keep_busy(peer: Peer, seconds: float) -> None:
    """Let time pass while a peer asks often enough for its connection not to be idle."""
    end = trio.current_time() + seconds
    while trio.current_time() < end:
        await trio.sleep(min(30.0, end - trio.current_time()))
        await ask_route(peer, "any")


# ---- silence -------------------------------------------------------------------------------------


async def test_a_broker_that_is_silent_for_120_s_is_removed_and_its_connection_closed(
    tmp_path: Path, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        broker, client = nameserver.attach("broker"), nameserver.attach("client")
        await register(broker, saying(topics=["T"]))
        async with trio.open_nursery() as nursery:
            # The connection is in use all the time, so only the missing registration counts.
            nursery.start_soon(keep_busy, broker, 115)
            nursery.start_soon(keep_busy, client, 115)
        assert await knows(client)
        await keep_busy(client, 20)
        assert not await knows(client)
        assert broker.channel.close_reason == "no registration for 130 s"
        assert await broker.read_to_end() == []
    assert "broker removed: it did not register for 130 s" in caplog.text


async def test_a_broker_that_registers_every_30_s_stays(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        broker = nameserver.attach("broker")
        for _ in range(20):
            await register(broker, saying(topics=["T"]))
            await trio.sleep(30)
        assert await knows(broker)


async def test_asking_for_the_data_version_keeps_a_broker_alive_only_if_it_is_the_same(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    async def ask_often(peer: Peer, address: str, counter: int) -> None:
        header = QueryDataVersionRequest(broker_addr=address)
        body = DataVersion(timestamp=1_000, counter=counter).encode()
        for _ in range(5):
            await trio.sleep(30)
            await peer.request(frame(RequestCode.QUERY_DATA_VERSION, header, body))

    async with running(config_for(tmp_path)) as nameserver:
        same, other = nameserver.attach("same"), nameserver.attach("other")
        await register(same, saying("a", address=MASTER, version=1, topics=["T"]))
        await register(other, saying("b", address=SLAVE, version=1, topics=["U"]))
        with trio.move_on_after(145):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask_often, same, MASTER, 1)
                nursery.start_soon(ask_often, other, SLAVE, 2)
        assert await knows(same, "T")
        assert not await knows(same, "U")


async def test_the_times_are_settings_and_count_at_once(
    tmp_path: Path, mock_clock: trio.testing.MockClock
) -> None:
    config = config_for(tmp_path, scanNotActiveBrokerInterval="100", brokerExpiredTime="1000")
    async with running(config) as nameserver:
        client = nameserver.attach("client")
        await register(nameserver.attach(), saying(topics=["T"]))
        await trio.sleep(0.95)
        assert await knows(client)
        await trio.sleep(0.2)
        assert not await knows(client)

        live = nameserver.nameserver.config
        live.apply(live.plan({"brokerExpiredTime": "5000"}))
        await register(nameserver.attach(), saying(topics=["T"]))
        await trio.sleep(4.9)
        assert await knows(client)
        await trio.sleep(0.3)
        assert not await knows(client)


async def test_an_idle_connection_is_closed_and_its_broker_removed(
    tmp_path: Path, mock_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_for(tmp_path, serverChannelMaxIdleTimeSeconds="60", brokerExpiredTime="1000000")
    async with running(config) as nameserver:
        broker, client = nameserver.attach("broker"), nameserver.attach("client")
        await register(broker, saying(topics=["T"]))
        await keep_busy(client, 65)
        assert not await knows(client)
        assert broker.channel.close_reason == "idle for 60 s"
    assert any(
        record.getMessage() == "broker removed: its connection ended"
        and vars(record)["reason"] == "idle for 60 s"
        for record in caplog.records
    )


async def test_a_header_above_its_limit_ends_its_connection_before_it_has_come(
    tmp_path: Path,
) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        good, bad = nameserver.attach(), nameserver.attach()
        await bad.send(raw_frame(b"{" * (REQUEST_HEADER_BYTES_MAX + 1))[:64])
        assert await bad.read_to_end() == []
        # The longest value that is taken, each character of which takes six bytes.
        header = PutKvConfigRequest(namespace="n", key="k", value="\x01" * 65_536)
        answer = await good.request(frame(RequestCode.PUT_KV_CONFIG, header))
        assert answer.code == ResponseCode.SUCCESS


# ---- lost connections ----------------------------------------------------------------------------


async def wait_brokers(nameserver: Running, count: int) -> None:
    while nameserver.nameserver.statistics().brokers != count:
        await trio.lowlevel.checkpoint()


async def test_a_broker_is_removed_the_moment_its_connection_ends(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        broker, client = await nameserver.dial(), await nameserver.dial()
        await register(broker, saying(topics=["T"]))
        assert await knows(client)
        await broker.aclose()
        await wait_brokers(nameserver, 0)
        assert not await knows(client)


async def test_bytes_that_make_no_sense_end_the_connection_and_remove_its_broker(
    tmp_path: Path,
) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        broker, client = await nameserver.dial(), await nameserver.dial()
        await register(broker, saying(topics=["T"]))
        await broker.send(b"\xff" * 100)
        await wait_brokers(nameserver, 0)
        assert not await knows(client)


async def test_a_client_that_leaves_removes_nothing(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        broker, client = await nameserver.dial(), await nameserver.dial()
        await register(broker, saying(topics=["T"]))
        assert await knows(client)
        await client.aclose()
        while len(nameserver.server.channels) > 1:
            await trio.lowlevel.checkpoint()
        assert await knows(broker)


async def test_a_broker_that_came_back_survives_the_end_of_its_old_connection(
    tmp_path: Path,
) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        old, new = await nameserver.dial(), await nameserver.dial()
        await register(old, saying(topics=["T"]))
        await register(new, saying(topics=["T"]))
        await old.aclose()
        while len(nameserver.server.channels) > 1:
            await trio.lowlevel.checkpoint()
        assert await knows(new)


# ---- several, start and stop ---------------------------------------------------------------------


async def test_nameservers_side_by_side_are_each_complete_on_their_own(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        servers: list[Nameserver] = []
        for number in range(3):
            folder = tmp_path / str(number)
            servers.append(await nursery.start(serve_nameserver, config_for(folder)))
        addresses = [f"127.0.0.1:{server.port}" for server in servers]
        said = saying(topics=["T"])
        asked = GetRouteInfoRequest(topic="T")
        with trio.fail_after(10):
            async with open_client() as broker, open_client() as client:
                for address in addresses[:2]:
                    answer = await broker.request(
                        address,
                        RequestCode.REGISTER_BROKER,
                        register_header(said),
                        body=register_body(said).encode(),
                    )
                    assert answer.code == ResponseCode.SUCCESS
                put = PutKvConfigRequest(namespace="n", key="k", value="v")
                await client.request(addresses[0], RequestCode.PUT_KV_CONFIG, put)

                async def route(address: str) -> int:
                    code = RequestCode.GET_ROUTEINFO_BY_TOPIC
                    return (await client.request(address, code, asked)).code

                found, missing = ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST
                assert [await route(address) for address in addresses] == [found, found, missing]
                # One goes; the others know what they knew.
                servers[0].stop()
                assert await route(addresses[1]) == found
        assert [server.statistics().kv_values for server in servers] == [1, 0, 0]
        for server in servers[1:]:
            server.stop()


async def test_what_brokers_said_is_not_kept_over_a_restart(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config) as nameserver:
        await register(nameserver.attach(), saying(topics=["T"]))
    async with running(config) as nameserver:
        assert not await knows(nameserver.attach())


async def test_stopping_answers_changes_that_are_being_written(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    async with running(config) as nameserver:
        peer = nameserver.attach()
        for number in range(50):
            header = PutKvConfigRequest(namespace="n", key=str(number), value="v")
            await peer.send(frame(RequestCode.PUT_KV_CONFIG, header, opaque=number))
        await peer.read()
        nameserver.nameserver.stop()
        answers = await peer.read_to_end()
        assert {answer.code for answer in answers} == {ResponseCode.SUCCESS}
    async with running(config) as nameserver:
        assert nameserver.nameserver.statistics().kv_values == 1 + len(answers)


async def test_statistics_count_what_is_there(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        peer = nameserver.attach()
        await register(peer, saying(topics=["T", "U"]))
        await register(peer, saying(broker_id=1, address=SLAVE))
        statistics = nameserver.nameserver.statistics()
        assert (statistics.brokers, statistics.topics, statistics.kv_values) == (2, 2, 0)
        assert statistics.server.endpoint.connections == 1


async def test_a_port_in_use_is_an_error_that_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        config = config_for(tmp_path, listenPort=str(taken.getsockname()[1]))
        with pytest.raises(ListenError, match="Address already in use"):
            await serve_nameserver(config)


async def test_a_kv_config_that_cannot_be_read_is_an_error_that_names_it(tmp_path: Path) -> None:
    config = config_for(tmp_path)
    config.kv_path.write_text("{")
    with pytest.raises(ConfigError, match=r"kvConfig\.json"):
        await serve_nameserver(config)
