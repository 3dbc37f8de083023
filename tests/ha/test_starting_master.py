"""A master that has just been started: clients that know it are here before it knows its place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import trio

from rmq.broker.replication import master_role
from rmq.errors import ClientError
from rmq.remoting.codes import RequestCode, ResponseCode
from rmq.remoting.headers import SendMessageRequestV2
from tests.ha.pair_kit import free_port, pair

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.ha.pair_kit import Pair

_SEND = SendMessageRequestV2(
    producer_group="early",
    topic="TBW102",
    default_topic="TBW102",
    default_topic_queue_nums=1,
    queue_id=0,
    sys_flag=0,
    born_timestamp=1,
    flag=0,
)


async def _send(it: Pair, address: str) -> int:
    """Send as soon as anybody listens; return the code of the answer."""
    with trio.fail_after(20):
        while True:
            try:
                answer = await it.client.request(
                    address, RequestCode.SEND_MESSAGE_V2, _SEND, body=b"early", timeout_s=10
                )
            except ClientError:
                await trio.sleep(0.01)
            else:
                return answer.code


async def test_it_takes_nothing_before_it_has_asked_whether_it_is_still_the_master(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master_role, "CONFIRM_S", 1.0)
    port = free_port()
    address = f"127.0.0.1:{port}"
    # Accepts, and never answers: what this broker is remains open for a while.
    (silent,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    async with silent, pair(tmp_path) as it, trio.open_nursery() as nursery:
        settings = {
            "listenPort": str(port),
            "namesrvAddr": f"127.0.0.1:{silent.socket.getsockname()[1]}",
            "registerBrokerTimeoutMills": "1000",
        }
        nursery.start_soon(it.start, "one", "SYNC_MASTER", settings)
        assert await _send(it, address) == ResponseCode.SERVICE_NOT_AVAILABLE
        with trio.fail_after(20):
            # Nobody could set an event: it is the answer that changes.
            while (  # noqa: ASYNC110
                code := await _send(it, address)
            ) == ResponseCode.SERVICE_NOT_AVAILABLE:
                await trio.sleep(0.05)
        # Only then is it an answer of a master without slaves.
        assert code == ResponseCode.SLAVE_NOT_AVAILABLE
