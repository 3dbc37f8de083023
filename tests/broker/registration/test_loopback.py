"""A whole broker and a whole nameserver over TCP: known from start to stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.broker.broker import open_broker
from rmq.broker.config import LiveConfig, load_broker_config
from rmq.remoting.codes import ResponseCode
from tests.broker.send_kit import SMALL_STORE, START_MS, send_frame
from tests.nameserver.kit import ask_route, config_for, running
from tests.remoting.server_kit import Peer

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_broker_is_known_from_its_start_to_its_stop(tmp_path: Path) -> None:
    async with running(config_for(tmp_path)) as nameserver:
        settings = {
            **SMALL_STORE,
            "storePathRootDir": str(tmp_path / "store"),
            "bindAddress": "127.0.0.1",
            "brokerIP1": "127.0.0.1",
            "brokerName": "broker-a",
            "listenPort": "0",
            "namesrvAddr": f"127.0.0.1:{nameserver.server.port}",
        }
        live = LiveConfig(load_broker_config(None, settings, {}), now_ms=START_MS)
        client = await nameserver.dial()
        assert (await ask_route(client, "TBW102")).code == ResponseCode.TOPIC_NOT_EXIST
        async with open_broker(live) as broker:
            # Started means registered: nobody who starts a broker has to wait and see.
            assert (await ask_route(client, "TBW102")).code == 0
            assert (await ask_route(client, "New")).code == ResponseCode.TOPIC_NOT_EXIST
            producer = Peer(await trio.open_tcp_stream("127.0.0.1", broker.server.port))
            assert (await producer.request(send_frame("New"))).code == 0
            with trio.fail_after(2):
                while (await ask_route(client, "New")).code != 0:
                    pass
            await producer.aclose()
        assert (await ask_route(client, "New")).code == ResponseCode.TOPIC_NOT_EXIST
