"""The broker that applications test against."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rmq.client import ConfigError, Message, open_producer
from rmq.testing.local_broker import LocalBroker

if TYPE_CHECKING:
    from pathlib import Path


async def test_a_test_on_trio_uses_it_as_well(rmq_session_broker: LocalBroker) -> None:
    async with open_producer(rmq_session_broker.nameserver, "g") as producer:
        for number in range(5):
            await producer.send(Message("LocalTrio", b"%d" % number))
    found = rmq_session_broker.messages("LocalTrio")
    assert sorted(message.body for message in found) == [b"0", b"1", b"2", b"3", b"4"]
    assert rmq_session_broker.messages("LocalNone") == []


def test_settings_reach_the_broker_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="did you mean enablePropertyFilter"):
        LocalBroker(tmp_path, {"enablePropertyFilte": "true"}).start()
    with LocalBroker(tmp_path, {"brokerName": "mine"}) as broker:
        broker.create_topic("LocalNamed", queues=1)
        assert "127.0.0.1" in repr(broker)
        with pytest.raises(RuntimeError):
            broker.start()
